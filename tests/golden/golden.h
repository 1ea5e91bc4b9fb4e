/* golden.h -- one golden file during its run: its contents, the model made from it, and the lines printed so far.
 *
 * Every out.* tensor has exactly one line: compared, or "not compared" with the reason. A tensor that no rule names
 * fails the file. Failures of the library's calls end the program (tests/test.h). */
#pragma once
#include "base/formats/safetensors.h"
#include "decoder/decoder.h"
#include "encoder/encoder.h"
#include "kernels/ops.h"
#include "tests/test.h"
#include <stdbool.h>

struct golden {
    const char *path, *name;             /* name: without its folder */
    struct safetensors *file;
    struct device *dev;
    /* float32, or bf16 on a GPU: then differences are relative, and selections may differ */
    enum dtype type;
    void *device_memory[256]; int n_device_memory;        /* memory of the device, freed at the end of the file */
    bool *seen;                          /* [tensors] */
    const char *suffix;                  /* of the printed names, if a tensor is compared a second time */
    int failures;
    /* DRT cases only */
    struct model_config config;
    struct params *params;
    struct weights weights;
    struct encoder *encoder;             /* NULL for a Base LM */
    struct decoder *decoder;
};

static const double TOLERANCE = 5e-5, TOLERANCE_DECODE = 2e-4, TOLERANCE_LOSS = 1e-5;

/* In bf16: share of the root mean square of a tensor; of the number of selections. */
static const double TOLERANCE_BF16 = 0.1, CHOICES_BF16 = 0.25;

/* ---- golden_device.c: matrices of this program in memory of the device, of the case's type or float32 */
/* from NULL: zeros */
struct mat golden_put(struct golden *g, const float *from, int64_t rows, int64_t cols, enum dtype type);
void *golden_put_bytes(struct golden *g, const void *from, int64_t count, size_t size);
void golden_get(struct golden *g, float *to, struct mat from);       /* dense */
void golden_get_bytes(struct golden *g, void *to, const void *from, int64_t count, size_t size);
void golden_drop(struct golden *g);      /* frees all matrices */

/* ---- golden_file.c */
bool golden_has(const struct golden *g, const char *name);
/* the program ends when it is missing */
const struct tensor_view *golden_tensor(struct golden *g, const char *name);
float *golden_floats(struct golden *g, const char *name);                         /* malloc */
int32_t *golden_ints(struct golden *g, const char *name);                         /* malloc */
/* prints a line, and marks the tensor */
void golden_line(struct golden *g, const char *name, double difference, double tolerance);
/* Compares if the file has the tensor; equal infinities are equal, NaN never is. */
void golden_compare(struct golden *g, const char *name, const float *ours, int64_t n, double tolerance);
void golden_leave(struct golden *g, const char *name, const char *reason);        /* if the file has it */
void golden_finish(struct golden *g);    /* prints the tensors without a rule */
char *golden_name(char out[96], const char *format, ...) PRINTF_LIKE(2, 3);
void *golden_zeroed(int64_t count, size_t size);

/* ---- golden_run.c: a text through decoder and retriever, with all results that the files have */
struct golden_group { float *query, *score, *weight; int32_t *index, *source; };  /* [C, d], [C, k] each */
struct golden_run {
    int64_t length, positions, chunks;   /* L, L', C */
    int k, d, groups, chunk_positions;
    float *lower, *gca0, *final, *logits, *nll;
    struct golden_group group[MODEL_GROUPS_MAX];
};
void golden_run_create(struct golden_run *r, const struct golden *g, int64_t length);
void golden_run_free(struct golden_run *r);
struct decoder_watch golden_run_watch(struct golden_run *r);
/* One call over all ids; targets: labels shifted by one. */
void golden_run_forward(struct golden_run *r, struct golden *g, struct retriever *retriever, const int32_t *ids,
                        const int32_t *labels);
/* Sum and number of the scored positions in nll. */
double golden_run_loss(const struct golden_run *r, const int32_t *labels, int64_t *count);
/* Compares rows of index (source), and the values of their entries, as sets: `rows` rows of k results with K columns of
 * the file. */
struct golden_choice { const int32_t *index, *source; const float *weight, *score; int64_t rows; int k; };
void golden_compare_choice(struct golden *g, const struct golden_choice *ours, const char *index, const char *source,
                           const char *weight, const char *score, double tolerance);

/* ---- golden_memory.c: a corpus in memory with exact float32 landmarks (a store keeps them in fp16) */
struct retriever *golden_memory_create(struct golden *g, const int32_t *corpus_ids, int64_t corpus_chunks,
                                       bool own_past, bool corpus, int64_t own_chunks);
const float *golden_memory_landmarks(const struct retriever *r);                  /* [corpus_chunks, d] */
/* Passes calls to `inner`, with ids[i] = mask_id where mask[i] != 0. */
struct retriever *golden_masked_create(struct golden *g, struct retriever *inner, const int32_t *mask);

/* ---- one function for each kind of file */
void golden_forward(struct golden *g);   /* golden_forward.c: drt_* with out.logits or out.nll, lm_base */
void golden_train(struct golden *g);     /* golden_train.c: the same files through a training step, and grad.* */
void golden_corpus(struct golden *g);    /* golden_corpus.c */
void golden_decode(struct golden *g);    /* golden_decode.c */
void golden_gca(struct golden *g);       /* golden_gca.c */
int golden_tokenizer(const char *path, const char *name);        /* golden_tokenizer.c; number of failures */
