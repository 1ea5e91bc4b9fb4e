/* store.h -- chunks of a corpus on disk, searched by vector.
 *
 * A store is one directory:
 *   catalog/             LMDB: the only commit point. What is not recorded there does not exist. catalog/commit: a
 *                        checksummed copy of its meta pages
 *   tokens/NNNNN.tok     token shards: the documents' ids (u16, or u32 when the vocabulary needs it)
 *   landmarks/NNNNN.f16  landmark shards: one fp16 row of `dim` per chunk, row = chunk id - the shard's first id
 *                        (NNNNN-NNNNN.tok and .f16: shards that were merged, from the first number to the last)
 *   index/NNNNN.faiss    FAISS segments and the trained template they share; derived, can be rebuilt
 *   lexical/NNNNN.lex    segments of the lexical index (store/lexical/lexical.h), where the store has one; derived, too
 * Data files are immutable: written under a temporary name, synced, renamed, then recorded (name, bytes, CRC32C,
 * id range). Files without a record are orphan files; the next writer removes them.
 *
 * A document is `chunks` contiguous chunk ids; a run record {first chunk id -> document, token shard, token
 * offset, chunks} finds any chunk's tokens with one lookup. The last chunk of a document may be short.
 *
 * A generation is what one publishing transaction made visible: {chunks, documents, shards, segments}. A view
 * sees exactly one. Sealed shards that are not published yet are the journal: a resumed writer continues after them.
 *
 * One writer (an flock; a second gets STATUS_BUSY), any number of reading processes. A struct store_view is for
 * one thread at a time; several views of one store may be used by several threads. A process opens one store once at
 * a time, as struct store or as struct store_writer (LMDB's rule: its file locks belong to the process). */
#pragma once
#include "base/progress.h"
#include "base/status.h"
#include "base/system/threads.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STORE_FORMAT_VERSION = 4, STORE_NAME_MAX = 64 };

/* What the vectors were computed with. Every field must be equal in a model and its store (store_check_fingerprint). */
struct store_fingerprint {
    uint8_t encoder[16];                 /* XXH3-128 of the weights that make a landmark, in fixed order */
    uint8_t tokenizer[16];               /* XXH3-128 of tokenizer.json */
    int32_t chunk_tokens;                /* ids a chunk without its landmark: 63 or 64 */
    int32_t dim;                         /* of a landmark */
    int32_t vocab_size;
    int32_t metric;                      /* 0: inner product, scores divided by sqrt(dim) */
};
/* STATUS_MISMATCH with both values of the first field that differs. */
enum status store_check_fingerprint(const char *store, const struct store_fingerprint *a, const char *model,
                                    const struct store_fingerprint *b);

/* ---- reading ------------------------------------------------------------------------------------------- */
struct store;
struct store_view;

/* Opens for reading: works on read-only media and while a writer is at work. STATUS_VERSION for a newer format,
 * STATUS_NOT_FOUND when there is none, STATUS_CORRUPT when a recorded file is missing or has another size. In
 * stores of up to 4096 shards this call checks the sizes; in larger ones the first call that needs the file, and
 * store_verify. */
enum status store_open(struct store **out, const char *dir);
void store_close(struct store *s);                        /* after its views; NULL is fine */

/* The newest generation. Reads nothing large: the calls that need a shard map it, at most 8192 files of each kind at
 * a time, so a view can read any number of shards. */
enum status store_view_open(struct store_view **out, struct store *s);
void store_view_close(struct store_view *v);              /* NULL is fine */

