/* params.h -- a model's weights: named float32 tensors in one block, checked against the config.
 *
 * The table of names and shapes depends only on the config (model.md §12). So weights, gradients and moments have the
 * same layout. Names are the published ones. A leading "module." is not accepted (drt-model convert removes it). The
 * names of a Base LM begin with "language_model.". A tied head and buffers of ALiBi slopes in a file are accepted and
 * ignored. Tensors are adjacent, without gaps, so q, k, v (and gate, up) of a layer are also one matrix. */
#pragma once
#include "base/formats/safetensors.h"
#include "base/status.h"
#include "model/model_config.h"
#include <stddef.h>
#include <stdint.h>

struct param { const char *name; int64_t rows, cols; const float *data; };   /* norm weights: rows 1 */
struct params;

/* Makes the table without data: count, names, shapes, for init and for reports. Free with params_free. */
enum status params_describe(struct params **out, const struct model_config *config);
/* Loads from an open safetensors file; F16 and BF16 are converted to F32. Messages name a missing tensor, a wrong
 * shape, an unknown dtype, or a tensor that the config does not have (except out.*, in.*, grad.*, alt.*). */
enum status params_load(struct params **out, const struct model_config *config, const struct safetensors *file);
/* Draws N(0, 0.02^2) for matrices and the embedding (row pad_id is zero) and sets norms to 1. The identity is added to
 * retrieval projections. */
enum status params_init(struct params **out, const struct model_config *config, uint64_t seed);
/* Initializes as params_init does, then copies every tensor that the file has. So training can start from a model of
 * another kind: a Base LM's layers become the lower and then the upper layers of `config`, in order; of a DRT model
 * with more lower layers than `config`, the first are taken. Tensors that only retrieval and the token memory read
 * (encoder, GCA, landmarks, memory.*, landmark_sketch.idf) keep their first values if the file lacks them, or has a
 * projection of keys of another size. memory.* of the file are left out if the config has no token memory,
 * landmark_sketch.idf if it has no sketch. Any other missing tensor, and one that the config does not have, is an error
 * that names it. */
/* numbers of tensors: from the file; with first values; of the file, but not used */
struct params_grafted { int taken, fresh, left; };
enum status params_graft(struct params **out, const struct model_config *config, const struct safetensors *file,
                         uint64_t seed, struct params_grafted *counts);
/* Sets new embeddings of ids that hardly occurred in the training text. They had gradients only from the head, which
 * moves them all in one direction, that of pad_id. Ids whose cosine with it exceeds `cosine` get the sum of the rows of
 * three other ids, scaled to the mean length of such rows. A layer that copies other ids then also copies these. pad_id
 * must be >= 0. *renewed: number of these ids. */
enum status params_renew(struct params *p, const struct model_config *config, double cosine, uint64_t seed,
                         int64_t *renewed);
/* Number of elements of memory.gate.weight (docs/model.md). */
enum { PARAMS_MEMORY_GATE = 5 };
enum status params_save(const struct params *p, const char *path, enum safetensors_dtype dtype,
                        const char *metadata_json);
void params_free(struct params *p);

int params_count(const struct params *p);
const struct param *params_at(const struct params *p, int index);
const float *params_get(const struct params *p, const char *name);   /* asserts that it exists */
void params_set(struct params *p, const char *name, const float *values);             /* asserts that it exists */
int64_t params_elements(const struct params *p);

/* Computes XXH3-128 over all tensors that make a landmark, in table order: embedding, enc_prenorm, encoder.*,
 * lmk_k_proj; of a Base LM language_model.* and landmark_sketch.idf. The K/V projections and memory.* are left out,
 * because they do not change the landmark. Files of F32 and BF16 with equal values give the same result. */
void params_landmark_fingerprint(const struct params *p, uint8_t out[16]);
/* The same over all tensors: identifies the weights that a file was made for. */
void params_fingerprint(const struct params *p, uint8_t out[16]);
