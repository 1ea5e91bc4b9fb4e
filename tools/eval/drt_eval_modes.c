/* drt_eval_modes.c -- the modes that the options of drt-eval ppl select, and checks of the options. */
#include "tools/eval/drt_eval.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/search_options.h"
#include <string.h>

const char *const eval_mode_names[EVAL_MODES] = {"none",
                                                 "self",
                                                 "corpus",
                                                 "both",
                                                 "random",
                                                 "base",
                                                 "base-2",
                                                 "base-3",
                                                 "base-4",
                                                 "memory-own",
                                                 "memory-corpus",
                                                 "memory-both",
                                                 "memory-random",
                                                 "memory-oracle",
                                                 "memory-other",
                                                 "memory-other-both",
                                                 "memory-knn-lm",
                                                 "memory-corpus-1/2",
                                                 "memory-corpus-1/4",
                                                 "memory-corpus-1/8",
                                                 "memory-corpus-1/16",
                                                 "memory-corpus-1/32",
                                                 "memory-corpus-1/64",
                                                 "memory-both-1/2",
                                                 "memory-both-1/4",
                                                 "memory-both-1/8",
                                                 "memory-both-1/16",
                                                 "memory-both-1/32",
                                                 "memory-both-1/64"};
const char *const eval_part_names[EVAL_PARTS] = {"1/2", "1/4", "1/8", "1/16", "1/32", "1/64"};

/* Adds the modes of a list, whose names begin with `prefix`. */
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

static bool ends_in(const char *text, const char *end) {
    const size_t n = strlen(text), of_end = strlen(end);
    return n > of_end && strcmp(text + n - of_end, end) == 0;
}

/* Adds the parts of the store in a list, for the memories of the whole store that are in `mode`. The last part is the
 * whole store, whose rows exist already. */
