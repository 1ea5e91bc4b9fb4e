/* store_keys.h -- the keys of all tokens of a store for a token memory, computed once (docs/token-memory.md, "Stored
 * keys"; docs/store-format.md).
 *
 *   keys/NNNNN.keys   the chunks of file NNNNN of the layout (store/keys/keys_layout.h)
 *
 * A token's key is a row of `size` 8-bit codes with a scale: key = scale * code. A chunk has chunk_tokens rows. Rows
 * after the end of a short chunk, and rows of chunks that did not exist when the file was written, are 0. The chunks of
 * a store keep their ids, so a file stays valid; only the last one is written again after an add. No catalog record
 * names the files: a store without them is complete. */
#pragma once
#include "store/keys/keys_layout.h"
#include "store/store.h"

/* How the products of the passes that made the keys were rounded. Rows of both kinds are never in one file. */
enum store_keys_rounding {
    STORE_KEYS_ANY,                      /* in a request to read */
    STORE_KEYS_F32,
    STORE_KEYS_BF16                      /* weights and activations to bf16, on a GPU or a CPU */
};
const char *store_keys_rounding_name(int32_t rounding);   /* "f32", "bf16" */
/* What a file's keys were computed with. Files of another spec are not read. */
struct store_keys_spec {
    uint8_t model[16];                   /* fingerprint of weights and projection (params_fingerprint) */
    int32_t layer, size, chunk_tokens;   /* layer whose states are keys, from 1; numbers of a key */
    /* chunks of a window, and of its part whose keys are kept (indexer/build/key_windows.h). Reading: step 0: any */
    int32_t window, step;
    int32_t rounding;                    /* enum store_keys_rounding */
};

/* ---- reading ---- */
struct store_keys;
/* Opens the keys of a view's chunks, for one thread at a time; the view is borrowed. Files are mapped when they are
 * needed. model: for messages. STATUS_NOT_FOUND: the store has no keys, or not of all chunks. STATUS_MISMATCH: they
 * were computed with another spec. STATUS_CORRUPT: a file is damaged, or of another store. Messages name the remedy. */
enum status store_keys_open(struct store_keys **out, struct store_view *view, const struct store_keys_spec *spec,
                            const char *model);
void store_keys_close(struct store_keys *k);              /* NULL is fine */
struct store_key_rows { const int8_t *code; const float *scale; };      /* [chunk_tokens, size], [chunk_tokens] */
/* Gets the rows of a chunk of the view. They stay mapped until store_keys_close. */
enum status store_keys_chunk(struct store_keys *k, struct store_key_rows *out, int64_t chunk);
/* The same, and *n: the number of chunks from this one to the end of its file, whose rows follow. */
enum status store_keys_rows(struct store_keys *k, struct store_key_rows *out, int64_t *n, int64_t chunk);
/* From now on, chunks are read in ascending order: one file is mapped at a time, after its checksum is checked. */
void store_keys_in_order(struct store_keys *k);
/* Checks the checksums of all files of the view's chunks, and that all have the step and the rounding of the first. */
enum status store_keys_verify(struct store_keys *k, const struct progress *progress);
/* Bytes of the file of so many chunks. */
uint64_t store_keys_file_bytes(const struct store_keys_spec *spec, int64_t chunks);

/* The keys that a view's store has, whatever their spec. */
struct store_keys_state {
    struct store_keys_spec spec;         /* of the first undamaged file */
    int64_t chunks;                      /* whose keys of that spec there are; 0: there is no undamaged file */
    int64_t all;                         /* chunks of the view */
    int64_t files;                       /* of any kind, also damaged ones */
};
enum status store_keys_state(struct store_keys_state *out, struct store_view *view);

/* ---- writing ---- */
/* Whether the file already has the keys of all of its chunks in the view. A file that is missing, short, damaged or of
 * another spec is not complete. */
enum status store_keys_complete(bool *out, struct store_view *view, const struct keys_layout *layout, int64_t file,
                                const struct store_keys_spec *spec);
struct store_keys_file;
/* Begins a file of a view's store; store_keys_append adds rows in the order of chunks. store_keys_publish replaces an
 * earlier file, whole or not at all. */
enum status store_keys_begin(struct store_keys_file **out, struct store_view *view, const struct keys_layout *layout,
                             int64_t file, const struct store_keys_spec *spec);
/* rows [chunks*chunk_tokens]; code NULL: zeros, for chunks that do not exist. */
enum status store_keys_append(struct store_keys_file *f, struct store_key_rows rows, int64_t chunks);
/* Appends the rows of the earlier file, before any others, if it is undamaged and of the same spec. *chunks: their
 * number, or 0. */
enum status store_keys_append_earlier(struct store_keys_file *f, int64_t *chunks);
/* A file of the same spec that has more chunks meanwhile, by another process, stays. f is freed, also on failure. */
enum status store_keys_publish(struct store_keys_file *f);
void store_keys_discard(struct store_keys_file *f);       /* NULL is fine */
/* The files of keys of a store, of any spec: their number and bytes. */
struct store_keys_usage { int64_t files; uint64_t bytes; };
enum status store_keys_usage(struct store_keys_usage *out, const char *store);
/* Removes them. *removed: their number. */
enum status store_keys_remove(int64_t *removed, const char *store);
