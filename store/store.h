/* store.h -- chunks of a corpus on disk, searched by vector.
 *
 * A store is one directory:
 *   catalog/             LMDB: the only commit point. A file without a record is not part of the store.
 *                        catalog/commit: a checksummed copy of its meta pages
 *   tokens/NNNNN.tok     token shards: the documents' ids (u16, or u32 when the vocabulary needs it)
 *   landmarks/NNNNN.f16  landmark shards: one fp16 row of `dim` per chunk, row = chunk id - the shard's first id
 *                        (NNNNN-NNNNN.tok and .f16: shards that were merged, from the first number to the last)
 *   landmarks/NNNNN.i8   the same as 8-bit codes with one scale per row, in a store of 8-bit landmarks
 *   index/NNNNN.faiss    FAISS segments and the trained template they share; derived, can be rebuilt
 *   lexical/NNNNN.lex    segments of the lexical index (store/lexical/lexical.h), if the store has one; derived, too
 *   keys/NNNNN.keys      keys of a token memory (store/keys/store_keys.h), if they were made; no record names them
 * Data files are immutable: written under a temporary name, synced, renamed, then recorded (name, bytes, CRC32C, id
 * range). Files without a record are orphan files; the next writer removes them.
 *
 * A document is `chunks` contiguous chunk ids. A run record {first chunk id -> document, token shard, token offset,
 * chunks} finds any chunk's tokens with one lookup. The last chunk of a document may be short.
 *
 * A generation is the contents after one publishing transaction: {chunks, documents, shards, segments}. A view reads
 * exactly one generation. The journal is the sealed shards that are not published yet. A resumed writer continues after
 * them.
 *
 * There is one writer at a time (an flock; a second one gets STATUS_BUSY) and any number of reading processes. A struct
 * store_view is for one thread at a time; several threads may each use a view of the same store. A process may have one
 * store open only once at a time, as struct store or as struct store_writer, because LMDB's file locks belong to the
 * process. */
#pragma once
#include "base/progress.h"
#include "base/status.h"
#include "base/system/threads.h"
#include "store/index/assign_rows.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The newest format. A store with fp16 landmarks has STORE_FORMAT_F16, which older programs can read. */
enum { STORE_FORMAT_VERSION = 5, STORE_FORMAT_F16 = 4, STORE_NAME_MAX = 64 };

/* The type of a store's landmarks. All landmarks of a store have the same type, which never changes. */
enum store_landmarks {
    STORE_LANDMARKS_KEEP,                /* in a request: the type of the existing store; a new store gets F16 */
    STORE_LANDMARKS_F16,                 /* fp16 numbers */
    STORE_LANDMARKS_I8,                  /* 8-bit codes and one scale per row (docs/store-format.md) */
    STORE_LANDMARKS_NONE,                /* none: dim is 0, and chunks are found only by words (store_view_lexical) */
};
const char *store_landmarks_name(enum store_landmarks type);      /* "f16", "i8", "none" */
/* STATUS_INVALID: there is no type of this name. NULL gives STORE_LANDMARKS_KEEP. */
enum status store_landmarks_parse(enum store_landmarks *out, const char *name);
/* Rows as stored, in one of the two types. The pointers of the other type are NULL. Number i of row r is half[r * dim +
 * i], or codes[r * dim + i] * scales[r], a product that is exact in float32 and in fp16. */
struct store_rows {
    const uint16_t *half;                /* [n, dim] */
    const int8_t *codes; const float *scales;             /* [n, dim], [n] */
    int64_t n; int dim;
};
/* Copies the numbers of rows first .. first+n-1 into out[n, dim]. */
void store_rows_to_float(float *out, const struct store_rows *rows, int64_t first, int64_t n);
void store_rows_to_half(uint16_t *out, const struct store_rows *rows, int64_t first, int64_t n);

/* Identifies how the vectors were computed. Every field must be the same in a model and its store
 * (store_check_fingerprint). */
