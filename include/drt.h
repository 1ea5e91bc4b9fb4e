/* drt.h -- libdrt: a chunk retrieval store and the retrieval language model that reads it. docs/library.md explains it.
 *
 * Errors. A function that can fail returns enum drt_status: DRT_OK (0) or a negative value. drt_message gives the
 * calling thread's last message: one line that names file, position and remedy. Outputs of a failed call are unset.
 * DRT_INVALID: an argument is NULL or a number that the function does not accept. The library does not print, exit,
 * read the environment, install signal handlers or keep global state.
 *
 * Structs that a caller fills begin with `size`, which is sizeof of the struct, so that members can be added at the
 * end. Zero in any other member is the default. A function that takes a pointer to such a struct accepts NULL for all
 * defaults. Structs that the library fills (..._info, drt_report, drt_token) also begin with `size`, which the caller
 * sets. DRT_UNSUPPORTED: a member that this version of the library does not have is not zero. Structs without `size`
 * never grow, except those that only the library makes (drt_document, drt_scores, drt_progress_event, drt_finding).
 *
 * Ownership. Each handle has a function that closes it; all of these accept NULL. Handles may be closed in any order,
 * because a handle keeps the handles open that it was made from. Memory that a function returns through a pointer to a
 * pointer, and that is not a handle, belongs to the caller, who frees it with drt_free ("free with drt_free" below).
 * Other pointers in results are borrowed; each comment states until when. Arguments that are strings or arrays are not
 * kept after the call, unless stated otherwise.
 *
 * Threads. Any thread may call any function. Calls that use the same model run one after another, and so do calls that
 * use the same store. Calls with different models and stores run at the same time. The caller must follow three rules:
 * no call uses a handle while it is closed; pointers borrowed from a session are not used after its next call; a
 * callback does not use the handle whose call runs it. A child of fork() must neither use nor close handles of its
 * parent; it opens its own.
 *
 * Text is UTF-8 with its length in bytes. Text in arguments need not end with a NUL; text in results does. Ids are
 * int32_t token ids. Chunk and document ids are numbers of the store, from 0. Vectors are rows of `dim` float32. */
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
#pragma GCC diagnostic ignored "-Wshadow" /* functions have the names of structs, which C++ allows */
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
    DRT_INVALID = -5,      /* an argument or input that no version accepts */
    DRT_CORRUPT = -6,      /* a file of a store or model is damaged */
    DRT_MISMATCH = -7,     /* valid, but does not fit the other arguments, such as a store of another model */
    DRT_VERSION = -8,      /* written by a newer version */
    DRT_BUSY = -9,         /* another writer has the lock of the store, or this process has it open already */
    DRT_UNSUPPORTED = -10,               /* valid, but this model, build or machine does not support it */
    DRT_INTERRUPTED = -11, /* stopped by a callback; builds can be resumed */
    DRT_READ_ONLY = -12    /* the store is a snapshot, or this user may not write it */
};

/* Returns the calling thread's last message, "" before the first failure. It is valid until the next call that fails
 * on this thread. */
DRT_API const char *drt_message(void);
DRT_API const char *drt_status_text(int status);          /* "not found"; "unknown status" for an unknown number */
DRT_API void drt_free(void *memory);                      /* NULL is fine */

/* Versions of the library. commit: "" if it was built outside of a git checkout; cuda: "" in a build without CUDA;
 * text: all of them in one line. */
struct drt_version_info { size_t size; int major, minor, patch; char commit[64], faiss[64], cuda[32], text[256]; };
DRT_CALL drt_version(struct drt_version_info *out);

/* ---- progress of long calls ---------------------------------------------------------------------------------- */
struct drt_progress_event {
    const char *stage, *unit;            /* "tokenize and encode", "chunks" */
    int64_t done, total;                 /* total < 0: unknown */
    const char *note;                    /* a line to print once; NULL: a step of the work */
    const char *detail;                  /* more about a step; NULL: nothing */
};
/* Callbacks run one at a time, mostly in the calling thread, sometimes in a thread of the library. If stop returns
 * true, the call ends with DRT_INTERRUPTED at the next safe point. It is called about ten times a second, and at least
 * once between two chunks, tokens or documents. Both may be NULL. The event is borrowed for the callback. */
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
    const char *dtype;                   /* "auto" (NULL): float32 on a CPU, bf16 on a GPU; "f32", "bf16"; "i8": "auto"
                                          * with the decoder's weights rounded to 8 bits (a GPU: Hopper or newer) */
    int threads;                         /* of the CPU; 0: one for each processor that this process may use */
};
/* Opens a model. folder: has config.json, model.safetensors and tokenizer.json. NULL: the model that is installed with
 * the library, share/drt/models/drt-28m in a folder above the file with this code (libdrt.so, or a program with
 * libdrt.a). DRT_UNSUPPORTED: "cuda" without a GPU or in a build without CUDA. */
DRT_CALL drt_model_open(struct drt_model **out, const char *folder, const struct drt_model_config *config);
/* Opens the same model for another thread, with its own device and threads, so that calls on both run at the same time.
 * The weights are in memory once (on a GPU, once for each). */
