/* factory.c -- see factory_check in vectors_internal.h. FAISS also refuses strings that it cannot parse, but prints a
 * line on stderr. So strings that it certainly cannot parse are refused here. */
#include "store/index/vectors_internal.h"
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parts that are checked completely, and the beginnings of parts that only FAISS checks. */
static const char known[] =
    "^(OPQ[0-9]+(_[0-9]+)?|PCA(WR|W|R)?[0-9]+|RR[0-9]*|IVF[0-9]+(_HNSW[0-9]*|_NSG[0-9]+|\\(.*\\))?"
    "|Flat|SQ(4|6|8|fp16|bf16|8_direct|8_direct_signed)|PQ[0-9]+(x[0-9]+)?(np)?"
    "|(HNSW|NSG|NNDescent|LSH|RQ|PRQ|LSQ|PLSQ|Residual|RCQ|IMI2x|Refine|RFlat|ZnLattice|Pad|L2norm|ITQ).*)$";

static const char digits[] = "0123456789";

/* Returns the first number that is 0, or that is 1 after a graph's name; NULL: none. FAISS divides by such numbers, or
 * does not return. */
static const char *number_too_small(const char *factory) {
    for (const char *p = factory + strcspn(factory, digits); *p; p += strcspn(p, digits)) {
        const char *number = p;
        p += strspn(p, digits);
        long value = strtol(number, NULL, 10);
        bool graph = number - factory >= 3 && (memcmp(number - 3, "NSW", 3) == 0 || memcmp(number - 3, "NSG", 3) == 0);
        if (value < (graph ? 2 : 1)) return number;
    }
    return NULL;
}

enum status factory_check(const char *factory) {
    const char *small = number_too_small(factory);
    if (small)
        return fail(STATUS_INVALID, "index %.100s: the number at \"%.16s\" is too small (1, or 2 after HNSW and NSG)",
                    factory, small);
    regex_t pattern;
    enum status s = STATUS_OK;
    if (regcomp(&pattern, known, REG_EXTENDED | REG_NOSUB) != 0)
        return fail(STATUS_NO_MEMORY, "index %s: no memory to read its name", factory);
    for (const char *part = factory; part && s == STATUS_OK;) {
        char word[64];
        const char *comma = strchr(part, ',');
        size_t length = comma ? (size_t)(comma - part) : strlen(part);
        if (length >= sizeof word) break; /* FAISS checks a description in brackets */
        memcpy(word, part, length);
        word[length] = 0;
        if (strchr(word, '(')) break;
        if (regexec(&pattern, word, 0, NULL, 0) != 0)
            s = fail(STATUS_INVALID,
                     "index %.100s: FAISS has no \"%s\"; use auto, exact, or for example IVF4096_HNSW32,SQ8 or "
                     "OPQ64_256,IVF65536_HNSW32,PQ64np",
                     factory, word);
        part = comma ? comma + 1 : NULL;
    }
    regfree(&pattern);
    return s;
}