struct store_fingerprint {
    uint8_t encoder[16];                 /* XXH3-128 of the weights that make a landmark, in a fixed order */
    uint8_t tokenizer[16];               /* XXH3-128 of tokenizer.json */
    int32_t chunk_tokens;                /* ids of a chunk, without its landmark: 63 or 64 */
    int32_t dim;                         /* of a landmark; 0 in a store without landmarks, whose `encoder` is zero */
    int32_t vocab_size;
    int32_t metric;                      /* 0: inner product, scores divided by sqrt(dim) */
};
/* STATUS_MISMATCH: the message names the first field that differs, with both values. */
enum status store_check_fingerprint(const char *store, const struct store_fingerprint *a, const char *model,
                                    const struct store_fingerprint *b);

/* ---- reading ------------------------------------------------------------------------------------------- */
struct store;
struct store_view;

/* Opens a store for reading, also on read-only media and while a writer is active. STATUS_NOT_FOUND: there is no store.
 * STATUS_VERSION: its format is newer. STATUS_CORRUPT: a recorded file is missing or has another size. For stores of up
 * to 4096 shards this call checks the sizes. In larger stores a size is checked by the first call that needs the file,
 * and by store_verify. */
enum status store_open(struct store **out, const char *dir);
void store_close(struct store *s);                        /* call after closing its views; NULL is fine */

/* Opens a view of the newest generation. It reads no large files. Calls that need a shard map it. At most 8192 files of
 * each kind are mapped at a time, so a view can read any number of shards. */
enum status store_view_open(struct store_view **out, struct store *s);
void store_view_close(struct store_view *v);              /* NULL is fine */

struct store_info {
    struct store_fingerprint fingerprint;
    int format;                          /* at most STORE_FORMAT_VERSION */
    enum store_landmarks landmarks;      /* F16, I8 or NONE */
    uint64_t generation;
    int64_t chunks, documents, tokens;   /* including dropped and deleted ones: all ids are below these counts */
    /* in dropped shards; the first three include deleted documents */
    int64_t dropped_chunks, dropped_documents, dropped_tokens, dropped_shards;
    int64_t deleted_chunks, deleted_documents, deleted_tokens;
    int64_t shards, segments;            /* shards: pairs of files */
    int64_t duplicates;                  /* documents that published runs skipped as exact copies */
    uint64_t token_bytes, landmark_bytes, index_bytes, catalog_bytes;
    bool frozen;                         /* the store is an immutable snapshot (store/change/freeze.h) */
    bool lexical;                        /* the store has a lexical index, which may be damaged */
    int64_t lexical_segments;
    uint64_t lexical_bytes;
    char index[256];                     /* "exact", or the FAISS factory string */
    bool index_chosen;                   /* the user chose it, and "auto" keeps it */
};
void store_view_info(const struct store_view *v, struct store_info *out);
const char *store_view_path(const struct store_view *v);  /* the store's folder, for messages; borrowed */
/* Computes a number that is the same in views of the same generation of one store or of copies of it. It covers the
 * fingerprint, the counts, deleted chunks, the index's files and a sample of the documents' hashes. Another store has
 * the same number only by chance. Hosts of different byte orders compute different numbers. */
enum status store_view_identity(struct store_view *v, uint64_t *out);
/* The caller's bytes of the last published shard (store_shard_seal). */
enum { STORE_CURSOR_MAX = 4096 };
enum status store_view_cursor(struct store_view *v, uint8_t cursor[STORE_CURSOR_MAX], size_t *bytes);

struct store_range { int64_t begin, end; };               /* chunk ids; begin == end: none */
/* Chunk ids of dropped shards and deleted documents: ascending ranges that do not touch; `before`: number of ids in the
 * ranges before this one. They are borrowed from the view, and constant while it is open. All other ids below
 * info.chunks exist. The functions use binary search. */