DRT_CALL drt_model_share(struct drt_model **out, struct drt_model *model, const struct drt_model_config *config);
DRT_API void drt_model_close(struct drt_model *model);
struct drt_model_info {
    size_t size;
    const char *path, *variant;          /* variant: "encoder-decoder", "decoder", "base" (no retrieval) */
    const char *device, *dtype;          /* those in use: "cpu" or "cuda"; "f32", "bf16" or "i8" */
    int dim, vocab_size, layers, encoder_layers, heads, groups;
    int chunk;                           /* ids of a chunk: 63 or 64 */
    int window;                          /* number of ids before a position that its attention reads */
    int neighbours;                      /* number of chunks of one retrieval */
    int32_t eos_id, pad_id, landmark_id; /* -1: the model has none */
    int64_t parameters;
    int threads;
};
/* Strings are borrowed until drt_model_close. */
DRT_CALL drt_model_info(struct drt_model *model, struct drt_model_info *out);
/* The model's tokenizer, borrowed until drt_model_close. It must not be closed. */
DRT_API struct drt_tokenizer *drt_model_tokenizer(struct drt_model *model);

/* Computes landmarks rows[n, dim] of chunks ids[n, chunk]. After the last id of a short chunk, the rest is -1. The n
 * chunks are independent of each other. */
DRT_CALL drt_model_encode(struct drt_model *model, float *rows, const int32_t *ids, int64_t n);
/* The same with rows in memory of the model's device. On a GPU that is 256-byte aligned memory of the current GPU,
 * which no pending work uses. The rows are complete when the call returns. */
DRT_CALL drt_model_encode_device(struct drt_model *model, void *rows, const int32_t *ids, int64_t n);
/* Divides a text's ids into *n chunks: *ids [*n, chunk], with -1 after the end of the last one, and *rows [*n, dim].
 * Each is one allocation, and either may be NULL. An empty text has 0 chunks. */
DRT_CALL drt_model_encode_text(struct drt_model *model, float **rows, int32_t **ids, int64_t *n, const char *text,
                               size_t bytes);
/* Computes the query vector[dim] of the model after a text of n >= 1 ids. A landmark's score is computed with it. Only
 * the last whole chunks of the text are used. A text shorter than a chunk is repeated until it fills one. */
DRT_CALL drt_model_query(struct drt_model *model, float *vector, const int32_t *ids, int64_t n);

/* ---- tokenizers: any number of threads use one at the same time ----------------------------------------------- */
/* path: a tokenizer.json, or a folder that has one. */
DRT_CALL drt_tokenizer_open(struct drt_tokenizer **out, const char *path);
DRT_API void drt_tokenizer_close(struct drt_tokenizer *tokenizer);           /* not for drt_model_tokenizer */
DRT_API int drt_tokenizer_vocab_size(const struct drt_tokenizer *tokenizer); /* the highest id + 1; 0 for NULL */
/* Encodes a text. special: the spelling of a special token becomes its id (prompts); otherwise it is ordinary text
 * (corpora). No BOS or EOS is added. *ids: [*n], free with drt_free. */
DRT_CALL drt_tokenizer_encode(struct drt_tokenizer *tokenizer, int32_t **ids, size_t *n, const char *text, size_t bytes,
                              bool special);
/* Decodes ids. *text: free with drt_free. skip_special drops special tokens. Bytes that are not UTF-8, and ids without
 * a token, become U+FFFD. */
DRT_CALL drt_tokenizer_decode(struct drt_tokenizer *tokenizer, char **text, size_t *bytes, const int32_t *ids, size_t n,
                              bool skip_special);
/* Gets the raw bytes of an id inside a text, which may be a part of a character. They are borrowed until the tokenizer
 * is closed, and have no NUL at the end. DRT_NOT_FOUND: no token has this id. */
DRT_CALL drt_tokenizer_bytes(const struct drt_tokenizer *tokenizer, const char **data, size_t *bytes, int32_t id);
/* Returns a token's spelling in tokenizer.json; NULL: no token has this id. It is borrowed until the
 * tokenizer is closed. */
DRT_API const char *drt_tokenizer_spelling(const struct drt_tokenizer *tokenizer, int32_t id);
DRT_API int32_t drt_tokenizer_id(const struct drt_tokenizer *tokenizer, const char *spelling);     /* -1: none */
DRT_API bool drt_tokenizer_is_special(const struct drt_tokenizer *tokenizer, int32_t id);

/* ---- stores -------------------------------------------------------------------------------------------------- */
/* A view of a store's directory. It always reads the generation that was the newest when the view was made.
 * DRT_NOT_FOUND: a chunk was dropped. */
struct drt_store;
/* DRT_BUSY: this process has the directory open already (LMDB's rule). drt_store_view makes further views. */
DRT_CALL drt_store_open(struct drt_store **out, const char *path);
/* Makes another view of the same open directory, at the newest generation: to see added documents, or for
 * another thread. */