struct store_info {
    struct store_fingerprint fingerprint;
    int format;                          /* at most STORE_FORMAT_VERSION */
    uint64_t generation;
    int64_t chunks, documents, tokens;   /* with dropped ones: all ids are below these counts */
    int64_t dropped_chunks, dropped_documents, dropped_tokens, dropped_shards;            /* with deleted ones */
    int64_t deleted_chunks, deleted_documents, deleted_tokens;
    int64_t shards, segments;            /* shards: pairs of files */
    int64_t duplicates;                  /* documents skipped as exact copies by all runs that published something */
    uint64_t token_bytes, landmark_bytes, index_bytes, catalog_bytes;
    bool frozen;                         /* a snapshot that nothing changes (store/change/freeze.h) */
    bool lexical;                        /* it has a lexical index, damaged or not */
    int64_t lexical_segments;
    uint64_t lexical_bytes;
    char index[256];                     /* "exact", or the FAISS factory string */
};
void store_view_info(const struct store_view *v, struct store_info *out);
/* A number that views share when they are of the same generation of one store or of copies of it: of the fingerprint,
 * the counts, deleted chunks, the index's files and a sample of the documents' hashes. Other stores share it by chance
 * alone. Not for comparing across hosts of other byte orders. */
enum status store_view_identity(struct store_view *v, uint64_t *out);
/* The caller's bytes that were sealed with the last published shard (see store_shard_seal). */
enum { STORE_CURSOR_MAX = 4096 };
enum status store_view_cursor(struct store_view *v, uint8_t cursor[STORE_CURSOR_MAX], size_t *bytes);

struct store_range { int64_t begin, end; };               /* chunk ids; begin == end: none */
/* Chunk ids of dropped shards and deleted documents: ranges that rise and do not touch; before: ids in the ranges
 * before this one. Borrowed from the view; they do not change while it is open. All other ids below info.chunks
 * exist. The functions search in halves. */
struct store_hole { int64_t begin, end, before; };
struct store_dropped { const struct store_hole *ranges; int64_t n; };
struct store_dropped store_view_dropped(const struct store_view *v);
int64_t store_dropped_nth(struct store_dropped d, int64_t rank);         /* id of the chunk with this rank, from 0 */
int64_t store_dropped_rank(struct store_dropped d, int64_t chunk);       /* existing chunks with a smaller id */
bool store_dropped_there(struct store_dropped d, int64_t chunk);         /* exists: no range has it */
/* The first run of existing ids in begin .. end-1. */
struct store_range store_dropped_span(struct store_dropped d, int64_t begin, int64_t end);

struct store_document {
    int64_t id, first_chunk, chunks, tokens;
    uint64_t offset, line, bytes;        /* position in the source, bytes of its text (0: input was tokens) */
    uint8_t hash[16];                    /* XXH3-128 of the text (or of the ids) */
    const char *source, *key;            /* borrowed from the view until its next store_view_document/_chunk call */
};
/* Deleted documents, and those of a dropped shard, are STATUS_NOT_FOUND with their chunks, here and in the calls
 * below. */
enum status store_view_document(struct store_view *v, struct store_document *out, int64_t document);
/* The document with this content hash; -1: there is none in the view. */
enum status store_view_find_document(struct store_view *v, int64_t *document, const uint8_t hash[16]);

struct store_chunk {
    int64_t id, document, in_document;   /* in_document: number of the chunk in its document */
    int64_t token_offset;                /* of its first token in the document */
    int n_tokens;                        /* <= chunk_tokens */
};
/* Position and ids of a chunk: ids[chunk_tokens], where -1 fills the tail of a short chunk. */
enum status store_view_chunk(struct store_view *v, struct store_chunk *out, int32_t *ids, int64_t chunk);
/* The chunk's landmark, exactly as stored. out[dim]. */
enum status store_view_landmark(struct store_view *v, float *out, int64_t chunk);
/* fp16 rows [*n, dim] as stored, from chunk `first` to the end of its file or to the next dropped chunk. They stay
 * mapped until the next call on this view. */
enum status store_view_landmark_rows(struct store_view *v, const uint16_t **rows, int64_t *n, int64_t first);

/* ---- searching ----------------------------------------------------------------------------------------- */
struct store_hit { int64_t chunk; float score; };         /* chunk -1: fewer than k were found; score = q.l/sqrt(dim) */
/* What one of several processes that search together searches: each chunk and each segment of the index is in one of
 * the slices 0 .. of-1 of a generation. of 0: all is searched. */
