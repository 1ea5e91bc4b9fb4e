/* run.c -- see run.h: the loop over steps, checkpoints, validation. */
#include "train/run/run.h"
#include "base/clock.h"
#include "base/memory.h"
#include "kernels/device/collective.h"
#include "train/plot/plot.h"
#include "train/run/checkpoint.h"
#include "train/run/run_internal.h"
#include <math.h>
#include <string.h>

enum { BROKEN_STEPS_MAX = 20 };

static bool run_due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

/* ---- checkpoints and samples --------------------------------------------------------------------------------------
 */

static enum status run_write_checkpoint(struct run *r) {
    struct optimizer *o = step_optimizer(r->step);
    struct checkpoint *c = &r->state;
    size_t n = (size_t)params_elements(c->params);
    progress_step(r->options->progress, "checkpoint", "steps", c->step, r->config->schedule.steps);
    TRY(step_weights(r->step, c->params));
    for (int i = 0; i < 2; i++) {
        if (!c->moments[i]) TRY(memory_allocate_aligned(&c->moments[i], n));
        device_download(r->options->device, c->moments[i], optimizer_moment(o, i)->data, n * sizeof(float));
    }
    TRY(device_sync(r->options->device));
    TRY(run_log_sync(r->log));
    struct checkpoint kept = *c;
    if (run_due(c->step, r->config->refresh)) kept.index_weights = NULL;
    TRY(checkpoint_save(&kept, &r->kind));
    r->saved = c->step;
    return STATUS_OK;
}

static enum status run_save_checkpoint(struct run *r) {
    if (r->rank > 0) return STATUS_OK;
    if (r->saved != r->state.step) TRY(run_write_checkpoint(r));
    if (r->plotted == r->state.step) return STATUS_OK;
    /* A run that was killed here has an old plot, and maybe a part of a new one, although its checkpoint is complete. A
     * plot that cannot be written does not stop the run. */
    if (plot_refresh(r->options->folder) != STATUS_OK)
        progress_note(r->options->progress, "no plot: %s", status_message());
    r->plotted = r->state.step;
    return r->broken > 0 ? STATUS_OK : checkpoint_trim(r->options->folder, r->config->keep);
}

static enum status run_write_sample(struct run *r) {
    char name[64], path[FILE_PATH_MAX];
    if (r->rank > 0) return STATUS_OK;
    snprintf(name, sizeof name, "samples/step-%lld.txt", (long long)r->state.step);
    TRY(file_join(path, r->options->folder, name));
    TRY(step_weights(r->step, r->state.params));
    return sample_write(path, r->cpu, r->config, r->state.params, r->tokenizer);
}

/* ---- a step -------------------------------------------------------------------------------------------------------
 */

/* Whether the corpus is encoded before this step: before the first step that uses it, and after each multiple of
 * `refresh`. */
static bool run_refresh_due(const struct run *r, const struct step_now *how) {
    if (how->pool != POOL_CORPUS) return false;
    return !r->refreshed || run_due(how->optimizer.step - 1, r->config->refresh);
}

/* Keeps the weights that computed the index for checkpoints, so that a resumed run can compute the same index. */
static enum status run_refresh_corpus(struct run *r) {
    size_t n = (size_t)params_elements(r->state.params);
    struct device *dev = r->options->device;
    step_refresh_corpus(r->step);
    r->refreshed = true;
    if (!r->state.index_weights) TRY(memory_allocate_aligned(&r->state.index_weights, n));
    device_download(dev, r->state.index_weights, optimizer_master(step_optimizer(r->step))->data, n * sizeof(float));
    return device_sync(dev);
}

/* The norm of all parts together. It is not finite if one of them is not. */
static double run_gradient_norm(const struct step_report *r) {
    double sum = r->gradient_norm * r->gradient_norm;
    if (!(r->memory_gradient_norm < 0)) sum += r->memory_gradient_norm * r->memory_gradient_norm;
    if (!(r->retriever_gradient_norm < 0)) sum += r->retriever_gradient_norm * r->retriever_gradient_norm;
    return fabs(sqrt(sum));
}

