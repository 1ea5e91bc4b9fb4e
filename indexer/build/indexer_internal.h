/* indexer_internal.h -- the parts of indexer.c: the feed, the cursor, and the check of an existing store.
 *
 * The feed reads and tokenizes documents on its own threads, ahead of the encoder, and returns them in input order. The
 * cursor is what the journal keeps with each sealed shard: where reading continues, and hashes of what was read. */
#pragma once
#include "data/readers/ids_check.h"
#include "data/readers/reader.h"
#include "data/tokenizer/tokenizer.h"
#include "indexer/build/update.h"
#include "store/parts/parts.h"

/* OVERHEAD: tables of the tokenizer, pages of the catalog, stacks. WORKING: the least memory for documents, and later
 * for the index. BATCH: chunks of a batch on a CPU. */
enum {
    INDEXER_MIB = 1 << 20,
    INDEXER_OVERHEAD_BYTES = 64 << 20,
    INDEXER_WORKING_BYTES = 64 << 20,
    INDEXER_BATCH = 256,
};

/* ---- feed ---------------------------------------------------------------------------------------------- */
struct feed_config {
    struct reader *reader;             /* used by the feed alone until feed_close */
    const struct tokenizer *tokenizer; /* NULL: the reader gives ids */
    struct ids_rules ids;              /* of token files */
    /* a document that the plan does not take comes without ids; NULL: all are taken */
    const struct update_plan *plan;
    const char *source;                /* of all documents; NULL: as the reader gives it */
    int workers;                       /* threads that read and tokenize */
    int id_workers;                    /* of these, for documents that are ids already; 0: all */
    uint64_t lookahead_bytes; /* reading pauses while documents of more bytes than this wait to be encoded */
};
/* One document, ready for the store. Owned by the feed until feed_release. */
struct feed_item {
    struct store_new_document document; /* n_ids 0: the document is empty */
    uint64_t replaced;                  /* invalid UTF-8 sequences that were replaced */
    struct reader_position after;       /* where reading continues after the document */
    int64_t read_done, read_total;      /* input bytes up to the document, and in all */
    void *memory;
    uint64_t charge; /* bytes of the lookahead that the document takes */
};
/* Upper limit of the memory for a document of n bytes of text: in the reader, as text, and as ids of one byte each. */
enum { FEED_BYTES_PER_TEXT_BYTE = 8 };

struct feed;
enum status feed_open(struct feed **out, const struct feed_config *config);
/* Returns the next document; *more is false at the end. A failure of reading or of a worker is returned after the
 * documents before it. */
enum status feed_next(struct feed *f, struct feed_item *item, bool *more);
void feed_release(struct feed *f, struct feed_item *item);
double feed_seconds(struct feed *f); /* seconds of all workers for parsing and tokenizing */
void feed_close(struct feed *f);     /* waits for the threads; NULL is fine */

/* ---- an existing store ------------------------------------------------------------------------------------ */
struct built_request {
    const char *store, *index;
    const struct store_fingerprint *fingerprint;
    const struct reader_config *reader;
    int64_t shard_chunks;
    enum store_lexical_choice lexical;
    enum store_landmarks type;         /* KEEP: any */
    const struct store_part *part;     /* the part that the store must be; NULL: any store */
};
/* STATUS_OK: a build of this request would make the published store. Otherwise the message names the difference. Reads
 * all inputs. */
enum status built_check(struct store_view *view, const struct built_request *request);

/* ---- cursor -------------------------------------------------------------------------------------------- */
enum { CURSOR_MARKS = 128, CURSOR_BYTES_MAX = 112 + 16 * CURSOR_MARKS };
struct cursor {
    /* with hashes of what was read: the inputs of a resumed run must begin with the same */
    struct reader_position position;
    uint8_t options[16];                /* hash of the options that a resumed run must share */
    /* chunks of shards that a stop request ended early, since the last regular boundary */
    int64_t since_boundary;
    int64_t documents, empty, replaced; /* of the whole build so far */
    struct reader_mark marks[CURSOR_MARKS]; /* after every so many files, to name the file that changed */
    uint64_t n_marks, files_a_mark;
};
void cursor_describe(struct cursor *out, const struct reader_config *reader, int64_t shard_chunks);
/* Adds the options of an update: the generation whose documents it replaces, and the source (NULL: as the reader gives
 * it). */
void cursor_describe_update(struct cursor *c, uint64_t generation, const char *source);
/* Whether a packed cursor is of the same update of an earlier generation. `plain`: from cursor_describe alone. */
bool cursor_of_earlier_update(const uint8_t *bytes, size_t n, const struct cursor *plain, uint64_t generation,
                              const char *source);
/* Hash of what all parts of a build share: the list of inputs, and the options of cursor_describe. */
enum status cursor_corpus(uint8_t out[16], const struct reader_config *reader, int64_t shard_chunks);
/* Moves the cursor to the position after a document. */
void cursor_advance(struct cursor *c, const struct reader_position *after);
size_t cursor_pack(uint8_t out[CURSOR_BYTES_MAX], const struct cursor *c); /* returns the bytes used */
/* Reads a packed cursor. STATUS_VERSION: of another version of the program. STATUS_MISMATCH: made with other options
 * than `now`. */
enum status cursor_unpack(struct cursor *out, const uint8_t *bytes, size_t n, const struct cursor *now,
                          const char *store);