struct store_slice { int number, of; };
struct store_search {
    int k;
    bool exact;                          /* scan all landmark rows instead of the index */
    int nprobe;                          /* IVF lists to visit; 0: the view's default */
    int candidates;                      /* that the index gives for exact re-scoring; 0: a default >= 4*k */
    const struct store_range *exclude;   /* [n_queries] chunks never to be returned, or NULL */
    struct threads *threads;             /* NULL: this thread */
    struct store_slice slice;            /* of its index the lists that `nprobe` says are visited, and no more */
};
/* hits[n_queries * k], best first; ties by smaller id. Scores are always computed from the fp16 rows in float32:
 * the index can lose a neighbour, never change a score. */
enum status store_view_search(struct store_view *v, struct store_hit *hits, const float *queries, int64_t n_queries,
                              const struct store_search *how);
/* The same hits, where other processes search: a pass gives the k best of all slices (store_search.slice), which the
 * caller merges by score, then by smaller id. Further passes follow for queries with too few hits. Every slice must be
 * of this view's generation. */
struct store_passes {
    enum status (*search)(void *context, struct store_hit *hits, const float *queries, int64_t n_queries,
                          const struct store_search *how);
    void *context;
};
enum status store_view_search_passes(struct store_view *v, struct store_hit *hits, const float *queries,
                                     int64_t n_queries, const struct store_search *how,
                                     const struct store_passes *passes);
/* How many of the k hits of one query are missing although the view has k chunks outside `exclude` (NULL: none). A
 * search of the index that finds too few visits more lists, up to all. Only an exact search finds what is missing after
 * that. */
int store_view_missing(const struct store_view *v, const struct store_hit *hits, int k,
                       const struct store_range *exclude);
/* scores[n] of given chunks for one query, bit for bit those of store_view_search; -infinity for ids that the view does
 * not have. */
enum status store_view_scores(struct store_view *v, float *scores, const float *query, const int64_t *chunks,
                              int64_t n);
/* The view's lexical index (store/lexical/lexical.h), borrowed. STATUS_UNSUPPORTED: the store has none. STATUS_CORRUPT
 * or another failure of its files: the view opened all the same, and its other calls work. The messages name the
 * command that helps. */
struct lexical;
enum status store_view_lexical(const struct lexical **out, const struct store_view *v);
/* Whether such a search scans all rows, or how many lists of the index a query visits (0 of 0: it has none). */
struct store_search_method { bool exact; int64_t visited, lists; };
struct store_search_method store_view_search_method(const struct store_view *v, const struct store_search *how);

/* ---- writing ------------------------------------------------------------------------------------------- */
struct store_writer;
struct store_writer_config {
    struct store_fingerprint fingerprint;                 /* of a new store; of an old one it must match */
    uint64_t max_catalog_bytes;          /* LMDB map: address space, not disk; 0: 64 GiB, or what ulimit -v leaves */
};
/* Opens the one writer (`create`: makes dir): takes the lock, removes orphan files. */
enum status store_writer_open(struct store_writer **out, const char *dir, const struct store_writer_config *config,
                              bool create);
void store_writer_close(struct store_writer *w);          /* sealed shards stay in the journal; NULL is fine */

/* The journal: totals of all sealed shards, and `cursor` of the last one, which are the caller's own bytes. */
struct store_journal {
    uint64_t generation;                 /* the published one; 0: none */
    int64_t shards, documents, chunks, duplicates;
    uint8_t cursor[STORE_CURSOR_MAX];
    size_t cursor_bytes;
};
enum status store_writer_journal(struct store_writer *w, struct store_journal *out);
/* Drops all sealed, unpublished shards: for a build that starts again. */
enum status store_writer_drop_journal(struct store_writer *w);

/* A shard has whole documents. Calls: begin; document, with the ids; landmarks, with rows in chunk order (later than
 * the ids, in any number of calls); seal, which syncs both files, then journals them in one LMDB transaction. */