static enum status run_count_skipped(struct run *r, const struct run_log_line *line) {
    if (!line->skipped) {
        r->broken = 0;
        return STATUS_OK;
    }
    r->state.skipped++;
    progress_note(r->options->progress, "step %lld: the loss is %g and the gradient's norm %g: skipped",
                  (long long)line->step, fabs(line->report.loss), run_gradient_norm(&line->report)); /* no "-nan" */
    if (++r->broken < BROKEN_STEPS_MAX) return STATUS_OK;
    char last[80] = "there is no checkpoint yet: begin again";
    if (r->saved >= 0) snprintf(last, sizeof last, "the last checkpoint is of step %lld: resume", (long long)r->saved);
    return fail(
        STATUS_INVALID,
        "%s: loss or gradient was not a number for %d steps up to step %lld; no such gradient reached the weights; "
        "%s with a lower lr or a longer warmup",
        r->options->folder, BROKEN_STEPS_MAX, (long long)line->step, last);
}

static enum status run_validate(struct run *r, struct run_log_line *line) {
    progress_step(r->options->progress, "validate", "steps", line->step, r->config->schedule.steps);
    enum pool_kind pool = (enum pool_kind)r->config->eval_pool;
    if (pool == POOL_CORPUS && !r->refreshed) pool = POOL_OWN_PAST; /* the index does not exist yet */
    struct validation_figure all;
    const struct validation_reads reads = {pool, r->config->schedule.memory_weight > 0, r->memory};
    TRY(validation_run(&all, &line->valid_figures, r->validation, r->step, &reads));
    line->validated = true;
    line->valid_loss = all.loss;
    line->valid_bits_per_byte = all.bits_per_byte;
    line->valid_memory_loss = all.memory_loss;
    line->valid_memory_bits_per_byte = all.memory_bits_per_byte;
    line->valid_memory_gain_95 = all.memory_gain_95;
    line->valid_files = (const char *const *)r->config->valid.items;
    line->n_valid_files = (int)r->config->valid.count;
    r->report->valid_loss = line->valid_loss;
    r->report->valid_bits_per_byte = line->valid_bits_per_byte;
    return STATUS_OK;
}

/* Without the sign of a NaN. */
static double run_unsigned_nan(double x) {
    return isnan(x) ? fabs(x) : x;
}

/* Prints progress after a validation, at the first and last step, and every 10 seconds. */
static void run_report_step(struct run *r, const struct run_log_line *line) {
    enum { REPORT_SECONDS = 10 };
    char valid[128] = "";
    double at = clock_seconds();
    bool end = line->step == r->report->first_step || line->step == r->config->schedule.steps;
    if (!line->validated && !end && at - r->reported < REPORT_SECONDS) return;
    r->reported = at;
    int used = 0;
    if (line->validated)
        used = snprintf(valid, sizeof valid, ", valid %.4f, %.4f bits a byte", run_unsigned_nan(line->valid_loss),
                        run_unsigned_nan(line->valid_bits_per_byte));
    if (line->validated && !isnan(line->valid_memory_loss))
        snprintf(valid + used, sizeof valid - (size_t)used, ", with memory %.4f, %.4f bits a byte",
                 run_unsigned_nan(line->valid_memory_loss), run_unsigned_nan(line->valid_memory_bits_per_byte));
    progress_note(r->options->progress, "step %lld: loss %.4f%s, lr %.3g, gradient %.3g, %.0f tokens/s",
                  (long long)line->step, run_unsigned_nan(line->report.loss), valid, line->lr,
                  run_unsigned_nan(line->report.gradient_norm), line->tokens_per_second);
}