struct store_hole { int64_t begin, end, before; };
struct store_dropped { const struct store_hole *ranges; int64_t n; };
struct store_dropped store_view_dropped(const struct store_view *v);
int64_t store_dropped_nth(struct store_dropped d, int64_t rank);         /* id of the chunk with this rank, from 0 */
int64_t store_dropped_rank(struct store_dropped d, int64_t chunk);       /* existing chunks with a smaller id */
bool store_dropped_live(struct store_dropped d, int64_t chunk);         /* whether the chunk exists */
/* Returns the first run of existing ids in begin .. end-1. */
struct store_range store_dropped_span(struct store_dropped d, int64_t begin, int64_t end);

struct store_document {
    int64_t id, first_chunk, chunks, tokens;
    uint64_t offset, line, bytes;        /* position in the source; bytes of its text (0: the input was tokens) */
    uint8_t hash[16];                    /* XXH3-128 of the text (or of the ids) */
    /* borrowed from the view until its next call of store_view_document or store_view_chunk */
    const char *source, *key;
};
/* STATUS_NOT_FOUND, here and in the calls below: the document was deleted, or is of a dropped shard. Its chunks are
 * missing, too. */
enum status store_view_document(struct store_view *v, struct store_document *out, int64_t document);
/* Finds the document with this content hash; -1: the view has none, or a later generation lacks it. */
enum status store_view_find_document(struct store_view *v, int64_t *document, const uint8_t hash[16]);

struct store_chunk {
    int64_t id, document, in_document;   /* in_document: number of the chunk in its document */
    int64_t token_offset;                /* of its first token in the document */
    int n_tokens;                        /* <= chunk_tokens */
};
/* Gets the position and the ids of a chunk: ids[chunk_tokens]. After the last id of a short chunk, the rest is -1. */
enum status store_view_chunk(struct store_view *v, struct store_chunk *out, int32_t *ids, int64_t chunk);
/* The same, from the chunk's id `offset` on: the ids extend into the next chunk of the document. n_tokens may be 0. */
enum status store_view_ids(struct store_view *v, struct store_chunk *out, int32_t *ids, int64_t chunk, int offset);
/* Gets the ids [n, length] from the first one of each of n chunks on; they extend into the next chunks of its document,
 * -1 after its end. Chunks below 0 are skipped. */
enum status store_view_passages(struct store_view *v, int32_t *ids, int length, const int64_t *chunks, int64_t n);
/* STATUS_UNSUPPORTED: the store has no landmarks. Calls below that read or search landmarks then return this, too. */
enum status store_view_needs_landmarks(const struct store_view *v);
/* Gets the chunk's landmark as stored: out[dim]. */
enum status store_view_landmark(struct store_view *v, float *out, int64_t chunk);
/* Gets rows as stored, from chunk `first` to the end of its file or to the next dropped chunk. They stay mapped until
 * the next call on this view. */
enum status store_view_landmark_rows(struct store_view *v, struct store_rows *rows, int64_t first);

/* ---- searching ----------------------------------------------------------------------------------------- */
struct store_hit { int64_t chunk; float score; };         /* chunk -1: fewer than k were found; score = q.l/sqrt(dim) */
/* Restricts a search to one slice, if several processes search together. Each chunk and each segment of the index of a
 * generation is in exactly one of the slices 0 .. of-1. of 0: searches everything. */
struct store_slice { int number, of; };
struct store_search {
    int k;
    bool exact;                          /* scan all landmark rows instead of the index */
    int nprobe;                          /* IVF lists to visit; 0: the view's default */
    int candidates;                      /* candidates from the index for exact scoring; 0: a default of at least 4*k */
    const struct store_range *exclude;   /* [n_queries] chunks that are never returned, or NULL */
    struct threads *threads;             /* NULL: the calling thread only */
    /* if set, a search of the index visits `nprobe` lists, and does not visit more when it finds too few hits */
    struct store_slice slice;
    /* 0: finds hits. From 1: finds the k best candidates of this segment in the slice's share of its lists, with the
     * scores of their codes (store_passes) */
    int segment;
};
/* Queries have no larger components: a product with landmarks of any type is then a finite number. */
#define STORE_QUERY_MAX 1e28F
/* Writes hits[n_queries * k], best first; ties by smaller id. Scores are always computed from the stored rows in
 * float32. So an index can miss a chunk, but it cannot change a score. */
