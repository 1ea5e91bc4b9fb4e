/* near_name.c -- see near_name.h. */
#include "base/formats/near_name.h"
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { COMPARED_MAX = 48, CONTAINS_FROM = 3, PART_FROM = 4 };

static bool near_name_same(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Returns the number of edits (insert, delete, replace, swap of adjacent characters) that turn a into b: the optimal
 * string alignment distance. */
static int near_name_edits(const char *a, size_t n, const char *b, size_t m) {
    int row[3][COMPARED_MAX + 1];
    if (n > COMPARED_MAX || m > COMPARED_MAX) return COMPARED_MAX;
    for (size_t j = 0; j <= m; j++)
        row[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *now = row[i % 3], *above = row[(i + 2) % 3], *above2 = row[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = above[j - 1] + !near_name_same(a[i - 1], b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && near_name_same(a[i - 1], b[j - 2]) && near_name_same(a[i - 2], b[j - 1]) &&
                above2[j - 2] + 1 < best)
                best = above2[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[n % 3][m];
}

struct near_name near_name_of(const char *name, size_t length) {
    return (struct near_name){
        .name = name, .length = length, .edits = (int)(length < COMPARED_MAX ? length : COMPARED_MAX) / 3 + 1};
}

void near_name_offer(struct near_name *n, const char *candidate) {
    const size_t length = strlen(candidate);
    int edits = near_name_edits(n->name, n->length, candidate, length);
    if (n->length >= CONTAINS_FROM && length > n->length && memmem(candidate, length, n->name, n->length)) edits = 1;
    if (edits < n->edits) {
        n->edits = edits;
        n->best = candidate;
    }
    if (length >= PART_FROM && length < n->length && memmem(n->name, n->length, candidate, length) &&
        (!n->part || length > strlen(n->part)))
        n->part = candidate;
}

const char *near_name_best(const struct near_name *n) {
    return n->best ? n->best : n->part;
}
