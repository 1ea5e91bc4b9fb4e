/* drt.h -- libdrt: a chunk retrieval store and the retrieval language model that reads it. docs/library.md explains it.
 *
 * Errors. A function that can fail returns enum drt_status: DRT_OK (0) or a negative value. drt_message gives the
 * calling thread's last message: one line that names file, position and remedy. Outputs of a failed call are unset.
 * A NULL or a number that a function cannot take is DRT_INVALID. The library does not print, exit, read the
 * environment, install signal handlers or keep global state.
 *
 * Structs that a caller fills begin with `size`, which is sizeof of the struct, so that members can be added at the
 * end. Zero in every other member is the default; where a function takes a pointer to such a struct, NULL is all
 * defaults. Structs that a caller gives to be filled (..._info, drt_report, drt_token) begin with `size`, too. A member
 * that this version of the library does not know and that is not zero is DRT_UNSUPPORTED. Structs without `size` never
 * grow, but those that the library alone makes (drt_document, drt_scores, drt_progress_event, drt_finding).
 *
 * Ownership. Each handle has a function that closes it; all of these accept NULL. Handles may be closed in any order: a
 * handle keeps open what it was made from. What is returned through a pointer to a pointer and is no handle belongs to
 * the caller, who gives it to drt_free. Other pointers in results are borrowed; each comment states until when. Strings
 * and arrays that are arguments are not kept after the call, except where it is stated.
 *
 * Threads. Every function may be called by any thread. Calls that use one model take turns, and so do calls that use
 * one store; calls with different models and stores run at the same time. Three rules are the caller's: a handle is
 * closed when no call uses it; what is borrowed from a session is read before its next call; callbacks do not call the
 * handle that is at work. A child of fork() must not use handles of its parent, nor close them; it opens its own.
 *
 * Text is UTF-8 with its length in bytes; it need not end with a NUL. Text in results does. Ids are int32_t token ids.
 * Chunk and document ids are numbers of the store, from 0. Vectors are rows of `dim` float32. */
#ifndef DRT_H
#define DRT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* functions that share a struct's name, which C++ allows */
#endif
#if defined(__GNUC__)
#define DRT_API __attribute__((visibility("default")))
#define DRT_CALL __attribute__((visibility("default"), warn_unused_result)) enum drt_status
#else
#define DRT_API
#define DRT_CALL enum drt_status
#endif

enum drt_status {
    DRT_OK = 0,
    DRT_IO = -1,           /* open, read, write, sync, rename failed */
    DRT_NO_SPACE = -2,     /* disk full */
    DRT_NO_MEMORY = -3,
    DRT_NOT_FOUND = -4,    /* file, chunk, document */
    DRT_INVALID = -5,      /* an argument or input that is never accepted */
    DRT_CORRUPT = -6,      /* a file of a store or model is damaged */
    DRT_MISMATCH = -7,     /* valid on its own, wrong with the rest, such as a store of another model */
    DRT_VERSION = -8,      /* written by a newer version */
    DRT_BUSY = -9,         /* another writer holds the store, or this process has it open already */
    DRT_UNSUPPORTED = -10, /* valid, and this model, build or machine cannot do it */
    DRT_INTERRUPTED = -11, /* stopped by a callback; builds can be resumed */
    DRT_READ_ONLY = -12
};

/* The calling thread's last message ("" before the first failure); valid until the next failing call of this thread. */
DRT_API const char *drt_message(void);
DRT_API const char *drt_status_text(int status);          /* "not found"; of an unknown number: "unknown status" */
DRT_API void drt_free(void *memory);                      /* NULL is fine */

/* What was built. commit: "" outside of a git checkout; cuda: "" in a build without CUDA; text: all in one line. */
struct drt_version_info { size_t size; int major, minor, patch; char commit[64], faiss[64], cuda[32], text[256]; };
DRT_CALL drt_version(struct drt_version_info *out);

/* ---- progress of long calls ---------------------------------------------------------------------------------- */
struct drt_progress_event {
    const char *stage, *unit;            /* "tokenize and encode", "chunks" */
    int64_t done, total;                 /* total < 0: unknown */
    const char *note;                    /* a line to show once; NULL: a step */
    const char *detail;                  /* of a step; NULL: none */
};
/* One callback at a time, mostly in the thread that made the call, sometimes in one of the library's own. stop returns
 * true: the call ends with DRT_INTERRUPTED at the next safe point (it is called about each tenth of a second, and at
 * least once between two chunks, tokens or documents). Either may be NULL. The event is borrowed for the call. */