enum status store_view_search(struct store_view *v, struct store_hit *hits, const float *queries, int64_t n_queries,
                              const struct store_search *how);
/* Gives the same hits as store_view_search, but other processes search. A pass is one search in all slices
 * (store_search.slice); the caller's function merges their hits by score, then by smaller id, and returns the k best.
 * Queries with too few hits get further passes. Every slice must be of this view's generation. If one segment of 8-bit
 * codes has most of the chunks, the slices share its lists instead of whole segments. A pass then finds candidates
 * (store_search.segment), and this process scores them. */
struct store_passes {
    enum status (*search)(void *context, struct store_hit *hits, const float *queries, int64_t n_queries,
                          const struct store_search *how);
    void *context;
    int k_max;                           /* the most hits of a pass; 0: the slices share whole segments */
};
enum status store_view_search_passes(struct store_view *v, struct store_hit *hits, const float *queries,
                                     int64_t n_queries, const struct store_search *how,
                                     const struct store_passes *passes);
/* How many of one query's k hits are missing although the view has k chunks outside `exclude` (NULL: none). A search of
 * the index that finds too few hits visits more lists, up to all. Hits that are still missing are found only by an
 * exact search. */
int store_view_missing(const struct store_view *v, const struct store_hit *hits, int k,
                       const struct store_range *exclude);
/* Computes scores[n] of given chunks for one query. They equal those of store_view_search bit for bit. Ids that the
 * view does not have get -infinity. */
enum status store_view_scores(struct store_view *v, float *scores, const float *query, const int64_t *chunks,
                              int64_t n);
/* Returns the view's lexical index (store/lexical/lexical.h), borrowed. STATUS_UNSUPPORTED: the store has none. Any
 * other failure: its files are damaged or unreadable; other calls on the view still work. The messages name the command
 * that repairs it. */
struct lexical;
enum status store_view_lexical(const struct lexical **out, const struct store_view *v);
/* Tells whether such a search scans all rows, or how many lists of the index a query visits (0 of 0: no index). */
struct store_search_method { bool exact; int64_t visited, lists; };
struct store_search_method store_view_search_method(const struct store_view *v, const struct store_search *how);

/* ---- writing ------------------------------------------------------------------------------------------- */
struct store_writer;
struct store_writer_config {
    struct store_fingerprint fingerprint;                 /* of a new store; an existing store's must match */
    uint64_t max_catalog_bytes;          /* LMDB map: address space, not disk; 0: 64 GiB, or what ulimit -v allows */
    enum store_landmarks landmarks;      /* of a new store; an existing store's must match; KEEP: the existing type */
    /* bytes of memory for ids and landmarks until their shard is sealed. The threads that seal then write them. */
    uint64_t held_bytes;
};
/* Opens the store for writing (`create`: makes the directory if it is missing): takes the lock and removes orphan
 * files. STATUS_BUSY: another process writes. */
enum status store_writer_open(struct store_writer **out, const char *dir, const struct store_writer_config *config,
                              bool create);
void store_writer_close(struct store_writer *w);          /* sealed shards stay in the journal; NULL is fine */
/* Closes the writer after a failure. If it created the store and nothing is sealed, the store is removed. Files and
 * folders that were there before stay. */
void store_writer_abandon(struct store_writer *w);        /* NULL is fine */

