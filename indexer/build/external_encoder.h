/* external_encoder.h -- an external encoder (a BERT) as a store's retriever: it makes landmarks of chunks and vectors
 * of queries (docs/external-encoders.md).
 *
 * A chunk's ids are decoded to text, and the encoder's own WordPiece and network encode the text. The fingerprint of
 * such a store covers the encoder's weights, vocabulary and kind, and the tokenizer that made the chunks. One thread at
 * a time. */
#pragma once
#include "data/tokenizer/tokenizer.h"
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "store/store.h"

/* How vectors are normalized and compared. */
enum external_kind {
    EXTERNAL_AUTO,                       /* the kind of the store; COSINE for a new store */
    EXTERNAL_COSINE,                     /* vectors of length 1 (MiniLM, Contriever as in the paper) */
    EXTERNAL_DOT,                        /* without normalization (Contriever as it was trained) */
    EXTERNAL_E5,                         /* vectors of length 1; the texts begin with "query: " or "passage: " */
    EXTERNAL_KINDS
};
extern const char *const external_kind_names[EXTERNAL_KINDS];

struct external_encoder_config {
    const char *folder;                  /* docs/external-encoders.md */
    enum external_kind kind;
    struct device *device; enum dtype type;
    const struct tokenizer *tokenizer;   /* of the store's chunks */
    const struct model_config *model;    /* gives the chunk size and vocab_size */
};
struct external_encoder;
/* Opens the encoder. What config names is borrowed until external_encoder_close. */
enum status external_encoder_open(struct external_encoder **out, const struct external_encoder_config *config);
void external_encoder_close(struct external_encoder *e);  /* NULL is fine */
struct store_fingerprint external_encoder_fingerprint(const struct external_encoder *e);
/* Checks whether `store` was made with this encoder. AUTO becomes the store's kind. STATUS_MISMATCH: it was not, as in
 * store_check_fingerprint. */
enum status external_encoder_check(struct external_encoder *e, const char *path,
                                   const struct store_fingerprint *store);
int64_t external_encoder_batch(const struct external_encoder *e);         /* a good number of chunks for one call */
uint64_t external_encoder_bytes(const struct external_encoder *e);        /* device memory held */

/* Makes landmarks [n, dim] from chunks: ids [n, chunk], where -1 follows the last id of a short chunk. */
enum status external_encoder_chunks(struct external_encoder *e, float *rows, const int32_t *ids, int64_t n);
/* The same as a store's encoder (indexer_landmarks, store_repair); valid until e is closed. */
struct store_encoder external_encoder_store(struct external_encoder *e);
/* Makes query vectors of chunks, or of a text. They are multiplied by sqrt(dim), so that the scores of a search are
 * cosines (DOT: inner products). */
enum status external_encoder_queries(struct external_encoder *e, float *rows, const int32_t *ids, int64_t n);
enum status external_encoder_text(struct external_encoder *e, float *row, const char *text, size_t bytes);
