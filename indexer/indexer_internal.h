/* indexer_internal.h -- the two parts that indexer.c is made of: the feed and the cursor.
 *
 * The feed reads and tokenizes documents on its own threads, ahead of the encoder, and gives them out in input order.
 * The cursor is what the journal keeps with each sealed shard: where reading goes on, and of which inputs. */
#pragma once
#include "data/readers/reader.h"
#include "data/tokenizer/tokenizer.h"
#include "store/store.h"

/* ---- feed ---------------------------------------------------------------------------------------------- */
struct feed_config {
    struct reader *reader;               /* the feed's alone until feed_close */
    const struct tokenizer *tokenizer;   /* NULL: the reader gives ids */
    int vocab_size;                      /* ids at or above it are refused */
    int workers;
    uint64_t lookahead_bytes;            /* no further document is read while this much waits to be encoded */
};
/* One document, ready for the store. Owned by the feed until feed_release. */
struct feed_item {
    struct store_new_document document;  /* n_ids 0: empty */
    uint64_t replaced;                   /* invalid UTF-8 sequences in it */
    struct reader_position after;        /* where reading goes on behind it */
    int64_t read_done, read_total;       /* bytes of input read when it was read */
    void *memory;
    uint64_t charge;                     /* bytes it counts against the lookahead */
};
/* Bytes that a document of n bytes of text may need at once: in the reader, as text, and as ids of one byte each. */
enum { FEED_BYTES_PER_TEXT_BYTE = 8 };

struct feed;
enum status feed_open(struct feed **out, const struct feed_config *config);
/* *more false at the end. A failure (of reading, or of a worker) comes at its place in the order. */
enum status feed_next(struct feed *f, struct feed_item *item, bool *more);
void feed_release(struct feed *f, struct feed_item *item);
double feed_seconds(struct feed *f);                      /* of all workers, reading and tokenizing */
void feed_close(struct feed *f);                          /* waits for its threads; NULL is fine */

/* ---- cursor -------------------------------------------------------------------------------------------- */
struct cursor {
    struct reader_position position;
    uint8_t inputs[16], options[16];     /* hashes of what a resumed run must share */
    int64_t since_boundary;              /* chunks of shards closed early by a stop request since the last regular end */
    int64_t documents, empty, replaced;  /* of the whole build so far */
};
void cursor_describe(struct cursor *out, const struct reader *files, const struct reader_config *reader, int64_t shard_chunks);
enum { CURSOR_BYTES = 128 };
void cursor_pack(uint8_t out[CURSOR_BYTES], const struct cursor *c);
/* STATUS_CORRUPT, STATUS_VERSION; STATUS_MISMATCH when it was made from other inputs or options than `now`. */
enum status cursor_unpack(struct cursor *out, const uint8_t *bytes, size_t n, const struct cursor *now, const char *store);