struct store_new_document {
    const int32_t *ids; size_t n_ids;
    const char *source, *key;
    uint64_t offset, line, bytes;
    uint8_t hash[16];
    bool unchecked;                      /* no duplicate: only documents of store_publish.replaced have this hash */
};
enum status store_shard_begin(struct store_writer *w);
/* STATUS_OK with *duplicate true, and nothing added, when the store has a document with this hash. */
enum status store_shard_document(struct store_writer *w, const struct store_new_document *d, bool *duplicate);
int64_t store_shard_chunks(const struct store_writer *w); /* of the open shard so far */
enum status store_shard_landmarks(struct store_writer *w, const float *rows, int64_t n);
enum status store_shard_seal(struct store_writer *w, const void *cursor, size_t cursor_bytes);
void store_shard_discard(struct store_writer *w);
/* Discards an open shard that has only duplicates; the next published generation counts them. */
void store_shard_discard_duplicates(struct store_writer *w);

/* Computes the centroids of an inverted file's lists instead of FAISS (fit NULL: FAISS does). fit writes centroids
 * [lists, dim] of length 1, for the inner product with rows [n, dim], n >= lists: equal rows give equal centroids. It
 * reports to `progress` and stops when that requests it. Where it returns STATUS_NO_MEMORY, FAISS computes them. */
struct store_clustering {
    enum status (*fit)(void *context, float *centroids, const float *rows, int64_t n, int dim, int64_t lists,
                       const struct progress *progress);
    void *context;
};
/* Makes the index over all sealed chunks that no segment covers, and the lexical index likewise. Publishes everything
 * sealed in one LMDB transaction. `index`: "auto", "exact", or a FAISS factory string; an old store's own string is
 * kept when "auto". Working memory stays within max_ram; STATUS_INVALID before any work when it cannot, with the
 * nearest choice. */
enum store_lexical_choice {
    STORE_LEXICAL_KEEP,                  /* as the newest generation: a new store gets none */
    STORE_LEXICAL_ON,                    /* where the vocabulary is small enough (LEXICAL_VOCAB_MAX); else a note */
    STORE_LEXICAL_OFF,                   /* an index that is there is removed */
};
struct store_publish {
    const char *index;
    enum store_lexical_choice lexical;   /* whether the generation has a lexical index of its chunks */
    int64_t lexical_chunks;              /* of one of its segments at most; 0: 2^24 */
    uint64_t max_ram;                    /* bytes for this call's own buffers; 0: 1 GiB */
    /* afterwards merges files of small neighbouring shards up to so many chunks; 0: no */
    int64_t merge_chunks;
    uint64_t seed;                       /* of the training sample */
    struct threads *threads;
    const struct progress *progress;
    struct store_clustering clustering;
    /* store_writer_publish: published documents that the same transaction deletes, rising, as store_delete does */
    const int64_t *replaced; int64_t n_replaced;
};
enum status store_writer_publish(struct store_writer *w, const struct store_publish *how);
/* Makes (how->lexical STORE_LEXICAL_ON) or removes (OFF) the lexical index of the published generation, in one
 * transaction that makes a new one. Does nothing where it is so already. Memory as in store_writer_publish. After
 * STATUS_INTERRUPTED the store is as before. STATUS_UNSUPPORTED: the vocabulary is too large. */
enum status store_lexical(const char *dir, const struct store_publish *how);

/* ---- checking ------------------------------------------------------------------------------------------ */
/* Called for each thing found; `remedy` is a sentence such as "run drt-index repair" (never NULL). */
typedef void store_problem(void *context, const char *file, const char *problem, const char *remedy);
/* Names, sizes and record consistency; `deep`: every byte against its CRC32C, and every record against its
 * neighbours. *problems counts. STATUS_OK also when problems were found. */
enum status store_verify(const char *dir, bool deep, const struct progress *p, store_problem *problem, void *context,
                         int64_t *problems);
