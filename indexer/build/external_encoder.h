/* external_encoder.h -- an encoder of others as a store's retriever: landmarks of chunks, vectors of queries
 * (docs/external-encoders.md).
 *
 * A chunk's ids are decoded to text, which is encoded by the encoder's own WordPiece and network. The store that is
 * made has a fingerprint of its own: the encoder's weights, vocabulary and kind, and the tokenizer that cut the chunks.
 * One thread at a time. */
#pragma once
#include "data/tokenizer/tokenizer.h"
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "store/store.h"

/* How vectors are made and compared. */
enum external_kind {
    EXTERNAL_AUTO,                       /* a store's own kind, COSINE for a new store */
    EXTERNAL_COSINE,                     /* vectors of length 1 (MiniLM, Contriever as in the paper) */
    EXTERNAL_DOT,                        /* as they are (Contriever as it was trained) */
    EXTERNAL_E5,                         /* length 1, with "query: " and "passage: " before the texts */
    EXTERNAL_KINDS
};
extern const char *const external_kind_names[EXTERNAL_KINDS];

struct external_encoder_config {
    const char *folder;                  /* docs/external-encoders.md */
    enum external_kind kind;
    struct device *device; enum dtype type;
    const struct tokenizer *tokenizer;   /* of the store's chunks */
    const struct model_config *model;    /* its chunk and vocab_size */
};
struct external_encoder;
/* Borrows what config names until close. */
enum status external_encoder_open(struct external_encoder **out, const struct external_encoder_config *config);
void external_encoder_close(struct external_encoder *e);  /* NULL is fine */
struct store_fingerprint external_encoder_fingerprint(const struct external_encoder *e);
/* Whether `store` was made with this encoder. AUTO becomes the store's kind. STATUS_MISMATCH as
 * store_check_fingerprint. */
enum status external_encoder_check(struct external_encoder *e, const char *path,
                                   const struct store_fingerprint *store);
int64_t external_encoder_batch(const struct external_encoder *e);         /* chunks that a call should have */
uint64_t external_encoder_bytes(const struct external_encoder *e);        /* held in memory of the device */

/* Landmarks [n, dim] of chunks: ids [n, chunk], where -1 fills a short one. */
enum status external_encoder_chunks(struct external_encoder *e, float *rows, const int32_t *ids, int64_t n);
/* The same as a store takes it (indexer_landmarks, store_repair); valid as long as e. */
struct store_encoder external_encoder_store(struct external_encoder *e);
/* Vectors of queries, of chunks or of a text. They are multiplied by sqrt(dim), so that the scores of a search are
 * cosines (DOT: inner products). */
enum status external_encoder_queries(struct external_encoder *e, float *rows, const int32_t *ids, int64_t n);
enum status external_encoder_text(struct external_encoder *e, float *row, const char *text, size_t bytes);
