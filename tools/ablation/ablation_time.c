/* ablation_time.c -- how long parts take: from those of the same kind that are done, before that from the device's rate
 * of products. The work of a part is a count of operations that knows no memory traffic: the first estimate may be
 * wrong by a factor of two. */
#include "base/clock.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include "session/device_choice.h"
#include "tools/ablation/ablation_run.h"
#include "tools/shared/report.h"

/* The share of the rate of one product that a kind of part reaches, measured on two CPU cores and rounded down. */
static const double reached[ABLATION_KINDS] = {1, 0.35, 1, 0.35, 0.2, 0.15};

int ablation_slots(const struct ablation_config *config) {
    return config->gpus.count > 1 ? (int)config->gpus.count : 1;
}

double ablation_part_seconds(const struct ablation_plan *plan, const struct ablation_part *part, double rate) {
    double work = 0, seconds = 0;
    if (part->work <= 0) return 0;
    for (size_t i = 0; i < plan->n_parts; i++) {
        const struct ablation_part *p = &plan->parts[i];
        if (!p->done || p->kind != part->kind || p->work <= 0) continue;
        work += p->work;
        seconds += p->seconds;
    }
    if (seconds > 0) return part->work * seconds / work;
    return rate > 0 ? part->work / (rate * reached[part->kind]) : 0;
}

double ablation_seconds_left(const struct ablation_plan *plan, double rate, double by_kind[ABLATION_KINDS]) {
    double sum = 0;
    for (int k = 0; k < ABLATION_KINDS; k++)
        by_kind[k] = 0;
    for (size_t i = 0; i < plan->n_parts; i++) {
        const struct ablation_part *p = &plan->parts[i];
        double seconds = p->done ? 0 : ablation_part_seconds(plan, p, rate) / ablation_slots(plan->config);
        by_kind[p->kind] += seconds;
        sum += seconds;
    }
    return sum;
}

enum { ROWS = 1024, COLUMNS = 512 };

static void measure_products(double *rate, struct device *dev, struct mat y, struct mat x, struct mat w) {
    double start = 0;
    int64_t n = 0;
    for (int64_t batch = 1; n == 0 || clock_seconds() - start < 0.2; batch = 4) {
        if (n == 1) start = clock_seconds(); /* the first is a warm-up */
        for (int64_t i = 0; i < batch; i++)
            dev->ops->matmul->forward(dev, y, x, w, false);
        if (device_sync(dev) != STATUS_OK) return;
        if (n == 0) start = clock_seconds();
        n += batch;
    }
    *rate = 2.0 * ROWS * COLUMNS * COLUMNS * (double)(n - 1) / (clock_seconds() - start);
}

enum status ablation_measure(double *rate, const struct ablation_config *config) {
    const struct device_choice choice = {.device = config->device, .dtype = "auto", .report = report_stderr};
    struct device *dev = NULL;
    enum dtype type;
    enum status s = device_choose(&dev, &type, &choice, (int)config->threads);
    if (s != STATUS_OK) return fail_context(s, "%s: device", config->path);
    struct mat y = mat_dense(NULL, type, ROWS, COLUMNS), x = y, w = mat_dense(NULL, type, COLUMNS, COLUMNS);
    TRY_GOTO(s, device_allocate(dev, &y.data, mat_bytes(y)), out);
    TRY_GOTO(s, device_allocate(dev, &x.data, mat_bytes(x)), out);
    TRY_GOTO(s, device_allocate(dev, &w.data, mat_bytes(w)), out);
    device_clear(dev, x.data, mat_bytes(x));
    device_clear(dev, w.data, mat_bytes(w));
    measure_products(rate, dev, y, x, w);
out:
    device_release(dev, y.data);
    device_release(dev, x.data);
    device_release(dev, w.data);
    device_close(dev);
    return s;
}