DRT_CALL drt_store_view(struct drt_store **out, struct drt_store *store);
/* The directory is closed when its last view, searcher and session are closed. */
DRT_API void drt_store_close(struct drt_store *store);
struct drt_store_info {
    size_t size;
    uint64_t generation;
    int64_t chunks, documents, tokens;   /* including dropped ones: all ids are below these counts */
    int64_t dropped_chunks, dropped_documents, dropped_tokens, shards, segments, duplicates;
    uint64_t token_bytes, landmark_bytes, index_bytes, catalog_bytes;
    int dim, chunk, vocab_size, format;
    bool lexical;                        /* the store has an index of tokens */
    /* index: "exact", or the FAISS factory string; both are borrowed until the view is closed */
    const char *path, *index;
    /* type of the landmarks: "f16" or "i8"; "none": dim is 0, and chunks are found only by words */
    const char *landmarks;
    /* files of keys of a token memory when the view was made, and chunks that they have; a token memory reads them if
     * these are all chunks */
    int64_t keys_files, keys_chunks;
};
DRT_CALL drt_store_info(struct drt_store *store, struct drt_store_info *out);

struct drt_document {
    int64_t id, first_chunk, chunks, tokens;
    uint64_t offset, line, bytes; /* position of the document in the source (line: of jsonl, from 1); its length */
    /* XXH3-128 of the text (of token files: of its ids as uint32), in the byte order of `xxh128sum`: big-endian */
    uint8_t hash[16];
    const char *source, *key;            /* parts of this allocation; key "": the document has none */
};
/* Gets a document. Free *out with drt_free. */
DRT_CALL drt_store_document(struct drt_store *store, struct drt_document **out, int64_t document);
/* Finds the document with this content hash (drt_document.hash), for example before an add.
 * DRT_NOT_FOUND: there is none. */
DRT_CALL drt_store_find_document(struct drt_store *store, int64_t *document, const uint8_t hash[16]);
struct drt_chunk {
    int64_t id, document, in_document;   /* in_document: number of the chunk in its document */
    int64_t token_offset;                /* of its first token in the document */
    int32_t n_tokens, reserved;          /* n_tokens: at most the model's chunk */
};
/* Gets the given chunks, in their order: out[n], ids[n, chunk] (-1 after the end of a short chunk), rows[n, dim]
 * (landmarks). Any of the three outputs may be NULL. */
DRT_CALL drt_store_chunks(struct drt_store *store, struct drt_chunk *out, int32_t *ids, float *rows,
                          const int64_t *chunks, int64_t n);
/* Draws chunks[n] uniformly from the existing ones, independently of each other. The same seed gives the same chunks.
 * DRT_NOT_FOUND: the store has no chunk. */
DRT_CALL drt_store_sample(struct drt_store *store, int64_t *chunks, int64_t n, uint64_t seed);
/* Get the text of a chunk or of a whole document. DRT_MISMATCH: the store was made with another tokenizer. Free the
 * text with drt_free. A document's text is decoded from its ids, so it is the text of the source except for the
 * tokenizer's normalisation. */
DRT_CALL drt_store_chunk_text(struct drt_store *store, struct drt_tokenizer *tokenizer, char **text, size_t *bytes,
                              int64_t chunk);
DRT_CALL drt_store_document_text(struct drt_store *store, struct drt_tokenizer *tokenizer, char **text, size_t *bytes,
                                 int64_t document);
DRT_CALL drt_store_document_ids(struct drt_store *store, int32_t **ids, int64_t *n, int64_t document);

/* Landmark rows in the store's files, which are mapped and not copied. A handle maps one file. The rows stay valid
 * until drt_landmarks_close, also if the store is closed or changed. */
struct drt_landmarks;
/* Maps the file that has chunk `first`. The rows begin there, and end at the end of the file or before the next dropped
 * chunk. DRT_NOT_FOUND: first is dropped, or not below drt_store_info.chunks. To read all rows of a store, call
 * drt_landmarks_next(0), and then drt_landmarks_next(first + n). */
DRT_CALL drt_landmarks_open(struct drt_landmarks **out, struct drt_store *store, int64_t first);
DRT_API void drt_landmarks_close(struct drt_landmarks *landmarks);
struct drt_landmark_rows {
    const uint16_t *rows;                /* [n, dim] IEEE fp16, little-endian, dense; read-only */
    int64_t first, n;                    /* chunk ids first .. first + n - 1 */
    int32_t dim, reserved;
};
DRT_CALL drt_landmarks_rows(const struct drt_landmarks *landmarks, struct drt_landmark_rows *out);
/* For a store with landmarks "i8": number i of row r is codes[r * dim + i] * scales[r], which is an fp16 number. */
struct drt_landmark_codes {
    const int8_t *codes;                 /* [n, dim], dense; read-only */
    const float *scales;                 /* [n] */
    int64_t first, n;                    /* chunk ids first .. first + n - 1 */
    int32_t dim, reserved;
};
/* DRT_UNSUPPORTED, from either function: the store's landmarks have the other type (drt_store_info.landmarks). */
DRT_CALL drt_landmarks_codes(const struct drt_landmarks *landmarks, struct drt_landmark_codes *out);
/* *first: the smallest id of an existing chunk that is >= from; -1: there is none. */
DRT_CALL drt_landmarks_next(struct drt_store *store, int64_t *first, int64_t from);

