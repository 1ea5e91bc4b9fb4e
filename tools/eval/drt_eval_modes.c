/* drt_eval_modes.c -- which modes the options of drt-eval ppl name, and which options do not fit together. */
#include "tools/eval/drt_eval.h"
#include "tools/shared/search_options.h"
#include <string.h>

/* Adds the modes that a list names; their names begin with `prefix`. */
static bool modes_of_list(bool mode[EVAL_MODES], const char *list, const char *prefix, int first, int end) {
    for (const char *at = list;;) {
        size_t length = strcspn(at, ","), skip = strlen(prefix);
        int found = EVAL_MODES;
        for (int i = first; i < end; i++)
            if (strlen(eval_mode_names[i]) == skip + length && memcmp(eval_mode_names[i] + skip, at, length) == 0)
                found = i;
        if (found == EVAL_MODES) return false;
        mode[found] = true;
        if (!at[length]) return true;
        at += length + 1;
    }
}

enum eval_mode eval_gca_mode(const struct eval_options *o) {
    int mode = EVAL_BOTH;
    while (mode > EVAL_NONE && (!o->gca || strcmp(o->gca, eval_mode_names[mode]) != 0))
        mode--;
    return (enum eval_mode)mode;
}

/* The modes that are requested, by lists or by options. */
int eval_modes(const char *command, bool mode[EVAL_MODES], const struct eval_options *o) {
    if (o->base.count > EVAL_BASES) return eval_usage(command, "--base: at most four Base LMs fit into one report");
    for (int i = 0; i < o->base.count; i++)
        mode[EVAL_BASE + i] = true;
    if (o->memory && strcmp(o->memory, "none") != 0 &&
        !modes_of_list(mode, o->memory, "memory-", EVAL_MEMORY_OWN, EVAL_MEMORY_ORACLE))
        return eval_usage(command, "--memory: must be none, or a list like own,corpus,both,random");
    mode[EVAL_MEMORY_ORACLE] = o->oracle && strcmp(o->oracle, "none") != 0;
    if (!o->modes) {
        mode[EVAL_NONE] = true;
        mode[EVAL_SELF] = o->self;
        mode[EVAL_CORPUS] = o->corpus;
        mode[EVAL_BOTH] = o->self && o->corpus;
        mode[EVAL_RANDOM] = o->random;
        return -1;
    }
    if (o->self || o->corpus || o->random)
        return eval_usage(command,
                          "--modes already lists the modes: leave out --self-, --corpus- and --random-retrieval");
    if (!modes_of_list(mode, o->modes, "", EVAL_NONE, EVAL_GCA_MODES))
        return eval_usage(command, "--modes: must be a list like none,self,corpus,both,random");
    return -1;
}

static int check_memory(const char *command, const struct eval_options *o, const bool mode[EVAL_MODES]) {
    bool stored =
        mode[EVAL_MEMORY_CORPUS] || mode[EVAL_MEMORY_BOTH] || mode[EVAL_MEMORY_RANDOM] || mode[EVAL_MEMORY_ORACLE];
    if (memory_options_given(&o->memory_options) && !stored && !mode[EVAL_MEMORY_OWN])
        return eval_usage(command, "--memory-... options need --memory LIST (they would not be used)");
    if (stored && !o->store) return eval_usage(command, "--memory corpus, both and random need --store DIR");
    if (stored && o->rule >= 0)
        return eval_usage(command, "--exclude window=N: a token memory leaves out documents only: take doc or none");
    return -1;
}

int eval_check(const char *command, struct eval_options *o, const bool mode[EVAL_MODES]) {
    bool corpus = mode[EVAL_CORPUS] || mode[EVAL_BOTH] || mode[EVAL_RANDOM] || eval_gca_mode(o) > EVAL_SELF;
    bool memory =
        mode[EVAL_MEMORY_CORPUS] || mode[EVAL_MEMORY_BOTH] || mode[EVAL_MEMORY_RANDOM] || mode[EVAL_MEMORY_ORACLE];
    if (eval_gca_mode(o) != EVAL_NONE && !memory && !mode[EVAL_MEMORY_OWN])
        return eval_usage(command, "--gca is what GCA reads under a token memory: it needs --memory LIST");
    if (eval_gca_mode(o) > EVAL_SELF && !o->store) return eval_usage(command, "--gca corpus and both need --store DIR");
    if (o->data.count == 0) return eval_usage(command, "--data FILE is missing");
    if (corpus && !o->store)
        return eval_usage(command, "retrieval from a corpus (corpus, both, random) needs --store DIR");
    if (o->store && !corpus && !memory)
        return eval_usage(command,
                          "--store needs --corpus-retrieval, --random-retrieval, --modes or --memory (it would not "
                          "be used)");
    if (o->encoder && !corpus) return eval_usage(command, "--encoder needs a store and a mode that retrieves from it");
    if (SEARCH_OPTIONS_GIVEN(*o) && !corpus)
        return eval_usage(command, "--searcher, --exact, --exact-fallback and --nprobe need a store and a mode that "
                                   "uses it");
    if (SEARCH_OPTIONS_WRONG(*o)) return eval_usage(command, SEARCH_OPTIONS_WRONG(*o));
    if (!exclude_parse(&o->rule, o->exclude)) return eval_usage(command, "--exclude is doc, window=N or none");
    if (o->skip >= o->context) return eval_usage(command, "--skip must be smaller than --context");
    return check_memory(command, o, mode);
}
