/* test_ops.c -- every op has a test: fails if struct ops has a member, or an op's struct a function, without a case
 * here, and if a family has no test program besides this one. */
#include "tests/twins/twins.h"
#include <stddef.h>

#define FAMILY(name)                                                                                                   \
    { #name, offsetof(struct ops, name), sizeof(struct name##_ops) }
static const struct {
    const char *name;
    size_t offset, bytes;
} families[] = {
    FAMILY(matmul),
    FAMILY(norm),
    FAMILY(rope),
    FAMILY(attention),
    FAMILY(chunk_attention),
    FAMILY(gca),
    FAMILY(elementwise),
    FAMILY(embed),
    FAMILY(loss),
    FAMILY(topk),
    FAMILY(adamw),
    FAMILY(kmeans_assign),
    FAMILY(ivf_scan),
    FAMILY(token_memory),
    FAMILY(bert),
    FAMILY(state_gate),
    FAMILY(landmark_attention),
    FAMILY(lexical_scan),
    FAMILY(hybrid),
    FAMILY(candidates),
    FAMILY(next_token),
    FAMILY(packed_keys),
    FAMILY(pick),
};

/* The number of functions that the family's test programs (test_<name>.c, and test_<name>_*.c) call. Raise it when you
 * add a case there. */
static const struct {
    const char *name;
    size_t functions;
} tested[] = {
    {"matmul", 16},
    {"norm", 2},
    {"rope", 2},
    {"attention", 3},
    {"chunk_attention", 3},
    {"gca", 6},
    {"elementwise", 5},
    {"embed", 2},
    {"loss", 3},
    {"topk", 6},
    {"adamw", 2},
    {"kmeans_assign", 4},
    {"ivf_scan", 1},
    {"token_memory", 7},
    {"bert", 4},
    {"state_gate", 2},
    {"landmark_attention", 3},
    {"lexical_scan", 2},
    {"hybrid", 2},
    {"candidates", 1},
    {"next_token", 2},
    {"packed_keys", 3},
    {"pick", 1},
};

/* Run by hand: from the repository's root. */
static bool has_program(const char *name) {
    static const char *const folders[] = {"attention", "landmark", "lexical",   "linear",
                                          "memory",    "pick",     "pointwise", "search"}; /* as in kernels/ */
    const char *source = getenv("DRT_SOURCE");
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/tests/twins/%s/test_%s.c", source ? source : ".", folders[i], name);
        if (access(path, R_OK) == 0) return true;
    }
    return false;
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    CHECK_EQ(ARRAY_LEN(families), sizeof(struct ops) / sizeof(void *));
    CHECK_EQ(ARRAY_LEN(tested), ARRAY_LEN(families));
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        CHECK_STR(families[i].name, tested[i].name);
        CHECK_EQ(families[i].bytes / sizeof(void (*)(void)), tested[i].functions);
        for (size_t j = 0; j < i; j++)
            CHECK(families[j].offset != families[i].offset);
        CHECK(has_program(families[i].name));
        for (int d = 0; d < DEVICES; d++) {
            void (*const *family)(void);
            memcpy(&family, (const char *)twin_device[d]->ops + families[i].offset, sizeof family);
            CHECK(family != NULL);
            for (size_t f = 0; f < tested[i].functions; f++)
                CHECK(family[f] != NULL);
        }
    }
    return twins_close();
}
