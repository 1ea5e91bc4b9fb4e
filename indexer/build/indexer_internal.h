/* indexer_internal.h -- the parts that indexer.c is made of: the feed, the cursor, and an existing store.
 *
 * The feed reads and tokenizes documents on its own threads, ahead of the encoder, and gives them out in input order.
 * The cursor is what the journal keeps with each sealed shard: where reading continues, and hashes of what was read. */
#pragma once
#include "data/readers/ids_check.h"
#include "data/readers/reader.h"
#include "data/tokenizer/tokenizer.h"
#include "indexer/build/update.h"
#include "store/parts/parts.h"

/* ---- feed ---------------------------------------------------------------------------------------------- */
struct feed_config {
    struct reader *reader;             /* the feed's alone until feed_close */
    const struct tokenizer *tokenizer; /* NULL: the reader gives ids */
    struct ids_rules ids;              /* of token files */
    const struct update_plan *plan;    /* documents that it does not take come without ids; NULL: all are taken */
    const char *source;                /* of all documents; NULL: the reader's */
    int workers;
    uint64_t lookahead_bytes; /* no further document is read while this much waits to be encoded */
};
/* One document, ready for the store. Owned by the feed until feed_release. */
struct feed_item {
    struct store_new_document document; /* n_ids 0: empty */
    uint64_t replaced;                  /* invalid UTF-8 sequences in it */
    struct reader_position after;       /* where reading continues after it */
    int64_t read_done, read_total;      /* bytes of input read when it was read */
    void *memory;
    uint64_t charge; /* bytes it counts against the lookahead */
};
/* Bytes that a document of n bytes of text may need at once: in the reader, as text, and as ids of one byte each. */
enum { FEED_BYTES_PER_TEXT_BYTE = 8 };

struct feed;
enum status feed_open(struct feed **out, const struct feed_config *config);
/* *more false at the end. A failure (of reading, or of a worker) comes in the order of the documents. */
enum status feed_next(struct feed *f, struct feed_item *item, bool *more);
void feed_release(struct feed *f, struct feed_item *item);
double feed_seconds(struct feed *f); /* of all workers, reading and tokenizing */
void feed_close(struct feed *f);     /* waits for its threads; NULL is fine */

/* ---- an existing store ------------------------------------------------------------------------------------ */
struct built_request {
    const char *store, *index;
    const struct store_fingerprint *fingerprint;
    const struct reader_config *reader;
    int64_t shard_chunks;
    enum store_lexical_choice lexical;
    const struct store_part *part;     /* that the store must be; NULL: any */
};
/* STATUS_OK when a build of this request would make the published store. Reads all inputs. Else the message names the
 * difference. */
enum status built_check(struct store_view *view, const struct built_request *request);

/* ---- cursor -------------------------------------------------------------------------------------------- */
enum { CURSOR_MARKS = 128, CURSOR_BYTES_MAX = 112 + 16 * CURSOR_MARKS };
struct cursor {
    struct reader_position position;    /* with hashes of what was read: a resumed run's inputs must begin so */
    uint8_t options[16];                /* hash of those that a resumed run must share */
    int64_t since_boundary;             /* chunks of shards closed early by a stop request since the last regular end */
    int64_t documents, empty, replaced; /* of the whole build so far */
    struct reader_mark marks[CURSOR_MARKS]; /* every so many files, to name the one that changed */
    uint64_t n_marks, files_a_mark;
};
void cursor_describe(struct cursor *out, const struct reader_config *reader, int64_t shard_chunks);
/* Of an update: the generation whose documents it replaces, and the source (NULL: the reader's), become options. */
void cursor_describe_update(struct cursor *c, uint64_t generation, const char *source);
/* What all parts of one build share: the list of the inputs, and the options of cursor_describe. */
enum status cursor_corpus(uint8_t out[16], const struct reader_config *reader, int64_t shard_chunks);
/* On to the position after a document. */
void cursor_advance(struct cursor *c, const struct reader_position *after);
size_t cursor_pack(uint8_t out[CURSOR_BYTES_MAX], const struct cursor *c); /* bytes used */
/* STATUS_VERSION; STATUS_MISMATCH when it was made with other options than `now`. */
enum status cursor_unpack(struct cursor *out, const uint8_t *bytes, size_t n, const struct cursor *now,
                          const char *store);