struct drt_progress {
    void (*report)(void *context, const struct drt_progress_event *event);
    bool (*stop)(void *context);
    void *context;
};

/* ---- models -------------------------------------------------------------------------------------------------- */
struct drt_model;
struct drt_tokenizer;
struct drt_model_config {
    size_t size;
    const char *device;                  /* "auto" (NULL): a GPU if there is one; "cpu", "cuda" */
    const char *dtype;                   /* "auto" (NULL): float32 on a CPU, bf16 on a GPU; "f32", "bf16" */
    int threads;                         /* of the CPU; 0: one for each processor that this process may use */
};
/* folder: config.json, model.safetensors, tokenizer.json. NULL: the model that is installed with the library, which is
 * share/drt/models/drt-28m in a folder above the file that has this code (libdrt.so, or a program with libdrt.a).
 * DRT_UNSUPPORTED: "cuda" without a GPU or in a build without CUDA. */
DRT_CALL drt_model_open(struct drt_model **out, const char *folder, const struct drt_model_config *config);
/* The same model for another thread: a device and threads of its own, so that calls on both run at the same time; the
 * weights are in memory once (on a GPU: once for each). */
DRT_CALL drt_model_share(struct drt_model **out, struct drt_model *model, const struct drt_model_config *config);
DRT_API void drt_model_close(struct drt_model *model);
struct drt_model_info {
    size_t size;
    const char *path, *variant;          /* variant: "encoder-decoder", "decoder", "base" (no retrieval) */
    const char *device, *dtype;          /* in use: "cpu" or "cuda", "f32" or "bf16" */
    int dim, vocab_size, layers, encoder_layers, heads, groups;
    int chunk;                           /* ids of a chunk: 63 or 64 */
    int window;                          /* ids before a position that attention reads */
    int neighbours;                      /* chunks that one retrieval gives */
    int32_t eos_id, pad_id, landmark_id; /* -1: none */
    int64_t parameters;
    int threads;
};
/* Strings are borrowed until drt_model_close. */
DRT_CALL drt_model_info(struct drt_model *model, struct drt_model_info *out);
/* Borrowed until drt_model_close; not to be closed. */
DRT_API struct drt_tokenizer *drt_model_tokenizer(struct drt_model *model);

/* Landmarks rows[n, dim] of chunks ids[n, chunk]; -1 fills short chunks. The n chunks are independent of each other. */
DRT_CALL drt_model_encode(struct drt_model *model, float *rows, const int32_t *ids, int64_t n);
/* The same with rows in memory of the model's device (on a GPU: 256-byte aligned memory of the current GPU that no work
 * in flight uses). They are complete when the call returns. */
DRT_CALL drt_model_encode_device(struct drt_model *model, void *rows, const int32_t *ids, int64_t n);
/* A text's ids cut into *n chunks: *ids [*n, chunk], the last one filled with -1, and *rows [*n, dim]. One allocation
 * each; either may be NULL. An empty text has 0 chunks. */
DRT_CALL drt_model_encode_text(struct drt_model *model, float **rows, int32_t **ids, int64_t *n, const char *text,
                               size_t bytes);
/* The query vector[dim] that the model makes after a text of n >= 1 ids: what a landmark's score is computed with. The
 * last whole chunks of the text count; a text shorter than a chunk is repeated until it fills one. */
DRT_CALL drt_model_query(struct drt_model *model, float *vector, const int32_t *ids, int64_t n);

/* ---- tokenizers: any number of threads use one at the same time ----------------------------------------------- */
/* path: a tokenizer.json, or a folder that has one. */
DRT_CALL drt_tokenizer_open(struct drt_tokenizer **out, const char *path);
DRT_API void drt_tokenizer_close(struct drt_tokenizer *tokenizer);           /* not of drt_model_tokenizer */
DRT_API int drt_tokenizer_vocab_size(const struct drt_tokenizer *tokenizer); /* highest id + 1; of NULL: 0 */
/* special: special tokens that are written out become their ids (prompts); else they are ordinary text (corpora). No
 * BOS or EOS is added. *ids: [*n], to drt_free. */
DRT_CALL drt_tokenizer_encode(struct drt_tokenizer *tokenizer, int32_t **ids, size_t *n, const char *text, size_t bytes,
                              bool special);