static enum status run_one_step(struct run *r, int64_t step) {
    const struct train_config *c = r->config;
    struct step_now how;
    struct run_log_line line = {.step = step, .tokens = r->state.tokens + r->step_tokens, .device_bytes = run_bytes(r)};
    schedule_at(&how, &c->schedule, step);
    double start = clock_seconds();
    if (run_refresh_due(r, &how)) {
        progress_step(r->options->progress, "encode the corpus", "steps", step, c->schedule.steps);
        TRY(run_refresh_corpus(r));
    }
    for (int64_t i = 0; i < c->accumulate; i++) {
        batches_get(r->batches, &r->batch[i], (int)i, ((step - 1) * r->world + r->rank) * c->accumulate + i);
        run_memory_prepare(r->memory, &r->batch[i], (int)i);
    }
    TRY(step_run(r->step, &line.report, r->batch, (int)c->accumulate, &how));
    line.seconds = clock_seconds() - start;
    line.tokens_per_second = (double)r->step_tokens / line.seconds;
    line.lr = (double)how.optimizer.lr;
    line.pool = pool_kind_name(how.pool);
    line.skipped = !isfinite(line.report.loss) || !isfinite(run_gradient_norm(&line.report));
    r->state.step = step;
    r->state.tokens = line.tokens;
    if (!line.skipped) r->report->loss = line.report.loss;
    r->report->seconds += line.seconds;
    if (r->validation && r->rank == 0 && (run_due(step, c->eval_every) || step == c->schedule.steps))
        TRY(run_validate(r, &line));
    if (r->rank == 0) {
        TRY(run_log_write(r->log, &line));
        run_report_step(r, &line);
    }
    TRY(run_count_skipped(r, &line));
    progress_step(r->options->progress, "train", "steps", step, c->schedule.steps);
    return STATUS_OK;
}

/* Processes that train together all stop after the same step, as soon as one of them must stop. */
static enum status run_agree_on_stop(struct collective *group, bool *stop, bool *over) {
    double any[] = {*stop, *over};
    if (!group) return STATUS_OK;
    TRY(collective_sum_host(group, any, ARRAY_LEN(any)));
    *stop = any[0] > 0;
    *over = any[1] > 0;
    return STATUS_OK;
}

static enum status run_loop(struct run *r) {
    const struct run_options *o = r->options;
    int64_t steps = r->config->schedule.steps, last = o->until > 0 && o->until < steps ? o->until : steps;
    double start = clock_seconds();
    while (r->state.step < last) {
        TRY(run_one_step(r, r->state.step + 1));
        int64_t step = r->state.step;
        if (run_due(step, r->config->sample_every))
            /* before the checkpoint, because a run that is killed in between repeats the step and writes the sample
             * again */
            TRY(run_write_sample(r));
        /* Weights of a skipped step may be those that broke the loss: their checkpoints would replace good ones. */
        if (r->broken == 0 && run_due(step, r->config->save_every)) TRY(run_save_checkpoint(r));
        bool stop = progress_stop_requested(o->progress),
             over = o->max_seconds > 0 && clock_seconds() - start >= o->max_seconds;
        TRY(run_agree_on_stop(o->group, &stop, &over));
        if (stop) {
            TRY(run_save_checkpoint(r));
            return fail(STATUS_INTERRUPTED,
                        "%s: stopped after step %lld of %lld, with a checkpoint: continue with --resume", o->folder,
                        (long long)step, (long long)steps);
        }
        if (over) break;
    }
    return r->state.step > 0 ? run_save_checkpoint(r) : STATUS_OK;
}

enum status run_train(struct run_report *out, const struct run_options *options) {
    struct run r = {
        .options = options, .config = options->config, .report = out, .saved = -1, .plotted = -1, .lock = -1};
    *out = (struct run_report){.loss = NAN, .valid_loss = NAN, .valid_bits_per_byte = NAN};
    enum status s = run_open(&r);
    out->first_step = r.state.step + 1;
    if (s == STATUS_OK) s = run_loop(&r);
    out->step = r.state.step;
    out->tokens = r.state.tokens;
    out->skipped = r.state.skipped;
    out->finished = s == STATUS_OK && out->step >= options->config->schedule.steps;
    run_close(&r);
    return s;
}
