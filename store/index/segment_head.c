/* segment_head.c -- see segment_head in segment_check_internal.h. The bytes are those of FAISS's write_InvertedLists:
 * lists of which at most half have rows are written as pairs of number and size. */
#include "base/memory.h"
#include "store/index/segment_check_internal.h"
#include <string.h>

static uint8_t *put_u64(uint8_t *at, uint64_t value) {
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

enum status segment_head(uint8_t **head, size_t *bytes, const uint8_t *template, const struct segment_layout *layout,
                         const uint64_t *sizes, int64_t rows) {
    enum { TAGS = 8, NUMBERS = 3 }; /* "ilar" and the kind of the sizes; lists, bytes of a code, length of the sizes */
    uint64_t filled = 0;
    for (uint64_t l = 0; l < layout->lists; l++)
        filled += sizes[l] > 0;
    const bool sparse = filled <= layout->lists / 2;
    const uint64_t values = sparse ? 2 * filled : layout->lists;
    TRY(memory_allocate(head, layout->lists_at + TAGS + 8 * (NUMBERS + (size_t)values)));
    memcpy(*head, template, layout->lists_at);
    for (int i = 0; i < layout->n_counts; i++)
        memcpy(*head + layout->counts[i], &rows, sizeof rows);
    uint8_t *at = *head + layout->lists_at;
    memcpy(at, "ilar", 4);
    at = put_u64(put_u64(at + 4, layout->lists), layout->code_bytes);
    memcpy(at, sparse ? "sprs" : "full", 4);
    at = put_u64(at + 4, values);
    for (uint64_t l = 0; l < layout->lists; l++) {
        if (sparse && sizes[l] == 0) continue;
        if (sparse) at = put_u64(at, l);
        at = put_u64(at, sizes[l]);
    }
    *bytes = (size_t)(at - *head);
    return STATUS_OK;
}