/* ---- building a store ---------------------------------------------------------------------------------------- */
/* A document of a callback, borrowed until the callback is called again. source and key may be NULL ("memory", ""). */
struct drt_text { size_t size; const char *text; size_t bytes; const char *source, *key; };
/* Returns 1: *out is the next document; 0: there are no more; negative: stop, and the build returns DRT_INTERRUPTED.
 * It is called by one thread at a time, which may be a thread of the library. `size` of *out is set, and all other
 * members are zero. */
typedef int drt_next_text(void *context, struct drt_text *out);
struct drt_build_config {
    size_t size;
    /* Either files, folders or "-" (docs/inputs.md), in this order ... */
    const char *const *inputs; int n_inputs;
    /* "auto" (NULL), "jsonl", "txt", "u16", "u32", "megatron", "parquet", "arrow" */
    const char *format;
    const char *text_field;              /* of jsonl, parquet and arrow; NULL: "text" */
    const int64_t *eod_id; /* of token files: the id between documents; NULL: the model's eos_id; -1: none */
    bool skip_bad_lines, no_follow;      /* no_follow: symbolic links in folders are skipped */
    /* ... or documents of a callback. A build that was stopped resumes if the callback gives the same documents from
     * the first one on. Documents that are stored already are compared and skipped. */
    drt_next_text *next; void *next_context;
    bool append; /* adds to a published store; otherwise makes a new store, or continues a stopped build */
    bool restart;                        /* drops an unfinished build instead of resuming it */
    const char *index;                   /* "auto" (NULL), "exact", or a FAISS factory string such as "IVF4096,SQ8" */
    uint64_t max_ram;                    /* for everything, including the model, in bytes; 0: 4 GiB */
    int64_t shard_chunks;                /* 0: 16384 */
    struct drt_progress progress;
    /* Builds only part number `part` (from 1) of `parts` parts for drt_store_join. Parts have equal bytes of the
     * inputs, and no index. Each needs its own folder. 0 of 0: the whole. Not with documents of a callback. */
    int part, parts;
    /* Of a new store: "f16" (NULL), "i8": half the bytes, rounded to 8 bits, or "none": no chunk is encoded, and words
     * find chunks, which is what a token memory needs. A Base LM makes landmarks of its states. */
    const char *landmarks;
    /* Then also makes the keys of all tokens for a token memory (docs/token-memory.md, "Stored keys"), as drt-index
     * keys does with this model. With `append`, a store that has keys of this model and rounding gets those of its new
     * chunks in any case. DRT_MISMATCH, before anything is built: it has keys of another model or rounding. */
    bool keys;
};
struct drt_report {
    size_t size;
    /* Counts of this call. documents: all that were read; of these, duplicates and empty ones are not stored. */
    int64_t documents, duplicates, empty, chunks, tokens;
    /* bad lines of jsonl, and rows without text; files of folders that are not text */
    int64_t skipped_lines, passed_over;
    int64_t resumed_documents, resumed_chunks;            /* those that an earlier, stopped build had stored */
    uint64_t generation;
    bool already_built;                  /* the store had all of it already, and nothing was done */
    double seconds, encode_seconds, tokenize_seconds, publish_seconds;
    /* Keys of a token memory: files; of these, those that this call made; chunks whose keys it computed. 0: none were
     * to make. keys_lacking: chunks that the store's keys do not have, because they are damaged, or of another model or
     * rounding; a note of `progress` names the remedy. */
    int64_t keys_files, keys_made, keys_chunks, keys_lacking;
    uint64_t keys_bytes;
    double keys_seconds;
};
/* Builds or adds. Readers see nothing before it is complete. report may be NULL. DRT_INTERRUPTED: sealed shards
 * are kept, and repeating the call continues. DRT_BUSY: another process writes, or this process has the store open
 * and must close it. Keys are made after the chunks are published. If they fail, the call fails, and repeating it makes
 * those that are missing. A relative `path` is that of the working directory when the call begins; relative `inputs`
 * are opened when they are read. */
DRT_CALL drt_store_build(const char *path, struct drt_model *model, const struct drt_build_config *config,
                         struct drt_report *report);

/* ---- looking after a store ------------------------------------------------------------------------------------- */
/* These functions take folders, as drt_store_build does. DRT_BUSY: this process has one of their stores open and must
 * close it, or another process writes. config and report may be NULL, except config of a deletion. Each change is one
 * transaction: a reader sees the store before it or after it, also if the process is killed. */
struct drt_finding { const char *file, *problem, *remedy; };  /* borrowed for the callback; remedy: a sentence */
struct drt_verify_config {
    size_t size;
    bool deep; /* compares every byte with its checksum; otherwise checks names, sizes and records */
    void (*on_finding)(void *context, const struct drt_finding *finding); /* called for each problem; may be NULL */
    void *context;
    struct drt_progress progress;
};
/* *problems: number of damaged or missing things. The result is DRT_OK also if it is not 0. The call fails if the store
 * cannot be read at all. */
