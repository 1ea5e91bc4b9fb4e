/* ablation_work.c -- the work of the parts of a plan: operations, which are divided by the device's rate, and seconds
 * on the processor, which do not depend on the device. The latter were measured on 16 cores of a machine with an H200
 * (docs/ablation.md). */
#include "base/system/processors.h"
#include "tools/ablation/ablation_plan.h"
#include <string.h>

static const double start_seconds = 2.5;      /* of the program, the device and the model */
static const double tokenizer_seconds = 6e-8; /* per byte of text, to train a tokenizer */
static const double encode_seconds = 1e-8;    /* per byte of text, to encode it */
static const double build_seconds = 1.7e-7;   /* per token, to read, tokenize and store it */
static const double lexical_seconds = 1.6e-7; /* per token, for the lexical index */
/* per chunk of the text on one core, for BM25 before a training; not measured */
static const double neighbour_seconds = 1e-3;
static const double open_seconds = 2e-8;     /* per token of the store, to copy landmarks to the device */
static const double overlap_seconds = 1e-7;  /* per token of the store, for its runs of 13 ids */
static const double score_seconds = 1.2e-5;  /* per scored token of a mode */
static const double retrieve_seconds = 5e-5; /* the same, with retrieval of chunks */
/* per scored token with a memory: passages are searched, read and sampled; on one core, the gates of two halves and of
 * all documents are fitted. The first number is a constant part, the second is per chunk of a search. */
static const double memory_seconds[2] = {1e-4, 1e-5};
static const double fit_seconds[2] = {2e-3, 1e-4};

/* The number of operations of a product that take the time of one operation of attention without tensor cores on a GPU
 * (Landmark Attention, recurrent states). It comes from the instructions of the kernels and was not measured. */
static const double plain_attention = 80;

static double cores_of(const struct ablation_config *c) {
    return c->threads > 0 ? (double)c->threads : (double)processors_available();
}

static double ablation_scored_tokens(const struct ablation_plan *plan) {
    const struct ablation_config *c = plan->config;
    double all = (double)plan->valid_bytes / 4;
    if (c->max_tokens > 0 && all > (double)c->max_tokens * (double)c->valid.count)
        all = (double)c->max_tokens * (double)c->valid.count;
    return all;
}

static double store_tokens(const struct ablation_plan *plan, enum ablation_store what) {
    return (double)(what == ABLATION_STORE_OTHER ? plan->other_bytes : plan->train_bytes) / 4;
}

/* Returns the operations of a forward pass per token: products, and attention over the positions of a window in a text
 * of `length`. Landmark Attention has one more position per block, and reads all blocks before a position. In a
 * recurrent layer tokens read the states; at the end of each block the states read each other and the block's
 * tokens. */
static double forward_work(const struct ablation_plan *plan, const struct ablation_model *m, double length) {
    const struct model_config *c = &m->config;
    const double hidden = c->hidden, plain = strcmp(plan->config->device, "cpu") == 0 ? 1 : plain_attention;
    const double window = (double)c->window < length / 2 ? (double)c->window : length / 2;
    const double products = 2 * (double)m->parameters, layers = model_config_layers(c);
    if (c->landmark_block > 0)
        return (products + plain * 4 * (length / 2) * hidden * layers) * (1 + 1.0 / c->landmark_block);
    const double states = c->recurrent_states, block = c->recurrent_layer > 0 ? c->recurrent_block : 1;
    return products + 4 * window * hidden * layers + plain * 4 * states * hidden * (2 + states / block);
}

/* A backward pass takes as long as two forward passes. With pool corpus, the candidates of each chunk are encoded
 * with gradients; every `refresh` steps all landmarks are computed; the search is exact. Passages are encoded
 * without gradients. */