/* *text: to drt_free. skip_special drops special tokens. Bytes that are no UTF-8 and ids without a token are U+FFFD. */
DRT_CALL drt_tokenizer_decode(struct drt_tokenizer *tokenizer, char **text, size_t *bytes, const int32_t *ids, size_t n,
                              bool skip_special);
/* The raw bytes that an id stands for inside a text, which may be a part of a character. Borrowed until the tokenizer
 * is closed; no NUL at the end. DRT_NOT_FOUND: no token has this id. */
DRT_CALL drt_tokenizer_bytes(const struct drt_tokenizer *tokenizer, const char **data, size_t *bytes, int32_t id);
/* A token's spelling in tokenizer.json; NULL: no token has this id. Borrowed until the tokenizer is closed. */
DRT_API const char *drt_tokenizer_spelling(const struct drt_tokenizer *tokenizer, int32_t id);
DRT_API int32_t drt_tokenizer_id(const struct drt_tokenizer *tokenizer, const char *spelling);     /* -1: none */
DRT_API bool drt_tokenizer_is_special(const struct drt_tokenizer *tokenizer, int32_t id);

/* ---- stores -------------------------------------------------------------------------------------------------- */
/* A view of a store's directory: it always shows the generation that was the newest when it was made. Chunks that were
 * dropped are DRT_NOT_FOUND. */
struct drt_store;
/* DRT_BUSY: this process has the directory open already (LMDB's rule); drt_store_view makes further views. */
DRT_CALL drt_store_open(struct drt_store **out, const char *path);
/* Another view of the same open directory, at the newest generation: to see what was added, or for another thread. */
DRT_CALL drt_store_view(struct drt_store **out, struct drt_store *store);
/* The directory is closed with its last view, searcher and session. */
DRT_API void drt_store_close(struct drt_store *store);
struct drt_store_info {
    size_t size;
    uint64_t generation;
    int64_t chunks, documents, tokens;   /* with dropped ones: all ids are below these counts */
    int64_t dropped_chunks, dropped_documents, dropped_tokens, shards, segments, duplicates;
    uint64_t token_bytes, landmark_bytes, index_bytes, catalog_bytes;
    int dim, chunk, vocab_size, format;
    bool lexical;                        /* it has an index of tokens */
    const char *path, *index;            /* index: "exact", or the FAISS factory string; borrowed until closed */
    const char *landmarks;               /* how they are stored: "f16" or "i8"; "none": dim is 0, words find chunks */
};
DRT_CALL drt_store_info(struct drt_store *store, struct drt_store_info *out);

struct drt_document {
    int64_t id, first_chunk, chunks, tokens;
    uint64_t offset, line, bytes;        /* where it begins in the source (line: of jsonl, from 1); its length */
    uint8_t hash[16];                    /* XXH3-128 of the text (of token files: of its ids as uint32), as `xxh128sum`
                                            prints it: big-endian */
    const char *source, *key;            /* parts of this allocation; key "": none */
};
DRT_CALL drt_store_document(struct drt_store *store, struct drt_document **out, int64_t document);   /* to drt_free */
/* The document with this content hash (drt_document.hash), to ask before an add. DRT_NOT_FOUND: none. */
DRT_CALL drt_store_find_document(struct drt_store *store, int64_t *document, const uint8_t hash[16]);
struct drt_chunk {
    int64_t id, document, in_document;   /* in_document: number of the chunk in its document */
    int64_t token_offset;                /* of its first token in the document */
    int32_t n_tokens, reserved;          /* n_tokens <= chunk */
};
/* out[n], ids[n, chunk] (-1 fills short chunks), rows[n, dim] (landmarks) of the given chunks, in their order. Any of
 * the three outputs may be NULL. */
DRT_CALL drt_store_chunks(struct drt_store *store, struct drt_chunk *out, int32_t *ids, float *rows,
                          const int64_t *chunks, int64_t n);
/* chunks[n]: drawn uniformly from those that exist, independent of each other; the same seed gives the same.
 * DRT_NOT_FOUND when the store has no chunk. */
DRT_CALL drt_store_sample(struct drt_store *store, int64_t *chunks, int64_t n, uint64_t seed);
/* The text of a chunk, or of a whole document, by the tokenizer that the store was made with (DRT_MISMATCH). To
 * drt_free. A document's text is decoded from its ids: that of the source, but for what the tokenizer normalises. */
DRT_CALL drt_store_chunk_text(struct drt_store *store, struct drt_tokenizer *tokenizer, char **text, size_t *bytes,
                              int64_t chunk);