/* The journal: totals of all sealed shards, and the caller's `cursor` of the last one. */
struct store_journal {
    uint64_t generation;                 /* the published generation; 0: none */
    int64_t shards, documents, chunks, duplicates;
    uint8_t cursor[STORE_CURSOR_MAX];
    size_t cursor_bytes;
};
enum status store_writer_journal(struct store_writer *w, struct store_journal *out);
/* Drops all sealed, unpublished shards, for a build that begins again. */
enum status store_writer_drop_journal(struct store_writer *w);

/* A shard contains whole documents. Order of calls: store_shard_begin; store_shard_document with the ids;
 * store_shard_landmarks with rows in chunk order (after the ids, in any number of calls); store_shard_seal, which syncs
 * both files, then records them in the journal in one LMDB transaction. */
struct store_new_document {
    const int32_t *ids; size_t n_ids;
    const char *source, *key;
    uint64_t offset, line, bytes;
    uint8_t hash[16];
    /* Skips the check for duplicates. Only documents in store_publish.replaced may then have this hash. */
    bool unchecked;
};
enum status store_shard_begin(struct store_writer *w);
/* Adds a document. If the store already has a document with this hash, *duplicate is true, nothing is added, and the
 * result is STATUS_OK. */
enum status store_shard_document(struct store_writer *w, const struct store_new_document *d, bool *duplicate);
int64_t store_shard_chunks(const struct store_writer *w); /* number of chunks of the open shard */
enum status store_shard_landmarks(struct store_writer *w, const float *rows, int64_t n);
enum status store_shard_seal(struct store_writer *w, const void *cursor, size_t cursor_bytes);

/* Sealing while later shards are made. store_shard_end, in place of store_shard_seal, ends the open shard; the pointer
 * from store_shard_open remains valid. store_shard_rows adds landmarks before the end or after it. After the last ones
 * store_shard_complete gives the shard to threads of the writer, which seal it. The journal has the shards in the order
 * of their ends. store_shard_rows and store_shard_complete may be called by one other thread, in the order of the
 * shards. store_shard_complete waits while several shards are being sealed. Each later call of store_shard_end,
 * store_shard_complete and store_writer_wait returns the first failure to seal. */
struct store_shard;
struct store_shard *store_shard_open(struct store_writer *w);
enum status store_shard_end(struct store_writer *w, const void *cursor, size_t cursor_bytes);
enum status store_shard_rows(struct store_shard *s, const float *rows, int64_t n);
/* The same for rows that are fp16 already, of a shard that stores fp16. */
enum status store_shard_halves(struct store_shard *s, const uint16_t *rows, int64_t n);
bool store_shard_is_f16(const struct store_shard *s);
enum status store_shard_complete(struct store_shard *s);
/* Waits until every ended shard is sealed. Each must be complete, or the other thread must be about to complete it. */
enum status store_writer_wait(struct store_writer *w);
void store_shard_discard(struct store_writer *w);
/* Discards an open shard in which all documents were duplicates. The next published generation counts them. */
void store_shard_discard_duplicates(struct store_writer *w);

/* Replaces FAISS's clustering for an inverted file's lists (fit NULL: FAISS clusters). fit writes centroids [lists,
 * dim] of length 1, for the inner product with rows [n, dim], n >= lists; equal rows must give equal centroids. It
 * reports to `progress` and stops when `progress` requests it. If it returns STATUS_NO_MEMORY, FAISS clusters
 * instead. */
struct store_clustering {
    enum status (*fit)(void *context, float *centroids, const float *rows, int64_t n, int dim, int64_t lists,
                       const struct progress *progress);
    void *context;
};
/* Publishes all sealed shards in one LMDB transaction, after making the index and the lexical index over the chunks
 * that no segment covers. `index`: "auto", "exact", or a FAISS factory string. With "auto" an existing store keeps an
 * index that its user chose. STATUS_INVALID, before any work: the working memory would exceed max_ram; the message has
 * the nearest choice that works. */
