/* drt_index_listing.c -- the documents that a command takes out of a store: the first ones, all, or JSON. */
#include "base/formats/json.h"
#include "tools/index/drt_index.h"
#include "tools/shared/streams.h"

enum { LISTED = 10 }; /* documents named without --all */

void drt_index_listing_add(void *context, int64_t shard, const struct store_document *d) {
    struct drt_index_listing *l = context;
    if (l->json) {
        struct json_writer w;
        json_write_open(&w, stdout, 0);
        json_write_object(&w);
        const struct json_number numbers[] = {
            {"document", d->id},       {"shard", shard},      {"first_chunk", d->first_chunk},
            {"chunks", d->chunks},     {"tokens", d->tokens}, {"offset", (int64_t)d->offset},
            {"line", (int64_t)d->line}};
        drt_index_numbers(&w, numbers, ARRAY_LEN(numbers));
        json_write_key(&w, "source"), json_write_string(&w, d->source);
        json_write_key(&w, "key"), json_write_string(&w, d->key);
        json_write_object_end(&w);
        fputc('\n', stdout);
    } else if (l->all || l->listed < LISTED) {
        streams_printf(stdout, "  document %lld: %s %s (shard %lld, chunks %lld to %lld)\n", (long long)d->id,
                       d->source, d->key, (long long)shard, (long long)d->first_chunk,
                       (long long)(d->first_chunk + d->chunks - 1));
    }
    l->listed++;
}

void drt_index_listing_end(const struct drt_index_listing *l, int64_t documents) {
    if (!l->json && !l->all && documents > LISTED)
        printf("  and %lld more (--all names them)\n", (long long)(documents - LISTED));
}