void ablation_train_work(struct ablation_part *p, const struct ablation_plan *plan, const struct ablation_model *m) {
    const double tokens = (double)m->step_tokens, encoder = (double)m->encoder_parameters;
    const double text = (double)plan->train_bytes / 4, chunk = m->config.chunk > 0 ? m->config.chunk : 63;
    const double length = (double)m->length;
    p->work = 3 * forward_work(plan, m, length) * (double)m->steps * tokens;
    p->work += 6 * encoder * (double)(m->corpus_steps * m->candidates * m->config.groups) * tokens;
    p->work += 2 * encoder * text * (double)m->refreshes;
    p->work +=
        2 * (double)m->config.hidden * (text / chunk) * (tokens / chunk) * (double)(m->corpus_steps * m->config.groups);
    p->host = start_seconds + 1e-9 * text;
    if (m->passages == 0) return;
    p->work += forward_work(plan, m, length) * (double)(m->steps * m->passages * m->passage_chunks) * tokens;
    /* the factor 2: as many passages come from another sequence */
    p->work += 6 * encoder * (double)(2 * m->steps * m->passages) * tokens;
    p->host += 2 * text / chunk * neighbour_seconds / cores_of(plan->config);
}

void ablation_prepare_work(struct ablation_part *p, int64_t bytes, bool tokenizer) {
    p->host = 0.1 + (double)bytes * (tokenizer ? tokenizer_seconds : encode_seconds);
}

void ablation_build_work(struct ablation_part *p, const struct ablation_plan *plan, const struct ablation_store_use *s,
                         bool lexical) {
    const struct ablation_model *m = &plan->models[s->model];
    const double tokens = store_tokens(plan, s->what);
    double parameters = (double)m->encoder_parameters;
    if (s->what == ABLATION_STORE_EXTERNAL) parameters = plan->config->external_parameters;
    p->work = 2 * parameters * tokens;
    p->host = start_seconds + tokens * (build_seconds + (lexical ? lexical_seconds : 0));
}

/* Returns the factor for the `skip` tokens of each window, which are read but not scored. */
static double read_again(const struct ablation_config *c) {
    const double scored = (double)(c->context - c->skip);
    const double piece =
        c->document_tokens > 0 && (double)c->document_tokens < scored ? (double)c->document_tokens : scored;
    return 1 + (double)c->skip / piece;
}

static double search_work(const struct ablation_plan *plan, const struct ablation_score *s) {
    const struct ablation_model *m = &plan->models[s->model];
    return 2 * (double)m->config.hidden * store_tokens(plan, s->what) / 63;
}

/* The states of a passage's chunks are computed when it is read. Half of the passages were read before. */
static void fit_work(struct ablation_part *p, const struct ablation_plan *plan, const struct ablation_score *s) {
    const double tokens = ablation_scored_tokens(plan), memories = s->n_modes + 1;
    const double pass =
        forward_work(plan, &plan->models[s->model], (double)plan->config->context) * read_again(plan->config);
    p->work = tokens * pass * (2 + (double)plan->config->memory_k * (2 * 63) / s->every / 2);
    p->work += tokens * search_work(plan, s) / s->every;
    const double cores = cores_of(plan->config);
    const double k = (double)plan->config->memory_k;
    p->host += tokens * memories / 4 *
               (memory_seconds[0] + k * memory_seconds[1] + (fit_seconds[0] + k * fit_seconds[1]) / cores);
}

void ablation_score_work(struct ablation_part *p, const struct ablation_plan *plan, const struct ablation_score *s,
                         bool overlap) {
    const struct ablation_model *m = &plan->models[s->model];
    const double tokens = ablation_scored_tokens(plan), again = read_again(plan->config);
    const double held = s->store >= 0 ? store_tokens(plan, s->what) : 0;
    p->work = 0;
    p->host = start_seconds + held * (open_seconds + (overlap ? overlap_seconds : 0));
    if (s->how >= ABLATION_FIT) {
        fit_work(p, plan, s);
        return;
    }
    for (int i = 0; i < s->n_modes; i++) {
        const bool reads = strcmp(s->modes[i], "none") != 0;
        const bool searches = reads && s->store >= 0 && strcmp(s->modes[i], "self") != 0;
        double each = forward_work(plan, m, (double)plan->config->context);
        if (reads) each += 2 * (double)m->encoder_parameters * (double)m->config.topk;
        if (searches) each += search_work(plan, s) / 63;
        p->work += tokens * again * each;
        p->host += tokens * again * (reads ? retrieve_seconds : score_seconds);
    }
}