enum store_lexical_choice {
    STORE_LEXICAL_KEEP,                  /* as the newest generation; a new store gets none */
    /* makes one if the vocabulary is small enough (LEXICAL_VOCAB_MAX); otherwise writes a note */
    STORE_LEXICAL_ON,
    STORE_LEXICAL_OFF,                   /* removes an existing lexical index */
};
struct store_publish {
    const char *index;
    bool index_later;                    /* in place of `index`: none now; "auto" of a later publication selects one */
    enum store_lexical_choice lexical;   /* whether the generation has a lexical index of its chunks */
    int64_t lexical_chunks;              /* the most chunks of a lexical segment; 0: 2^24 */
    uint64_t max_ram;                    /* for this call's own buffers, in bytes; 0: 1 GiB */
    /* After publishing, merges files of small adjacent shards up to this many chunks; 0: does not merge */
    int64_t merge_chunks;
    uint64_t seed;                       /* of the training sample */
    struct threads *threads;
    const struct progress *progress;
    struct store_clustering clustering;
    struct store_assignment assignment;  /* store/index/assign_rows.h; for the types that it can assign */
    /* for store_writer_publish: published documents, ascending, that the same transaction deletes, as store_delete
     * does */
    const int64_t *replaced; int64_t n_replaced;
};
static inline uint64_t store_publish_max_ram(const struct store_publish *how) {
    return how->max_ram ? how->max_ram : UINT64_C(1) << 30;
}
enum status store_writer_publish(struct store_writer *w, const struct store_publish *how);
/* STATUS_INVALID: no store with `dim` dimensions can have the index `wanted` (NULL: "auto"), whatever its size. Call it
 * before work that a wrong name would waste. */
enum status store_index_check(const char *wanted, int dim);
/* Makes the lexical index while documents are added, by `threads` threads of its own: for a store in which nothing is
 * published, and which will be published with STORE_LEXICAL_ON. The shards sealed so far are included. The index has
 * the same bytes as without this call. No shard may be open. max_ram: memory until store_writer_publish. yielding: the
 * threads get less time than those that make landmarks. */
enum status store_writer_follow(struct store_writer *w, uint64_t max_ram, int threads, bool yielding);
/* No more documents are added before store_writer_publish: that index is completed while the last landmarks are made.
 * Returns at once. Without store_writer_follow it does nothing. */
void store_writer_follow_end(struct store_writer *w);
/* Makes (how->lexical STORE_LEXICAL_ON) or removes (OFF) the lexical index of the published generation, in one
 * transaction that makes a new generation. Does nothing if it exists, or is absent, before the call. Memory as in
 * store_writer_publish. STATUS_INTERRUPTED: stopped; the store is unchanged. STATUS_UNSUPPORTED: the vocabulary is too
 * large. */
enum status store_lexical(const char *dir, const struct store_publish *how);

/* ---- checking ------------------------------------------------------------------------------------------ */
/* Called for each problem; `remedy` is a sentence such as "run drt-index repair" (never NULL). */
typedef void store_problem(void *context, const char *file, const char *problem, const char *remedy);
/* Checks names, sizes and the consistency of records; with `deep` also every byte against its CRC32C, and every record
 * against its neighbours. *problems: their number. The result is STATUS_OK also if there are problems. */
enum status store_verify(const char *dir, bool deep, const struct progress *p, store_problem *problem, void *context,
                         int64_t *problems);
/* Makes landmarks from tokens: rows [n, dim] from ids [n, chunk_tokens]. After the last id of a short chunk, the rest
 * is -1. */
struct store_encoder {
    /* if it differs from the store's: STATUS_MISMATCH, and nothing is changed */
    struct store_fingerprint fingerprint;
    enum status (*encode)(void *context, float *rows, const int32_t *ids, int64_t n);
    void *context;
};
/* An `encode` that does nothing, for a store without landmarks. */
enum status store_encode_nothing(void *context, float *rows, const int32_t *ids, int64_t n);
/* Rebuilds derived data (index, template, lexical index, document hashes), removes orphan files, and reports what
 * cannot be rebuilt (tokens: store_drop). With an encoder (NULL: none) it also makes damaged and missing landmarks
 * again from their tokens. If the new bytes differ from the recorded ones, it writes a note, and one transaction
 * records the new landmarks together with an index made from them. *problems: number of problems that remain. */