/* Makes landmarks from tokens: rows [n, dim] of ids [n, chunk_tokens], where -1 fills a short chunk. */
struct store_encoder {
    struct store_fingerprint fingerprint;                 /* else STATUS_MISMATCH, and nothing is changed */
    enum status (*encode)(void *context, float *rows, const int32_t *ids, int64_t n);
    void *context;
};
/* Rebuilds what is derived (index, template, lexical index, document hashes), removes orphan files, and reports what
 * cannot be rebuilt (tokens: store_drop). With an encoder (NULL: none) it computes damaged and missing landmarks from
 * their tokens again. Where the bytes differ from those recorded it writes a note, and one transaction records them
 * with the index made from them. *problems counts what is left. */
enum status store_repair(const char *dir, const struct store_publish *how, const struct store_encoder *encoder,
                         store_problem *problem, void *context, int64_t *problems);

/* Removes published shards from the store in one transaction: no search finds their documents, which may be added again
 * under new ids. Ids of all other chunks and documents stay. The call changes nothing in a shard that was dropped
 * before, so it can be repeated. STATUS_NOT_FOUND: there is no such shard; STATUS_INVALID: it is not published.
 * A view that is open sees the shard as long as it has the shard's files mapped. Where it needs one that is gone, the
 * chunks of that shard are dropped for it too. */
struct store_drop {
    const struct store_range *ranges; int64_t n_ranges;   /* of shard numbers */
    bool dry_run;                        /* reports, and changes nothing */
    struct store_publish publish;        /* for the segments from the first of the shards on, which are filled again */
    void (*document)(void *context, int64_t shard, const struct store_document *d);  /* for each dropped one, or NULL */
    void *context;
};
/* Counts of all shards in the ranges. */
struct store_drop_report { int64_t shards, documents, chunks, tokens; uint64_t generation; };
enum status store_drop(struct store_drop_report *out, const char *dir, const struct store_drop *how);

/* Takes published documents out of the store in one transaction: views opened from then on do not have them and their
 * chunks, no search finds them, and their text may be added again under new ids. Views that are open keep them. Ids of
 * all other chunks and documents stay, and files keep their sizes. Documents that were deleted before, and those of
 * dropped shards, are passed over. STATUS_NOT_FOUND: there is no document of that number. */
struct store_delete {
    const int64_t *documents; int64_t n_documents;        /* ids; or, where n_sources > 0: */
    const char *const *sources; int n_sources;            /* patterns of fnmatch(3), for a document's source */
    bool dry_run;                        /* reports, and changes nothing */
    void (*document)(void *context, int64_t shard, const struct store_document *d);  /* for each of them, or NULL */
    void *context;
    const struct progress *progress;     /* NULL is fine */
};
struct store_delete_report { int64_t documents, chunks, tokens; uint64_t generation; };
enum status store_delete(struct store_delete_report *out, const char *dir, const struct store_delete *how);

/* Makes a new store in folder `to` of the documents that the newest view of `from` has: without deleted documents and
 * dropped shards, under new ids in the same order, with the landmarks as stored. `from` is only read. A call that was
 * killed or stopped is repeated. STATUS_MISMATCH: `to` holds something else; STATUS_INVALID: no document is left. */
enum { STORE_COMPACT_SHARD = 16384 };
struct store_compact {
    int64_t shard_chunks;                /* chunks of a shard; 0: STORE_COMPACT_SHARD */
    struct store_publish publish;        /* index NULL: that of `from`; lexical KEEP: as `from` */
};
struct store_compact_report { int64_t documents, chunks, tokens; };   /* tokens: those of this call */
enum status store_compact(struct store_compact_report *out, const char *from, const char *to,
                          const struct store_compact *how);

/* ---- the linked FAISS ---------------------------------------------------------------------------------- */
/* simd: what its scan code was built for */
struct store_faiss_info { char version[32], simd[64]; double scan_mb_s; };
enum status store_faiss_info(struct store_faiss_info *out);
const char *store_faiss_version(void);   /* measures nothing */