DRT_CALL drt_store_document_text(struct drt_store *store, struct drt_tokenizer *tokenizer, char **text, size_t *bytes,
                                 int64_t document);
DRT_CALL drt_store_document_ids(struct drt_store *store, int32_t **ids, int64_t *n, int64_t document);

/* Landmark rows in the store's own files, mapped: nothing is copied. A handle maps one file; the rows stay valid until
 * drt_landmarks_close, also when the store is closed, added to or removed. */
struct drt_landmarks;
/* The file that has chunk `first`, from there to its end or to the next dropped chunk. DRT_NOT_FOUND: first is dropped
 * or not below drt_store_info.chunks. All rows of a store: drt_landmarks_next(0), then from first + n on. */
DRT_CALL drt_landmarks_open(struct drt_landmarks **out, struct drt_store *store, int64_t first);
DRT_API void drt_landmarks_close(struct drt_landmarks *landmarks);
struct drt_landmark_rows {
    const uint16_t *rows;                /* [n, dim] IEEE fp16, little-endian, dense; read-only */
    int64_t first, n;                    /* chunk ids first .. first + n - 1 */
    int32_t dim, reserved;
};
DRT_CALL drt_landmarks_rows(const struct drt_landmarks *landmarks, struct drt_landmark_rows *out);
/* Of a store with landmarks "i8": number i of row r is codes[r * dim + i] * scales[r], which is an fp16 number. */
struct drt_landmark_codes {
    const int8_t *codes;                 /* [n, dim], dense; read-only */
    const float *scales;                 /* [n] */
    int64_t first, n;                    /* chunk ids first .. first + n - 1 */
    int32_t dim, reserved;
};
/* DRT_UNSUPPORTED, from each of the two: the store's landmarks are of the other type (drt_store_info.landmarks). */
DRT_CALL drt_landmarks_codes(const struct drt_landmarks *landmarks, struct drt_landmark_codes *out);
/* *first: the smallest id of an existing chunk >= from; -1: there is none. */
DRT_CALL drt_landmarks_next(struct drt_store *store, int64_t *first, int64_t from);

/* ---- building a store ---------------------------------------------------------------------------------------- */
/* A document that a callback gives: borrowed until it is called again. source and key may be NULL ("memory", ""). */
struct drt_text { size_t size; const char *text; size_t bytes; const char *source, *key; };
/* 1: *out is the next document; 0: there are no more; negative: stop, the build returns DRT_INTERRUPTED. Called by one
 * thread at a time, which may be one of the library's own. `out` has its size set and is else zero. */
typedef int drt_next_text(void *context, struct drt_text *out);
struct drt_build_config {
    size_t size;
    /* Either files, folders or "-" (docs/inputs.md), in the order given ... */
    const char *const *inputs; int n_inputs;
    /* "auto" (NULL), "jsonl", "txt", "u16", "u32", "megatron", "parquet", "arrow" */
    const char *format;
    const char *text_field;              /* of jsonl, parquet and arrow; NULL: "text" */
    const int64_t *eod_id;               /* of token files: between documents; NULL: the model's eos_id; -1: none */
    bool skip_bad_lines, no_follow;      /* no_follow: symbolic links in folders are left out */
    /* ... or documents of a callback. A build that was stopped resumes when the callback gives the same documents from
     * the first one on: those that are stored already are compared and skipped. */
    drt_next_text *next; void *next_context;
    bool append;                         /* add to a published store; else a new one, or one whose build was stopped */
    bool restart;                        /* drop an unfinished build instead of resuming it */
    const char *index;                   /* "auto" (NULL), "exact", or a FAISS factory string such as "IVF4096,SQ8" */
    uint64_t max_ram;                    /* bytes, model included; 0: 4 GiB */
    int64_t shard_chunks;                /* 0: 16384 */
    struct drt_progress progress;
    /* Of `parts` parts, equal in bytes of the inputs, number `part` (from 1) alone, for drt_store_join: without an
     * index. Each has a folder of its own. 0 of 0: the whole. Not with documents of a callback. */
    int part, parts;
    /* Of a new store: "f16" (NULL), "i8": half the bytes, rounded to 8 bits, or "none": no chunk is encoded, and words
     * find chunks, which is what a token memory needs. A Base LM makes landmarks of its states. */
    const char *landmarks;
};
struct drt_report {
    size_t size;
    /* Of this call. documents: all that were given; of these, duplicates and empty ones are not stored. */
    int64_t documents, duplicates, empty, chunks, tokens;
    int64_t skipped_lines, passed_over;  /* bad lines of jsonl, rows without text; files of folders that are no text */
    int64_t resumed_documents, resumed_chunks;            /* that an earlier, stopped build had stored */
    uint64_t generation;
    bool already_built;                  /* the store held all of it: nothing was done */
    double seconds, encode_seconds, tokenize_seconds, publish_seconds;
};
/* Builds or adds; readers see nothing of it before it is complete. report may be NULL. DRT_INTERRUPTED: what is sealed
 * is kept, and the same call continues. DRT_BUSY: another writer, or this process has the store open: close it. */
