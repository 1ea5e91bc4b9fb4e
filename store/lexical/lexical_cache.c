/* lexical_cache.c -- lists that were looked up before, in one row each: a key replaces the one that had its row. */
#include "base/memory.h"
#include "store/lexical/lexical_lists.h"
#include "store/lexical/lexical_query_internal.h"

enum { ROW_BITS = 12 };

struct cache_row {
    const struct lexical_segment *segment; /* NULL: free */
    uint64_t key;
    struct lexical_list list;
};
struct lexical_cache {
    struct cache_row rows[1 << ROW_BITS];
};

enum status lexical_cache_create(struct lexical_cache **out) {
    return memory_allocate_zero(out, 1);
}

void lexical_cache_free(struct lexical_cache *c) {
    memory_free(c);
}

enum status lexical_cache_find(struct lexical_cache *c, const struct lexical_segment *s, struct lexical_list *out,
                               uint64_t key) {
    if (!c) return lexical_segment_find(s, out, key);
    const uint64_t mixed = (key ^ s->frame.first_chunk << 40) * 0x9E3779B97F4A7C15u;
    struct cache_row *row = &c->rows[mixed >> (64 - ROW_BITS)];
    if (row->segment != s || row->key != key) {
        row->segment = NULL;
        TRY(lexical_segment_find(s, &row->list, key));
        row->segment = s;
        row->key = key;
    }
    *out = row->list;
    return STATUS_OK;
}