DRT_CALL drt_store_verify(const char *path, const struct drt_verify_config *config, int64_t *problems);

struct drt_delete_config {
    size_t size;
    /* Either ids documents[n_documents], or sources[n_sources], patterns of fnmatch(3) for drt_document.source, or
     * `keys` below. */
    const int64_t *documents; int64_t n_documents;
    const char *const *sources; int n_sources;
    bool dry_run;                        /* only counts; nothing is changed */
    void (*on_document)(void *context, const struct drt_document *document); /* called for each document; may be NULL */
    void *context;
    struct drt_progress progress;
    /* Documents whose drt_document.key is one of keys[n_keys]; with sources too, only those that match both. */
    const char *const *keys; int n_keys;
};
struct drt_change_report {
    size_t size;
    int64_t documents, chunks, tokens;   /* tokens: of a compaction, those that this call copied */
    uint64_t generation;                 /* of the store at `path` after the call */
};
/* Deletes documents. Views that are opened afterwards have neither the documents nor their chunks; open views in other
 * processes keep them. All other ids stay, and files keep their sizes (drt_store_compact). Documents that were deleted
 * before are skipped. The report counts the deleted ones. DRT_NOT_FOUND: there is no document of that number. */
DRT_CALL drt_store_delete(const char *path, const struct drt_delete_config *config, struct drt_change_report *report);

struct drt_compact_config {
    size_t size;
    const char *index;                   /* as in drt_build_config; NULL: that chosen for `from`, or "auto" */
    uint64_t max_ram;                    /* for making the index, in bytes; 0: 1 GiB */
    int64_t shard_chunks;                /* 0: 16384 */
    int threads;                         /* 0: one per processor */
    struct drt_progress progress;
    const char *landmarks;               /* "f16" or "i8"; NULL: those of `from` */
    /* GPUs that make the index, from GPU 0 on: the centroids on the first, the chunks' lists on all, with the same
     * bytes for any number of GPUs. -1: all GPUs; 0: the CPU. DRT_INVALID: there are fewer; DRT_UNSUPPORTED: none. */
    int devices;
};
/* Makes a new store at `path` of the remaining documents of `from`, in their order, with new ids. Nothing is encoded
 * again. `from` is only read. A call that was stopped or killed can be repeated. DRT_INVALID: no document is left.
 * DRT_MISMATCH: `path` is something else. */
DRT_CALL drt_store_compact(const char *path, const char *from, const struct drt_compact_config *config,
                           struct drt_change_report *report);

struct drt_join_config {
    size_t size;
    bool copy;                           /* copies and checks the parts' files instead of linking them (hard links) */
    bool lexical;                        /* also makes an index of tokens over all chunks */
    const char *index;                   /* as in drt_build_config; NULL: none now; a later addition selects one */
    uint64_t max_ram;                    /* for making the indexes, in bytes; 0: 1 GiB */
    int threads;                         /* 0: one per processor */
    struct drt_progress progress;
    int devices;                         /* as in drt_compact_config */
};
struct drt_join_report {
    size_t size;
    int64_t shards, documents, chunks, tokens;            /* of the joined store, including copies */
    int64_t copies;                      /* documents that an earlier part also has, and that are not in view */
    int64_t linked, copied;              /* files that this call linked or copied */
    uint64_t generation;
    bool already_joined;                 /* the parts were joined before, and nothing was done */
};
/* Makes one store at `path` of parts[n_parts], in any order, which drt_store_build made (drt_build_config.part). A call
 * that was stopped or killed can be repeated. DRT_MISMATCH: the parts differ in corpus, model or number of parts, or
 * one is missing or occurs twice. */
DRT_CALL drt_store_join(const char *path, const char *const *parts, int n_parts, const struct drt_join_config *config,
                        struct drt_join_report *report);

struct drt_freeze_config { size_t size; bool copy; struct drt_progress progress; }; /* copy: as in drt_join_config */
struct drt_freeze_report {
    size_t size;
    int64_t documents, chunks;           /* of the generation, including dropped ones */
    int64_t linked, copied;              /* files that this call linked or copied */
    uint64_t generation;
    bool already_frozen;                 /* the snapshot existed before, and nothing was done */
};
/* Makes a snapshot of the newest generation of `from` at `path`: a store that is never changed (DRT_READ_ONLY) and is
 * read without locks, also on network file systems and read-only media. It is made under another name, and then
 * renamed to `path`. */
DRT_CALL drt_store_freeze(const char *path, const char *from, const struct drt_freeze_config *config,
                          struct drt_freeze_report *report);