DRT_CALL drt_store_build(const char *path, struct drt_model *model, const struct drt_build_config *config,
                         struct drt_report *report);

/* ---- looking after a store ------------------------------------------------------------------------------------- */
/* These functions take folders, as drt_store_build does. DRT_BUSY: this process has a store of theirs open (close it),
 * or another writer is at work. config and report may be NULL, but for config of a deletion. Changes are one
 * transaction each: a reader sees the store before it or after it, also where the process is killed. */
struct drt_finding { const char *file, *problem, *remedy; };  /* borrowed for the call; remedy: a sentence */
struct drt_verify_config {
    size_t size;
    bool deep;                           /* every byte against its checksum; else names, sizes and records */
    void (*on_finding)(void *context, const struct drt_finding *finding);                  /* for each; may be NULL */
    void *context;
    struct drt_progress progress;
};
/* *problems: how many things are damaged or missing. DRT_OK also when it is not 0; a failure where the store cannot
 * even be looked at. */
DRT_CALL drt_store_verify(const char *path, const struct drt_verify_config *config, int64_t *problems);

struct drt_delete_config {
    size_t size;
    /* Either documents[n_documents], ids, or sources[n_sources]: patterns of fnmatch(3) for drt_document.source. */
    const int64_t *documents; int64_t n_documents;
    const char *const *sources; int n_sources;
    bool dry_run;                        /* count, and change nothing */
    void (*on_document)(void *context, const struct drt_document *document);               /* for each; may be NULL */
    void *context;
    struct drt_progress progress;
};
struct drt_change_report {
    size_t size;
    int64_t documents, chunks, tokens;   /* tokens of a compaction: copied by this call */
    uint64_t generation;                 /* of the store at `path` now */
};
/* Views that are opened from then on have neither the documents nor their chunks; open ones in other processes keep
 * them. All other ids stay, and files keep their sizes (drt_store_compact). What was deleted before is passed over. The
 * report counts what was deleted. DRT_NOT_FOUND: there is no document of that number. */
DRT_CALL drt_store_delete(const char *path, const struct drt_delete_config *config, struct drt_change_report *report);

struct drt_compact_config {
    size_t size;
    const char *index;                   /* as in drt_build_config; NULL: that of `from` */
    uint64_t max_ram;                    /* bytes for making the index; 0: 1 GiB */
    int64_t shard_chunks;                /* 0: 16384 */
    int threads;                         /* 0: all processors */
    struct drt_progress progress;
    const char *landmarks;               /* "f16" or "i8"; NULL: as `from` */
};
/* A new store at `path` of the documents that `from` has left, in their order under new ids; nothing is encoded again.
 * `from` is only read. A call that was stopped or killed is repeated. DRT_INVALID: no document is left; DRT_MISMATCH:
 * `path` is something else. */
DRT_CALL drt_store_compact(const char *path, const char *from, const struct drt_compact_config *config,
                           struct drt_change_report *report);

struct drt_join_config {
    size_t size;
    bool copy;                           /* copy and check the parts' files; else they get second names (hard links) */
    bool lexical;                        /* make an index of tokens over all chunks, too */
    const char *index;                   /* as in drt_build_config; NULL: "exact" */
    uint64_t max_ram;                    /* bytes for making the indexes; 0: 1 GiB */
    int threads;                         /* 0: all processors */
    struct drt_progress progress;
};
struct drt_join_report {
    size_t size;
    int64_t shards, documents, chunks, tokens;            /* of the joined store, with copies */
    int64_t copies;                      /* documents that an earlier part has, too: they are not in view */
    int64_t linked, copied;              /* files, by this call */
    uint64_t generation;
    bool already_joined;                 /* nothing was done */
};
/* One store at `path` of parts[n_parts] that drt_store_build made (drt_build_config.part), in any order. A call that
 * was stopped or killed is repeated. DRT_MISMATCH: parts of other corpora, models or counts, one missing or twice. */