enum status store_repair(const char *dir, const struct store_publish *how, const struct store_encoder *encoder,
                         store_problem *problem, void *context, int64_t *problems);

/* Drops published shards in one transaction: no search finds their documents, which may be added again under new ids.
 * The ids of all other chunks and documents stay. Shards that were dropped before are skipped, so the call can be
 * repeated. STATUS_NOT_FOUND: there is no such shard. STATUS_INVALID: it is not published. An open view can read the
 * shard while it has the shard's files mapped. When it needs a removed file, it treats the shard as dropped. */
struct store_drop {
    const struct store_range *ranges; int64_t n_ranges;   /* numbers of shards */
    bool dry_run;                        /* only reports; nothing is changed */
    struct store_publish publish;        /* for the segments from the first dropped shard on, which are rebuilt */
    /* called for each document of the shards; may be NULL */
    void (*document)(void *context, int64_t shard, const struct store_document *d);
    void *context;
};
/* Counts over all shards in the ranges. */
struct store_drop_report { int64_t shards, documents, chunks, tokens; uint64_t generation; };
enum status store_drop(struct store_drop_report *out, const char *dir, const struct store_drop *how);

/* Deletes published documents in one transaction. Views that are opened later lack them and their chunks, no search
 * finds them, and their text may be added again under new ids. Open views keep them. The ids of all other chunks and
 * documents stay, and files keep their sizes. Documents that are deleted already or are of dropped shards are skipped.
 * STATUS_NOT_FOUND: there is no document of that number. */
struct store_delete {
    const int64_t *documents; int64_t n_documents;        /* ids; used without sources and keys */
    const char *const *sources; int n_sources;            /* patterns of fnmatch(3) for a document's source */
    bool dry_run;                        /* only reports; nothing is changed */
    /* called for each document; may be NULL */
    void (*document)(void *context, int64_t shard, const struct store_document *d);
    void *context;
    const struct progress *progress;     /* NULL is fine */
    /* whole keys, in any order; with sources too, only documents that have both are deleted */
    const char *const *keys; int n_keys;
};
struct store_delete_report { int64_t documents, chunks, tokens; uint64_t generation; };
enum status store_delete(struct store_delete_report *out, const char *dir, const struct store_delete *how);

/* Makes a new store in folder `to` from the documents of the newest view of `from`. Deleted documents and dropped
 * shards are left out. The others get new ids in the same order. Their landmarks are kept as stored, or rounded to
 * another type. Keys of a token memory are copied, if there are those of all chunks. `from` is only read. A killed or
 * stopped call can be repeated. STATUS_MISMATCH: `to` contains something else. STATUS_INVALID: no document is left. */
enum { STORE_COMPACT_SHARD = 16384 };
struct store_compact {
    int64_t shard_chunks;                /* chunks of a shard; 0: STORE_COMPACT_SHARD */
    enum store_landmarks landmarks;      /* of `to`; KEEP: as `from` */
    struct store_publish publish;        /* index NULL: that chosen for `from`, or "auto"; lexical KEEP: as `from` */
};
/* tokens: read by this call; keys_chunks: chunks of `to` with keys of a token memory */
struct store_compact_report { int64_t documents, chunks, tokens, keys_chunks; };
enum status store_compact(struct store_compact_report *out, const char *from, const char *to,
                          const struct store_compact *how);

/* ---- the linked FAISS ---------------------------------------------------------------------------------- */
/* simd: the instruction set that its scan code was built for */
struct store_faiss_info { char version[32], simd[64]; double scan_mb_s; };
enum status store_faiss_info(struct store_faiss_info *out);
const char *store_faiss_version(void);   /* does not measure */