/* ---- searching ----------------------------------------------------------------------------------------------- */
struct drt_searcher;
enum drt_search_kind {
    /* by landmarks: the store's index, or on a GPU the fastest kind; LEXICAL, with scores of BM25, if the store
     * has no landmarks */
    DRT_SEARCH_AUTO = 0,
    /* BM25 over the last 128 ids of a text; DRT_UNSUPPORTED: the store has no index of tokens (drt_store_info.lexical),
     * which drt-index lexical makes */
    DRT_SEARCH_LEXICAL = 1,
    DRT_SEARCH_HYBRID = 2                /* both kinds, merged */
};
struct drt_searcher_config {
    size_t size;
    enum drt_search_kind kind;
    bool exact;                          /* scans all landmarks, so that no chunk is missed */
    bool exact_fallback;                 /* scans all landmarks if the index finds fewer than k */
    int nprobe;                          /* lists of the index that a query visits; 0: the index's default */
    int candidates;                      /* candidates from the index for exact scores; 0: at least 4 * k */
    float landmark_weight;               /* HYBRID: ranks by BM25 + landmark_weight * score; 0: by reciprocal ranks */
    int threads;                         /* of the search, without a model; 0: one per processor */
    /* Searches landmarks by drt-index worker --listen processes at these addresses, "HOST:PORT,HOST:PORT", one for each
     * slice of the store, in order. The hits are the same. NULL: this process searches. DRT_IO: a worker was lost, and
     * the message names it; the next search connects again. DRT_MISMATCH: a worker has another store or slice. */
    const char *workers;
    const char *worker_key;              /* the key that the workers require; NULL: none */
    int worker_timeout;                  /* seconds to wait for an answer; 0: 60 */
    /* GPUs that search landmarks, from GPU 0 on, each a slice of them, if the model is on a GPU. The hits are the same.
     * -1: all GPUs; 0, 1: the model's. DRT_INVALID: there are fewer. */
    int devices;
};
/* model: makes queries of texts, and its device searches. DRT_MISMATCH: the store is of another model. NULL: only
 * vectors can be searched, on the CPU. A search waits for other calls that use the store or the model. */
DRT_CALL drt_searcher_open(struct drt_searcher **out, struct drt_store *store, struct drt_model *model,
                           const struct drt_searcher_config *config);
DRT_API void drt_searcher_close(struct drt_searcher *searcher);
struct drt_searcher_info {
    size_t size;
    char kind[32], text[512];            /* "index"; for users: "index IVF64,SQ8, 16 of 64 lists" */
    bool exact;
    int64_t visited, lists;              /* 0 of 0: it uses no lists */
    uint64_t device_bytes;               /* of landmarks and posting lists that were copied to a GPU */
    int64_t queries, missing;            /* so far; missing: queries for which the index found too few chunks */
};
DRT_CALL drt_searcher_info(struct drt_searcher *searcher, struct drt_searcher_info *out);

struct drt_range { int64_t begin, end; };                 /* chunk ids begin .. end-1; equal: none */
/* chunk -1, in the last slots: fewer than k were found */
struct drt_hit { int64_t chunk; float score; int32_t reserved; };
struct drt_search {
    size_t size;
    int k;                               /* hits of each query; 0: 10 */
    int nprobe;                          /* 0: the searcher's */
    /* [n] chunks that a query must not find, such as those of its document; NULL: none */
    const struct drt_range *exclude;
};
/* Write hits[n * k], best first. The score of a hit is q.l / sqrt(dim), also if the hits are ranked by something else;
 * in a store without landmarks it is BM25's.
 * Queries are vectors[n, dim]; or texts[n] of bytes[n] (NULL: each ends with a NUL); or ids[n] of n_ids[n].
 * DRT_INVALID: a text is empty. */
DRT_CALL drt_search_vectors(struct drt_searcher *searcher, struct drt_hit *hits, const float *vectors, int64_t n,
                            const struct drt_search *how);
DRT_CALL drt_search_texts(struct drt_searcher *searcher, struct drt_hit *hits, const char *const *texts,
                          const size_t *bytes, int64_t n, const struct drt_search *how);
DRT_CALL drt_search_ids(struct drt_searcher *searcher, struct drt_hit *hits, const int32_t *const *ids,
                        const int64_t *n_ids, int64_t n, const struct drt_search *how);

/* ---- running texts: generation and log-probabilities ----------------------------------------------------------- */
/* A session is one running text. Any number of sessions may use one model, store and searcher. A session is for one
 * thread at a time. */
struct drt_session;
/* Where a token memory takes the keys of a store's chunks from (docs/token-memory.md, "Stored keys"). AUTO: from the
 * store if it has keys of the model, else the model computes them. STORED: from the store. DEVICE: from the store; the
 * first session copies all of them into the GPU's memory, where further sessions use them, too; on a CPU as STORED.
 * ENCODED: the model computes them. */
