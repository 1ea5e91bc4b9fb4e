/* ablation_rows.c -- see ablation_rows.h. */
#include "tools/ablation/ablation_rows.h"
#include <string.h>

#define BASES "Base LMs"
#define RETRIEVAL "Retrieval by GCA"
#define FIXED "Fixed retrievers"
#define SOURCES "GCA and token memory"
#define LOSSES "DRT trained without one part"
#define OWN "DRT trained on its own past"
#define CHUNKS "Chunks that are read (K)"
#define SEARCHES "Tokens between searches"
#define GROUPS "Groups of upper layers"

#define K_ROW(k)                                                                                                       \
    { "k-" #k, "DRT, K " #k, CHUNKS, .model = ABLATION_K, .value = k, .store = ABLATION_STORE }
#define EVERY_ROW(n)                                                                                                   \
    {                                                                                                                  \
        "every-" #n, "Base LM, memory of both, every " #n, SEARCHES, .how = ABLATION_FIT, .store = ABLATION_STORE,     \
                                                                     .mode = "memory-both", .every = n                 \
    }
#define GROUPS_ROW(n, text)                                                                                            \
    { "groups-" #n, "DRT, " text, GROUPS, .model = ABLATION_GROUPS, .value = n, .store = ABLATION_STORE }

const struct ablation_row ablation_rows[ABLATION_ROWS] = {
    {"base", "Base LM", BASES, .mode = "none", .always = true},
    {"base-deep", "Base LM, more layers", BASES, .model = ABLATION_BASE_DEEP, .mode = "none"},
    {"base-full", "Base LM, full attention", BASES, .model = ABLATION_BASE_FULL, .mode = "none"},
    {"block-recurrent", "Block-Recurrent Transformer", BASES, .model = ABLATION_BLOCK_RECURRENT, .mode = "none"},
    {"landmark-attention", "Landmark Attention", BASES, .model = ABLATION_LANDMARK, .mode = "none"},

    {"drt-none", "DRT without retrieval", RETRIEVAL, .model = ABLATION_DRT, .mode = "none"},
    {"random", "DRT, random chunks", RETRIEVAL, .model = ABLATION_DRT, .store = ABLATION_STORE, .mode = "random",
     .always = true},
    {"drt-other", "DRT, store of other text", RETRIEVAL, .model = ABLATION_DRT, .store = ABLATION_STORE_OTHER,
     .mode = "corpus", .always = true},
    {"drt-corpus", "DRT, store", RETRIEVAL, .model = ABLATION_DRT, .store = ABLATION_STORE, .mode = "corpus"},
    {"drt-self", "DRT, own past", RETRIEVAL, .model = ABLATION_DRT, .mode = "self"},
    {"drt-both", "DRT, store and own past", RETRIEVAL, .model = ABLATION_DRT, .store = ABLATION_STORE, .mode = "both"},

    {"external-corpus", "DRT, store by external encoder", FIXED, .model = ABLATION_DRT,
     .store = ABLATION_STORE_EXTERNAL, .mode = "corpus"},
    {"external-both", "DRT, store by external encoder, own past", FIXED, .model = ABLATION_DRT,
     .store = ABLATION_STORE_EXTERNAL, .mode = "both"},
    {"bm25-corpus", "DRT, store by BM25", FIXED, .model = ABLATION_DRT, .store = ABLATION_STORE,
     .how = ABLATION_LEXICAL, .mode = "corpus"},
    {"bm25-both", "DRT, store by BM25, own past", FIXED, .model = ABLATION_DRT, .store = ABLATION_STORE,
     .how = ABLATION_LEXICAL, .mode = "both"},

    {"gca", "DRT, GCA alone (store and own past)", SOURCES, .model = ABLATION_DRT, .store = ABLATION_STORE,
     .mode = "both"},
    {"memory", "Base LM, memory of store and own past", SOURCES, .store = ABLATION_STORE, .how = ABLATION_FIT,
     .mode = "memory-both"},
    {"memory-self", "Base LM, memory of own past", SOURCES, .store = ABLATION_STORE, .how = ABLATION_FIT,
     .mode = "memory-own"},
    {"memory-corpus", "Base LM, memory of store", SOURCES, .store = ABLATION_STORE, .how = ABLATION_FIT,
     .mode = "memory-corpus"},
    {"memory-random", "Base LM, memory of random chunks", SOURCES, .store = ABLATION_STORE, .how = ABLATION_FIT,
     .mode = "memory-random"},
    {"memory-other", "Base LM, memory of other text", SOURCES, .store = ABLATION_STORE_OTHER, .how = ABLATION_FIT,
     .mode = "memory-corpus"},
    {"drt-memory", "DRT without GCA, memory of both", SOURCES, .model = ABLATION_DRT, .store = ABLATION_STORE,
     .how = ABLATION_FIT, .mode = "memory-both"},
    {"gca-memory", "DRT, GCA and memory of both", SOURCES, .model = ABLATION_DRT, .store = ABLATION_STORE,
     .how = ABLATION_FIT_GCA, .mode = "memory-both"},

    {"no-gumbel", "DRT without Gumbel noise", LOSSES, .model = ABLATION_NO_GUMBEL, .store = ABLATION_STORE},
    {"no-mlm", "DRT without masked-token loss", LOSSES, .model = ABLATION_NO_MLM, .store = ABLATION_STORE},
    {"no-contrastive", "DRT without contrastive loss", LOSSES, .model = ABLATION_NO_CONTRASTIVE,
     .store = ABLATION_STORE},

    {"own", "DRT, trained on its own past", OWN, .model = ABLATION_OWN_PAST, .mode = "self"},
    {"own-taught", "DRT, own past, taught by a reader", OWN, .model = ABLATION_OWN_PAST_TAUGHT, .mode = "self"},

    K_ROW(1),
    K_ROW(2),
    K_ROW(4),
    K_ROW(8),
    K_ROW(16),
    K_ROW(32),
    K_ROW(64),

    EVERY_ROW(16),
    EVERY_ROW(32),
    EVERY_ROW(64),

    GROUPS_ROW(1, "one group"),
    GROUPS_ROW(2, "two groups"),
};

const char *const ablation_model_names[ABLATION_K] = {
    "base",   "base-deep",      "base-full", "block-recurrent", "landmark-attention", "drt", "no-gumbel",
    "no-mlm", "no-contrastive", "own",       "own-taught"};

int ablation_row_find(const char *name) {
    for (int i = 0; i < ABLATION_ROWS; i++)
        if (strcmp(ablation_rows[i].name, name) == 0) return i;
    return -1;
}

bool ablation_mode_reads_store(const char *mode) {
    static const char *const without[] = {"none", "self", "memory-own"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (strcmp(mode, without[i]) == 0) return false;
    return true;
}