DRT_CALL drt_store_join(const char *path, const char *const *parts, int n_parts, const struct drt_join_config *config,
                        struct drt_join_report *report);

struct drt_freeze_config { size_t size; bool copy; struct drt_progress progress; };           /* copy: as in a join */
struct drt_freeze_report {
    size_t size;
    int64_t documents, chunks;           /* of the generation, with dropped ones */
    int64_t linked, copied;              /* files, by this call */
    uint64_t generation;
    bool already_frozen;                 /* nothing was done */
};
/* A snapshot of the newest generation of `from` at `path`: a store that nothing changes (DRT_READ_ONLY) and that is
 * read without locks, also on network file systems and read-only media. `path` appears whole or not at all. */
DRT_CALL drt_store_freeze(const char *path, const char *from, const struct drt_freeze_config *config,
                          struct drt_freeze_report *report);

/* ---- searching ----------------------------------------------------------------------------------------------- */
struct drt_searcher;
enum drt_search_kind {
    DRT_SEARCH_AUTO = 0,                 /* by landmarks: the store's index, or on a GPU what suits it; LEXICAL, with
                                            scores of BM25, if the store has none */
    DRT_SEARCH_LEXICAL = 1,              /* BM25 over the last 128 ids of a text; DRT_UNSUPPORTED where the store has no
                                            index of tokens (drt_store_info.lexical), which drt-index lexical makes */
    DRT_SEARCH_HYBRID = 2                /* both, merged */
};
struct drt_searcher_config {
    size_t size;
    enum drt_search_kind kind;
    bool exact;                          /* scan all landmarks: nothing can be missed */
    bool exact_fallback;                 /* scan where the index finds fewer than k */
    int nprobe;                          /* lists of the index to visit; 0: its default */
    int candidates;                      /* that the index gives for exact scores; 0: at least 4 * k */
    float landmark_weight;               /* HYBRID: ranks by BM25 + this * score; 0: by reciprocal rank */
    int threads;                         /* without a model: of the search; 0: all processors */
    /* Landmarks are searched by drt-index worker --listen processes at these addresses, "HOST:PORT,HOST:PORT", one for
     * each slice of the store, in order: the same hits. NULL: by this process. DRT_IO names one that was lost; the next
     * search connects again. DRT_MISMATCH: one has another store or slice. */
    const char *workers;
    const char *worker_key;              /* that they want; NULL: none */
    int worker_timeout;                  /* seconds that an answer may take; 0: 60 */
    /* Landmarks are searched by so many GPUs, from GPU 0 on, each with a slice of them, where the model is on a GPU:
     * the same hits. -1: by all GPUs; 0, 1: by the model's alone. DRT_INVALID: there are fewer. */
    int devices;
};
/* model: what texts become queries with, and its device searches; DRT_MISMATCH when the store is of another model.
 * NULL: vectors only, on the CPU. A search takes its turn at the store and at the model. */
DRT_CALL drt_searcher_open(struct drt_searcher **out, struct drt_store *store, struct drt_model *model,
                           const struct drt_searcher_config *config);
DRT_API void drt_searcher_close(struct drt_searcher *searcher);
struct drt_searcher_info {
    size_t size;
    char kind[32], text[512];            /* "index"; for people: "index IVF64,SQ8, 16 of 64 lists" */
    bool exact;
    int64_t visited, lists;              /* 0 of 0: no lists */
    uint64_t device_bytes;               /* of landmarks and lists of words copied to a GPU */
    int64_t queries, missing;            /* so far; of these, those for which the index found too few */
};
DRT_CALL drt_searcher_info(struct drt_searcher *searcher, struct drt_searcher_info *out);

struct drt_range { int64_t begin, end; };                 /* chunk ids begin .. end-1; equal: none */
struct drt_hit { int64_t chunk; float score; int32_t reserved; };   /* chunk -1 (last ones): fewer than k were found */
struct drt_search {
    size_t size;
    int k;                               /* hits of each query; 0: 10 */
    int nprobe;                          /* 0: that of the searcher */
    const struct drt_range *exclude;     /* [n] chunks that a query must not find, such as its document; NULL: none */
};
/* hits[n * k], best first. The score is q.l / sqrt(dim), whatever ranked the hits. Queries: vectors[n, dim]; texts[n]
 * of bytes[n] (NULL: they end with a NUL); ids[n] of n_ids[n]. An empty text is DRT_INVALID. */