enum drt_memory_keys {
    DRT_MEMORY_KEYS_AUTO = 0,
    DRT_MEMORY_KEYS_STORED = 1,
    DRT_MEMORY_KEYS_DEVICE = 2,
    DRT_MEMORY_KEYS_ENCODED = 3
};
enum drt_memory { DRT_MEMORY_NONE = 0, DRT_MEMORY_OWN = 1, DRT_MEMORY_CORPUS = 2, DRT_MEMORY_BOTH = 3 };
struct drt_session_config {
    size_t size;
    /* The sources that the text retrieves from: its own past (self), a store (corpus). corpus, and a memory of the
     * corpus, need a store, or a searcher of the same model, or both (the searcher must be of the store). searcher
     * NULL: the session makes one; for a memory it has the kind that memory.json names. On a GPU sessions should use
     * one searcher, because each searcher may copy the landmarks. */
    bool self, corpus;
    struct drt_store *store;
    struct drt_searcher *searcher;
    bool exclude;                        /* never retrieves chunks of exclude_document */
    int64_t exclude_document;
    /* Token memory (docs/token-memory.md); only without self and corpus. */
    enum drt_memory memory;
    const char *memory_config; /* a memory.json; NULL: the model's, on a CPU without stored keys its memory-cpu.json */
    const char *lexical;                 /* reserved, must be NULL: CORPUS and BOTH read the store's lexical index */
    int64_t memory_past;                 /* ids of the text's own past; 0: 2048 */
    /* Options of sampling, as in drt-generate. */
    float temperature;                   /* 0: greedy */
    float top_p, min_p;                  /* 0: off */
    int top_k;                           /* 0: off */
    float repeat_penalty;                /* 0: off */
    int repeat_last;                     /* 0: 64 */
    uint64_t seed;
    int64_t max_tokens;                  /* since the last feed; 0: no limit */
    const char *const *stops; int n_stops;                /* strings that end a generation; copied */
    bool ignore_eos;                     /* an end-of-document token does not end the generation */
    int top;                             /* number of most probable ids that are returned with a token; at most 64 */
    struct drt_progress progress;        /* stop is also called between the passes of a long feed */
    /* corpus: a found chunk is retrieved with up to so many chunks after it in its document, all within the model's
     * number of neighbours; 0: alone; at most 64 */
    int continuation;
    bool no_logprob;                     /* tokens have none (NaN): saves a pass over all logits. Only with top 0 */
    /* With a continuation, of self, too: a continuation begins so many ids before the end of what it continues, so that
     * a statement of up to overlap + 1 ids is read whole. Less than the ids of a chunk; 0: at its end */
    int overlap;
    /* With a searcher of words (DRT_SEARCH_LEXICAL or HYBRID): the query is the last so many ids, such as those of a
     * question; at most 128; 0: the last 128 */
    int query_tokens;
    /* The first so many ids of the text are a prompt: scores leave them out (NaN), and a memory of the corpus makes its
     * first search after them, as before a generation. 0: it searches from the first id on */
    int64_t skip;
    bool rewind;                         /* drt_session_rewind will be called: each feed keeps what it needs */
    enum drt_memory_keys memory_keys;    /* of a memory of the corpus */
    /* Of a memory of the corpus: chunks that a search finds, and ids between two searches; at most 1024; 0: as the file
     * has them. */
    int memory_k, memory_every;
};
DRT_CALL drt_session_open(struct drt_session **out, struct drt_model *model, const struct drt_session_config *config);
/* Begins another text with another config, as a new session of the model does, in the memory of this session, which is
 * much faster. No other call uses the session meanwhile. After a failure it can only be renewed or closed. */
DRT_CALL drt_session_renew(struct drt_session *session, const struct drt_session_config *config);
DRT_API void drt_session_close(struct drt_session *session);
/* Begins a new text, which does not depend on the old one. The random numbers begin again from `seed`. */
DRT_CALL drt_session_reset(struct drt_session *session, uint64_t seed);
/* number of ids of the text so far; 0 for NULL */
DRT_API int64_t drt_session_tokens(const struct drt_session *session);

struct drt_alternative { int32_t id; float logprob; };
/* Natural log-probabilities of n ids. logprob[i] is that of ids[i], given the whole text before it; NaN for the first
 * id of a text, and for those of drt_session_config.skip. alternatives[n, top]: the most probable ids, best first; id
 * -1 where logprob is NaN. All of it is one allocation. */
struct drt_scores {
    int64_t n, first;                    /* first: position of ids[0] in the text */
    int32_t top, reserved;
    const int32_t *ids;
    const float *logprob;
    const struct drt_alternative *alternatives;
    /* [n]: the part of the probability that a token memory gave; NULL: without a token memory */
    const float *memory_share;
    double sum;                          /* sum of logprob, without the NaN */
};
/* Appends to the text. Spellings of special tokens in a text become their ids. If the text is not trusted, encode it
 * with drt_tokenizer_encode without special tokens and feed the ids. An empty text at the start of a session becomes
 * the model's eos_id, after which a document begins. scores: may be NULL; otherwise free *scores with drt_free, which
 * has `top` (at most 64) alternatives for each id. A feed begins a new generation, with its own max_tokens and stop
 * strings. After a failure other than DRT_INVALID the session can only be reset or closed. */
DRT_CALL drt_session_feed(struct drt_session *session, const char *text, size_t bytes, struct drt_scores **scores,
                          int top);
DRT_CALL drt_session_feed_ids(struct drt_session *session, const int32_t *ids, int64_t n, struct drt_scores **scores,
                              int top);
/* Appends ids later, without scores. On a GPU each drt_session_prepare feeds one of them, in the pass of the other
 * sessions. The next call that needs the text of this session feeds those that are left. *left (may be NULL): number of
 * ids that are not fed yet; with n 0 the call only sets *left. */
