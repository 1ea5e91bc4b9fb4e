/* params.h -- a model's weights: named float32 tensors in one block, checked against the config.
 *
 * The table of names and shapes comes from the config alone (model.md §12), so the same layout serves weights,
 * and later gradients and moments. Names are the published ones; a leading "module." is not accepted here
 * (drt-model convert strips it); a Base LM's begin with "language_model.". Tied head and ALiBi slope buffers in a file
 * are accepted and ignored. Tensors follow each other without gaps: q, k, v (gate, up) of a layer are one matrix
 * too. */
#pragma once
#include "base/formats/safetensors.h"
#include "base/status.h"
#include "model/model_config.h"
#include <stddef.h>
#include <stdint.h>

struct param { const char *name; int64_t rows, cols; const float *data; };   /* norm weights: rows 1 */
struct params;

/* The table without data: count, names, shapes, for init and for reports. Free with params_free. */
enum status params_describe(struct params **out, const struct model_config *config);
/* From an open safetensors file (F32, F16, BF16 are converted). A missing tensor, another shape, an unknown dtype,
 * or a tensor that the config does not know (out.*, in.*, grad.*, alt.* aside) is named. */
enum status params_load(struct params **out, const struct model_config *config, const struct safetensors *file);
/* N(0, 0.02^2) for matrices and the embedding (row pad_id zero), 1 for norms; retrieval projections get I added. */
enum status params_init(struct params **out, const struct model_config *config, uint64_t seed);
/* params_init, then every tensor that the file has, so that training may start from a model of another kind: a Base
 * LM's layers become the lower and then the upper ones of `config` in order; of a DRT model with more lower layers than
 * `config` the first are taken. What only retrieval and the token memory
 * read (encoder, GCA, landmarks, memory.*) keeps its first values where the file lacks it; any other tensor that is
 * missing, or one that the config does not have, is an error that names it. */
struct params_grafted { int taken, fresh, left; };        /* tensors: of the file, others, of the file but left out */
enum status params_graft(struct params **out, const struct model_config *config, const struct safetensors *file,
                         uint64_t seed, struct params_grafted *counts);
/* Embeddings of ids that the text of a training hardly had: only the head's gradient reaches them, which moves them all
 * into one direction, that of pad_id. Ids whose cosine with it exceeds `cosine` get the sum of three other ids' rows,
 * at the mean length of such rows; what copies other ids then copies them. pad_id >= 0. *renewed: their number. */
enum status params_renew(struct params *p, const struct model_config *config, double cosine, uint64_t seed,
                         int64_t *renewed);
/* How many numbers memory.gate.weight has (docs/model.md). */
enum { PARAMS_MEMORY_GATE = 5 };
enum status params_save(const struct params *p, const char *path, enum safetensors_dtype dtype,
                        const char *metadata_json);
void params_free(struct params *p);

int params_count(const struct params *p);
const struct param *params_at(const struct params *p, int index);
const float *params_get(const struct params *p, const char *name);   /* asserts that it exists */
int64_t params_elements(const struct params *p);

/* XXH3-128 over all that makes a landmark, in table order: embedding, enc_prenorm, encoder.*, lmk_k_proj, and the
 * K/V projections are left out (they do not move the landmark). Equal for F32/BF16 files of equal values. */
void params_landmark_fingerprint(const struct params *p, uint8_t out[16]);
/* The same over every tensor: which weights a file was made for. */
void params_fingerprint(const struct params *p, uint8_t out[16]);
