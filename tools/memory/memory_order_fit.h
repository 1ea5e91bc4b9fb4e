/* memory_order_fit.h -- trains the weights that order the candidates of a search (docs/token-memory.md, "Order of the
 * candidates"), on what each candidate gives to the tokens t that follow the search.
 *
 * Candidate i has features x_i, and of token t the weight z_it of its entries and the weight n_it of those whose value
 * is t, both relative to any common factor of t. With weights v:
 *
 *   s_i = v . x_i    a_i = 1 for the k greatest s, else 0    P_t = sum a_i n_it / sum a_i z_it
 *   loss = mean over t and k of -log((1 - g_t) p_t + g_t P_t)      p: of the model; g: the gate's weight
 *
 * a jumps, so the gradient is that of exchanging candidates about the k-th, whose s is th:
 *
 *   u_i = d loss / d a_i    b_i = sigmoid((s_i - th) / width)    K_i = b_i (1 - b_i)
 *   gradient = sum K_i (u_i - U - R s_i) x_i
 *
 * width: a quarter of the distance of the k/2-th and the 2k-th s, so the scale of v does not matter. U + R s: the line
 * that fits u best with weights K. Without U, that any further candidate lowers the loss makes all s equal. R: what s
 * tells already, which would only scale v. If a search found at most k candidates, it has no gradient.
 *
 * Adam draws searches so that each file counts the same, and keeps the deviation of s within a search at 1, and the
 * weights of all features but the length at 0 or above. Any number of threads gives the same bits. */
#pragma once
#include "base/progress.h"
#include "base/system/threads.h"
#include "kernels/lexical/candidate_features.h"
#include <stdbool.h>
#include <stdint.h>

/* TOKENS: t of a search at most. KS: numbers of read candidates that the loss is a mean over. */
enum { MEMORY_ORDER_TOKENS = 64, MEMORY_ORDER_KS = 3 };
/* found: its candidates, the first of each array. file: 0 .. 63. held_out: not trained on. */
struct memory_order_search { int found, tokens, file; bool held_out; };
/* Searches [n] in the order of the texts; each array has space for `capacity`. z and right have 0 after the last token
 * of a search; features, z and right after its last candidate are not read. */
struct memory_order_samples {
    int64_t n, capacity;
    int candidates;
    struct memory_order_search *search;
    float *features;                     /* [n][candidates][CANDIDATE_FEATURES] */
    uint16_t *z, *right;                 /* [n][candidates][MEMORY_ORDER_TOKENS] bf16: z, n */
    float *lm, *gate;                    /* [n][MEMORY_ORDER_TOKENS]: p, g */
};
/* Bytes of a candidate. */
enum { MEMORY_ORDER_BYTES = CANDIDATE_FEATURES * 4 + MEMORY_ORDER_TOKENS * 2 * 2 };
enum status memory_order_samples_create(struct memory_order_samples *out, int64_t capacity, int candidates);
void memory_order_samples_free(struct memory_order_samples *s);

/* k [ks]: the numbers that are read. */
struct memory_order_reads { int ks, k[MEMORY_ORDER_KS]; };
struct memory_order_reads memory_order_reads_of(int k);   /* k, k/4 and k/16, without those below 8 except k */

/* The loss over the listed searches [n], and its gradient; gradient NULL: not wanted. STATUS_NO_MEMORY. */
struct memory_order_loss {
    const struct memory_order_samples *samples;
    struct memory_order_reads reads;
    const double *weights;               /* [CANDIDATE_FEATURES] */
};
enum status memory_order_loss(double *loss, double *gradient, const struct memory_order_loss *of,
                              const int64_t *searches, int64_t n, struct threads *threads);

enum { MEMORY_ORDER_STEPS = 2400 };      /* that programs take */
struct memory_order_fit_config {
    struct memory_order_reads reads;
    double start[CANDIDATE_FEATURES];    /* the order of the search itself */
    uint64_t seed;
    int steps;
    const struct progress *progress;     /* NULL is fine */
};
/* Trains on the searches that are not held out, from `start` on. A feature that has one value in each search gets
 * weight 0. STATUS_INTERRUPTED: the progress requested a stop. STATUS_INVALID: nothing to train on, or numbers that
 * are not finite. */
enum status memory_order_fit(double weights[CANDIDATE_FEATURES], const struct memory_order_samples *samples,
                             const struct memory_order_fit_config *config, struct threads *threads);
/* Writes the loss with exactly the first k candidates read, in nats a token, a mean over files: of the searches that
 * are held out, or of the others. weights NULL: the candidates as found. NaN: there is no such search. */
enum status memory_order_read_loss(double *out, const struct memory_order_samples *samples, const double *weights,
                                   int k, bool held_out, struct threads *threads);