DRT_CALL drt_session_feed_later(struct drt_session *session, const int32_t *ids, int64_t n, int64_t *left);
/* Computes logprobs[vocab_size] of the next id, before options of sampling are applied. */
DRT_CALL drt_session_logprobs(struct drt_session *session, float *logprobs);

/* Goes back to the end of the last feed of at least one id, for another generation with random numbers from `seed`. Its
 * tokens are those after drt_session_reset with this seed and the same feeds, bit for bit, without reading the text
 * again. DRT_UNSUPPORTED, and the session is as before: without drt_session_config.rewind, on a GPU, with self or
 * corpus, of a recurrent model or one with Landmark Attention, and after more than 16 chunks of tokens (of a model
 * without chunks 1,024): reset and feed. */
DRT_CALL drt_session_rewind(struct drt_session *session, uint64_t seed);

enum drt_end { DRT_END_NONE = 0, DRT_END_LENGTH = 1, DRT_END_EOS = 2, DRT_END_STOP = 3, DRT_END_CALLBACK = 4 };
enum drt_source { DRT_SOURCE_SELF = 0, DRT_SOURCE_CORPUS = 1 };
/* A chunk that the model read for a token. */
struct drt_neighbour {
    enum drt_source source;
    int32_t group; /* a group of upper layers, each of which retrieves separately; -1: an entry of the token memory */
    int64_t chunk;                       /* id in the store; for SELF, number of the chunk in this text */
    /* Position in its document of the first token that was read: the chunk's, or with an overlap that of a passage
     * which begins within the chunk and ends within the next one (group -1: the entry's). document -1: this text. */
    int64_t document, token_offset;
    /* the weights of a group sum to 1; for group -1, weight is a part of the token's probability, and score is 0 */
    float weight, score;
};
struct drt_token {
    size_t size;
    int32_t id;                          /* for END_EOS: the eos_id */
    enum drt_end end;                    /* not NONE: this is the last token */
    int64_t position;                    /* in the text */
    /* Text that can be shown now: whole characters, without any part of a stop string. So it can be empty, or include
     * text of earlier tokens. The last token has the rest. */
    const char *text; size_t bytes;
    const char *raw; size_t raw_bytes;   /* the bytes of this id (drt_tokenizer_bytes) */
    float logprob; /* before options of sampling are applied; with a token memory, of the mixture */
    float memory_share;                  /* the part of the probability that the token memory gave; otherwise 0 */
    const struct drt_alternative *alternatives; int32_t n_alternatives;      /* best first */
    int32_t n_neighbours;
    const struct drt_neighbour *neighbours; /* by group, best first; GCA has none before the second chunk */
};
/* Samples the next token and appends it to the text. Pointers are borrowed until the next call on this session.
 * DRT_INVALID: nothing was fed, or the generation has ended (feed more, or reset). */
DRT_CALL drt_session_next(struct drt_session *session, struct drt_token *out);
/* Computes for n <= 256 sessions of one model, each given once, what their next drt_session_next needs, in one pass
 * over the weights. drt_session_next then only samples, and several threads may call it at the same time, each for
 * another session. The time of a token is mostly that of reading the weights, so several texts take little longer than
 * one. On a CPU tokens and log-probabilities have the same bits with and without this call, and for any set of
 * sessions. On a GPU they have the same bits with this call for any set of sessions, also of one. Without it another
 * kernel computes them, which is faster for one session and rounds differently. drt_session_next computes the token of
 * a session itself if this call cannot: at its end, on a GPU with a token memory, on a CPU at the last id of a chunk.
 * *computed: number of sessions that were computed; may be NULL. If the retrieval of a session, or the search of its
 * token memory, fails, its next call fails, too. */
DRT_CALL drt_session_prepare(struct drt_session *const *sessions, int n, int *computed);
/* Calls drt_session_next until the end. If the callback returns true, generation stops: *end is DRT_END_CALLBACK, and a
 * further call continues (or drt_session_stop ends it). The token is borrowed. end may be NULL. */
typedef bool drt_on_token(void *context, const struct drt_token *token);
DRT_CALL drt_session_generate(struct drt_session *session, drt_on_token *on_token, void *context, enum drt_end *end);

/* Stops the generation. *text: text that was held back so far (the beginning of a character or of a possible stop
 * string), often empty. It is borrowed until the next call on this session; text and bytes may be NULL. Afterwards feed
 * more, or reset. */
DRT_CALL drt_session_stop(struct drt_session *session, const char **text, size_t *bytes);

struct drt_session_info {
    size_t size;
    int64_t tokens, chunks, queries;     /* tokens and chunks of the text; retrievals so far */
    int64_t cache_hits, cache_misses;    /* lookups of encoded chunks in the cache */
    double seconds, search_seconds, read_seconds, encode_seconds;            /* sums over all calls */
    char searched_by[512];               /* as drt_searcher_info.text; "": there is no corpus */
};
DRT_CALL drt_session_info(struct drt_session *session, struct drt_session_info *out);

/* Computes the log-probabilities of a text in a new session. config NULL: without retrieval. *scores:
 * free with drt_free. */
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