DRT_CALL drt_search_vectors(struct drt_searcher *searcher, struct drt_hit *hits, const float *vectors, int64_t n,
                            const struct drt_search *how);
DRT_CALL drt_search_texts(struct drt_searcher *searcher, struct drt_hit *hits, const char *const *texts,
                          const size_t *bytes, int64_t n, const struct drt_search *how);
DRT_CALL drt_search_ids(struct drt_searcher *searcher, struct drt_hit *hits, const int32_t *const *ids,
                        const int64_t *n_ids, int64_t n, const struct drt_search *how);

/* ---- running texts: generation and log-probabilities ----------------------------------------------------------- */
/* A session is one running text. Any number of sessions share a model, a store and a searcher. A session is for one
 * thread at a time. */
struct drt_session;
enum drt_memory { DRT_MEMORY_NONE = 0, DRT_MEMORY_OWN = 1, DRT_MEMORY_CORPUS = 2, DRT_MEMORY_BOTH = 3 };
struct drt_session_config {
    size_t size;
    /* What the text may retrieve: chunks of its own past, chunks of a store. With corpus, or a memory of the corpus, a
     * store, a searcher of the same model, or both (of each other). searcher NULL: the session makes one; of a memory
     * that of the kind that memory.json names. On a GPU sessions should share one, since a searcher may copy the
     * landmarks. */
    bool self, corpus;
    struct drt_store *store;
    struct drt_searcher *searcher;
    bool exclude;                        /* chunks of exclude_document are not retrieved */
    int64_t exclude_document;
    /* Token memory (docs/token-memory.md), without self and corpus. */
    enum drt_memory memory;
    const char *memory_config;           /* a memory.json; NULL: the model's own, on a CPU memory-cpu.json */
    const char *lexical;                 /* reserved, NULL: CORPUS and BOTH read the store's lexical index */
    int64_t memory_past;                 /* ids of the text's own past; 0: 2048 */
    /* Sampling; as in drt-generate. */
    float temperature;                   /* 0: greedy */
    float top_p, min_p;                  /* 0: off */
    int top_k;                           /* 0: off */
    float repeat_penalty;                /* 0: off */
    int repeat_last;                     /* 0: 64 */
    uint64_t seed;
    int64_t max_tokens;                  /* from each feed on; 0: no limit */
    const char *const *stops; int n_stops;                /* strings that end a generation; copied */
    bool ignore_eos;                     /* an end-of-document token does not end it */
    int top;                             /* most probable ids that a token is returned with; at most 64 */
    struct drt_progress progress;        /* stop: also between the passes of a long feed */
};
DRT_CALL drt_session_open(struct drt_session **out, struct drt_model *model, const struct drt_session_config *config);
DRT_API void drt_session_close(struct drt_session *session);
/* A new text: nothing of the old one is left. The random numbers begin again from `seed`. */
DRT_CALL drt_session_reset(struct drt_session *session, uint64_t seed);
DRT_API int64_t drt_session_tokens(const struct drt_session *session);       /* ids of the text so far; of NULL: 0 */

struct drt_alternative { int32_t id; float logprob; };
/* Log-probabilities (natural) of n ids. logprob[i] is that of ids[i] given all of the text before it; NaN for the first
 * id of a text. alternatives[n, top]: the most probable ids, best first; id -1 for the first id of a text. One
 * allocation. */
struct drt_scores {
    int64_t n, first;                    /* first: position of ids[0] in the text */
    int32_t top, reserved;
    const int32_t *ids;
    const float *logprob;
    const struct drt_alternative *alternatives;
    const float *memory_share;           /* [n] part of the probability that a token memory gave; NULL: without one */
    double sum;                          /* of logprob, without the NaN */
};
/* Appends to the text. Special tokens that are written out in text become their ids: where the text comes from others,
 * feed the ids of drt_tokenizer_encode without them. An empty text at the start of a session is the model's eos_id,
 * after which a document begins. scores NULL: not wanted; else *scores is to drt_free and has `top` (at most 64)
 * alternatives for each id. A new generation begins: max_tokens, stop strings. After a failure other than DRT_INVALID
 * the session can only be reset or closed. */
DRT_CALL drt_session_feed(struct drt_session *session, const char *text, size_t bytes, struct drt_scores **scores,
                          int top);
