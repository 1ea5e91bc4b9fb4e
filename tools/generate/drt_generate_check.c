/* drt_generate_check.c -- options of drt-generate that do not fit together. */
#include "tools/generate/drt_generate.h"
#include <string.h>

int generate_check(const struct generate_options *o) {
    if ((o->prompt != NULL) + (o->prompt_file != NULL) + o->prompt_stdin > 1)
        return generate_usage("only one of --prompt, --prompt-file and - can be given");
    if (o->corpus && !o->store) return generate_usage("--corpus-retrieval needs --store DIR");
    bool memory = strcmp(o->memory, "none") != 0, found = memory && strcmp(o->memory, "own") != 0;
    if (memory && (o->corpus || o->self))
        return generate_usage("--memory is read without GCA: leave out --corpus-retrieval and --self-retrieval");
    if (found && !(o->store && o->memory_options.lexical))
        return generate_usage("--memory corpus and both need --store DIR and --lexical DIR, made by drt-index lexical");
    if (!found && o->memory_options.lexical) return generate_usage("--lexical needs --memory corpus or both");
    if (!memory && memory_options_given(&o->memory_options))
        return generate_usage("--memory-... options need --memory own, corpus or both");
    if (o->store && !o->corpus && !found)
        return generate_usage("--store needs --corpus-retrieval (without it the store is not used)");
    if ((o->exact || o->exact_fallback || o->nprobe) && !o->corpus)
        return generate_usage("--exact, --exact-fallback and --nprobe need --store DIR --corpus-retrieval");
    if (o->exact && (o->nprobe || o->exact_fallback))
        return generate_usage("--exact scans every landmark: leave out --nprobe and --exact-fallback");
    for (int i = 0; i < o->stops.count; i++)
        if (!o->stops.items[i][0]) return generate_usage("--stop '': the string is empty");
    return -1;
}
