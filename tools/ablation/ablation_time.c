/* ablation_time.c -- estimates the time of parts from their work, the device's rate of products and seconds on the
 * processor (ablation_work.c), corrected by finished parts of the same kind. The first estimate may be wrong by a
 * factor of two. */
#include "base/clock.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include "session/device_choice.h"
#include "tools/ablation/ablation_run.h"
#include "tools/shared/report.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The share of the rate of one product that each kind of part reaches: measured on two CPU cores, and rounded down. On
 * an H200 trainings reach 0.4. */
static const double reached[ABLATION_KINDS] = {1, 0.35, 1, 0.35, 0.2, 0.15};

int ablation_slots(const struct ablation_config *config) {
    return config->gpus.count > 1 ? (int)config->gpus.count : 1;
}

static double part_estimate(const struct ablation_part *p, double rate) {
    return p->host + p->work / (rate * reached[p->kind]);
}

double ablation_part_seconds(const struct ablation_plan *plan, const struct ablation_part *part, double rate) {
    double estimated = 0, seconds = 0;
    if (rate <= 0 || part->kind == ABLATION_VIEW) return 0;
    for (size_t i = 0; i < plan->n_parts; i++) {
        const struct ablation_part *p = &plan->parts[i];
        if (!p->done || p->kind != part->kind) continue;
        estimated += part_estimate(p, rate);
        seconds += p->seconds;
    }
    return part_estimate(part, rate) * (seconds > 0 && estimated > 0 ? seconds / estimated : 1);
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

/* Returns the rows of a product that uses the whole device. A GPU needs more rows. */
static int64_t measure_rows(const struct device *dev) {
    return dev->shares_memory ? 1024 : 16384;
}
static int64_t measure_columns(const struct device *dev) {
    return dev->shares_memory ? 512 : 2048;
}

static void measure_products(double *rate, struct device *dev, struct mat y, struct mat x, struct mat w) {
    double start = 0;
    int64_t n = 0;
    for (int64_t batch = 1; n == 0 || clock_seconds() - start < 0.2; batch = 4) {
        if (n == 1) start = clock_seconds(); /* the first product is a warm-up */
        for (int64_t i = 0; i < batch; i++)
            dev->ops->matmul->forward(dev, y, x, w, false);
        if (device_sync(dev) != STATUS_OK) return;
        if (n == 0) start = clock_seconds();
        n += batch;
    }
    *rate = 2.0 * (double)(x.rows * x.cols * w.rows) * (double)(n - 1) / (clock_seconds() - start);
}

static enum status measure_device(double *rate, const struct ablation_config *config) {
    const struct device_choice choice = {.device = config->device, .dtype = "auto", .report = report_stderr};
    struct device *dev = NULL;
    enum dtype type;
    enum status s = device_choose(&dev, &type, &choice, (int)config->threads);
    if (s != STATUS_OK) return fail_context(s, "%s: device", config->path);
    const int64_t columns = measure_columns(dev);
    struct mat y = mat_dense(NULL, type, measure_rows(dev), columns), x = y,
               w = mat_dense(NULL, type, columns, columns);
    TRY_GOTO(s, device_allocate(dev, &y.data, mat_bytes(y)), out);
    TRY_GOTO(s, device_allocate(dev, &x.data, mat_bytes(x)), out);
    TRY_GOTO(s, device_allocate(dev, &w.data, mat_bytes(w)), out);
    device_clear(dev, x.data, mat_bytes(x));
    device_clear(dev, w.data, mat_bytes(w));
    measure_products(rate, dev, y, x, w);
    s = device_fault(dev);
out:
    device_release(dev, y.data);
    device_release(dev, x.data);
    device_release(dev, w.data);
    device_close(dev);
    return s;
}

/* The rate is measured in a separate process. A GPU's context takes memory as long as its process exists, and the parts
 * need this memory. */
struct measured {
    enum status status;
    double rate;
    char message[1024];
};

static void measure_child(int fd, const struct ablation_config *config) {
    struct measured m = {0};
    m.status = measure_device(&m.rate, config);
    snprintf(m.message, sizeof m.message, "%s", status_message());
    _exit(write(fd, &m, sizeof m) == (ssize_t)sizeof m ? 0 : 1);
}

enum status ablation_measure(double *rate, const struct ablation_config *config) {
    struct measured m;
    int ends[2], how;
    ssize_t got;
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno("%s: the device's rate cannot be measured", config->path);
    pid_t process = fork();
    if (process == 0) measure_child(ends[1], config);
    close(ends[1]);
    do
        got = process > 0 ? read(ends[0], &m, sizeof m) : -1;
    while (got < 0 && process > 0 && errno == EINTR);
    close(ends[0]);
    while (process > 0 && waitpid(process, &how, 0) < 0 && errno == EINTR) {
    }
    if (got != (ssize_t)sizeof m)
        return fail(STATUS_IO, "%s: device: the program that measures its rate died", config->path);
    if (m.status != STATUS_OK) return fail(m.status, "%s", m.message);
    *rate = m.rate;
    return STATUS_OK;
}