DRT_CALL drt_session_feed_ids(struct drt_session *session, const int32_t *ids, int64_t n, struct drt_scores **scores,
                              int top);
/* logprobs[vocab_size] of the next id, before sampling options apply. */
DRT_CALL drt_session_logprobs(struct drt_session *session, float *logprobs);

enum drt_end { DRT_END_NONE = 0, DRT_END_LENGTH = 1, DRT_END_EOS = 2, DRT_END_STOP = 3, DRT_END_CALLBACK = 4 };
enum drt_source { DRT_SOURCE_SELF = 0, DRT_SOURCE_CORPUS = 1 };
/* A chunk that the model read when it gave a token. */
struct drt_neighbour {
    enum drt_source source;
    int32_t group;                       /* of upper layers, which retrieve apart; -1: an entry of the token memory */
    int64_t chunk;                       /* id in the store; SELF: number of the chunk in this text */
    /* Of the chunk's first token in its document (group -1: of the entry's token); document -1: this text. */
    int64_t document, token_offset;
    float weight, score;                 /* weights of a group sum to 1; group -1: part of the token's probability, 0 */
};
struct drt_token {
    size_t size;
    int32_t id;                          /* with END_EOS the eos_id */
    enum drt_end end;                    /* not NONE: this was the last token */
    int64_t position;                    /* in the text */
    /* What can be shown now: whole characters, nothing of a stop string. So it can be empty, or hold text of tokens
     * before. The last token has the rest. */
    const char *text; size_t bytes;
    const char *raw; size_t raw_bytes;   /* the bytes of this id alone (drt_tokenizer_bytes) */
    float logprob;                       /* before sampling options apply; with a token memory: of the mixture */
    float memory_share;                  /* part of the probability that the token memory gave; else 0 */
    const struct drt_alternative *alternatives; int32_t n_alternatives;      /* best first */
    int32_t n_neighbours;
    const struct drt_neighbour *neighbours;               /* by group, best first; GCA: none before the second chunk */
};
/* Samples the next token and appends it to the text. Pointers are borrowed until the next call on this session.
 * DRT_INVALID: nothing was fed, or the generation has ended (feed more, or reset). */
DRT_CALL drt_session_next(struct drt_session *session, struct drt_token *out);
/* Computes for n <= 256 sessions of one model, each there once, what the next drt_session_next of each needs, in one
 * pass over the weights; that call then samples alone. On a CPU, where a token costs reading the weights, several texts
 * so cost little more than one. Tokens and log-probabilities are the same, bit for bit, with this call and without it,
 * in whatever company. A session for which it can do nothing is left to drt_session_next: at the last id of a chunk
 * (where it retrieves), with a token memory, at its end, on a GPU. *computed: for how many it did; may be NULL. */
DRT_CALL drt_session_prepare(struct drt_session *const *sessions, int n, int *computed);
/* drt_session_next until the end. True from the callback stops: *end is DRT_END_CALLBACK, and a further call continues
 * (or drt_session_stop ends it). The token is borrowed. end may be NULL. */
typedef bool drt_on_token(void *context, const struct drt_token *token);
DRT_CALL drt_session_generate(struct drt_session *session, drt_on_token *on_token, void *context, enum drt_end *end);

/* Ends the generation before its end. *text: what the tokens so far held back (the beginning of a character, or of what
 * could have become a stop string), often empty; borrowed until the next call on this session; may be NULL, with bytes.
 * Then feed more, or reset. */
DRT_CALL drt_session_stop(struct drt_session *session, const char **text, size_t *bytes);

struct drt_session_info {
    size_t size;
    int64_t tokens, chunks, queries;     /* of the text; retrievals so far */
    int64_t cache_hits, cache_misses;    /* encoded chunks */
    double seconds, search_seconds, read_seconds, encode_seconds;            /* of all calls */
    char searched_by[512];               /* as drt_searcher_info.text; "": no corpus */
};
DRT_CALL drt_session_info(struct drt_session *session, struct drt_session_info *out);

/* The log-probabilities of a text in a session of its own. config NULL: without retrieval. *scores: to drt_free. */
DRT_CALL drt_score_text(struct drt_model *model, const struct drt_session_config *config, const char *text,
                        size_t bytes, int top, struct drt_scores **scores);
DRT_CALL drt_score_ids(struct drt_model *model, const struct drt_session_config *config, const int32_t *ids, int64_t n,
                       int top, struct drt_scores **scores);

#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#ifdef __cplusplus
}
#endif
#endif