static bool modes_of_parts(bool mode[EVAL_MODES], const char *list) {
    if (!mode[EVAL_MEMORY_CORPUS] && !mode[EVAL_MEMORY_BOTH]) return false;
    for (const char *at = list;;) {
        size_t length = strcspn(at, ",");
        int found = length == 1 && *at == '1' ? EVAL_PARTS : -1;
        for (int i = 0; i < EVAL_PARTS; i++)
            if (strlen(eval_part_names[i]) == length && memcmp(eval_part_names[i], at, length) == 0) found = i;
        if (found < 0) return false;
        if (found < EVAL_PARTS) {
            mode[EVAL_PART_CORPUS + found] = mode[EVAL_MEMORY_CORPUS];
            mode[EVAL_PART_BOTH + found] = mode[EVAL_MEMORY_BOTH];
        }
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

/* Determines the requested modes, which are given as lists or by options. */
int eval_modes(const char *command, bool mode[EVAL_MODES], const struct eval_options *o) {
    if (o->base.count > EVAL_BASES) return eval_usage(command, "--base: at most four Base LMs fit into one report");
    for (int i = 0; i < o->base.count; i++)
        mode[EVAL_BASE + i] = true;
    if (o->memory && strcmp(o->memory, "none") != 0 &&
        !modes_of_list(mode, o->memory, "memory-", EVAL_MEMORY_OWN_PAST, EVAL_MEMORY_ORACLE))
        return eval_usage(command, "--memory: must be none, or a list like own,corpus,both,random");
    mode[EVAL_MEMORY_KNN] = o->knn_lm;
    mode[EVAL_MEMORY_ORACLE] = o->oracle && strcmp(o->oracle, "none") != 0;
    if (o->plot && !o->store_parts) return eval_usage(command, "--plot draws the rows of --store-parts");
    if (o->plot && !ends_in(o->plot, ".svg")) return eval_usage(command, "--plot FILE ends in .svg");
    if (o->store_parts && !modes_of_parts(mode, o->store_parts))
        return eval_usage(command,
                          "--store-parts: must be a list of 1/64, 1/32, 1/16, 1/8, 1/4, 1/2 and 1, with corpus or "
                          "both in --memory");
    if (!o->modes) {
        mode[EVAL_NONE] = true;
        mode[EVAL_OWN_PAST] = o->own_past;
        mode[EVAL_CORPUS] = o->corpus;
        mode[EVAL_BOTH] = o->own_past && o->corpus;
        mode[EVAL_RANDOM] = o->random;
        return -1;
    }
    if (o->own_past || o->corpus || o->random)
        return eval_usage(command,
                          "--modes already lists the modes: leave out --self-, --corpus- and --random-retrieval");
    if (!modes_of_list(mode, o->modes, "", EVAL_NONE, EVAL_GCA_MODES))
        return eval_usage(command, "--modes: must be a list like none,self,corpus,both,random");
    return -1;
}

static bool stored_memory(const bool mode[EVAL_MODES]) {
    bool stored = false;
    for (int i = EVAL_MEMORY_CORPUS; i < EVAL_MODES; i++)
        stored = stored || mode[i];
    return stored;
}

static int check_memory(const char *command, const struct eval_options *o, const bool mode[EVAL_MODES]) {
    const bool stored = stored_memory(mode);
    if (memory_options_given(&o->memory_options) && !stored && !mode[EVAL_MEMORY_OWN_PAST])
        return eval_usage(command, "--memory-... options need --memory LIST (they would not be used)");
    if (stored && !o->store)
        return eval_usage(command, "--memory corpus, both and random, --oracle and --knn-lm need --store DIR");
    if (stored && o->rule >= 0)
        return eval_usage(command, "--exclude window=N: a token memory leaves out documents only: take doc or none");
    return -1;
}

int eval_check(const char *command, struct eval_options *o, const bool mode[EVAL_MODES]) {
    bool corpus = mode[EVAL_CORPUS] || mode[EVAL_BOTH] || mode[EVAL_RANDOM] || eval_gca_mode(o) > EVAL_OWN_PAST;
    const bool memory = stored_memory(mode);
    if (eval_gca_mode(o) != EVAL_NONE && !memory && !mode[EVAL_MEMORY_OWN_PAST])
        return eval_usage(command, "--gca is what GCA reads under a token memory: it needs --memory LIST");
    if (eval_gca_mode(o) > EVAL_OWN_PAST && !o->store)
        return eval_usage(command, "--gca corpus and both need --store DIR");
    if (o->data.count == 0) return eval_usage(command, "--data FILE is missing");
    if (corpus && !o->store)
        return eval_usage(command, "retrieval from a corpus (corpus, both, random) needs --store DIR");
    if (o->store && !corpus && !memory)
        return eval_usage(command,
                          "--store would not be used: add --corpus-retrieval, --random-retrieval, --memory, or corpus, "
                          "both or random to --modes");
    if (o->encoder && !corpus) return eval_usage(command, "--encoder needs a store and a mode that retrieves from it");
    if (SEARCH_OPTIONS_GIVEN(*o) && !corpus)
        return eval_usage(
            command, "--searcher, --exact, --exact-fallback, --nprobe, --continuation, --overlap and --query-tokens "
                     "need a store and a mode that uses it");
    if (SEARCH_OPTIONS_WRONG(*o)) return eval_usage(command, SEARCH_OPTIONS_WRONG(*o));
    const bool shares_texts = strcmp(command, "fit-memory") == 0; /* and each GPU has all landmarks */
    if (o->devices && !shares_texts && (!corpus || o->workers.addresses))
        return eval_usage(
            command, "--devices share the landmarks of a store: give --store and a mode that reads it, and no workers");
    if (devices_choose(&o->where, o->devices) != STATUS_OK) return eval_usage(command, status_message());
    if (o->workers.addresses && !corpus && !memory)
        return eval_usage(command, "--workers search a store: give --store and a mode that reads it");
    if (o->workers.addresses && corpus_search_kind(o->searcher) == SEARCHER_LEXICAL)
        return eval_usage(command, "--searcher lexical searches in this process: leave out the workers");
    if (worker_options_wrong(&o->workers)) return eval_usage(command, worker_options_wrong(&o->workers));
    if (!exclude_parse(&o->rule, o->exclude)) return eval_usage(command, "--exclude is doc, window=N or none");
    if (o->skip >= o->context) return eval_usage(command, "--skip must be smaller than --context");
    return check_memory(command, o, mode);
}
