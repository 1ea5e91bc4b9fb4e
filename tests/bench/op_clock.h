/* op_clock.h -- the time of each op of a step: a table of ops whose entries call the device's own op, wait, and
 * measure.
 *
 * A wait after each op costs some microseconds, and a GPU cannot work while the next op is prepared: the sum of the
 * parts is a little above the time of an unmeasured step. One device at a time. */
#pragma once
#include "base/clock.h"
#include "kernels/device/device_internal.h"
#include "kernels/ops.h"
#include "tests/test.h"

enum { CLOCK_ROWS = 128 };
struct clock_row {
    char name[72];
    double seconds, flop;
    int64_t calls;
};
static struct {
    const struct ops *ops;
    const struct device_runtime *runtime;
    struct clock_row rows[CLOCK_ROWS];
    int count;
    double begun;
} op_clock;

static inline void clock_row(struct device *dev, const char *name, double flop) {
    CHECK_OK(op_clock.runtime->sync(dev));
    double now = clock_seconds();
    int i = 0;
    while (i < op_clock.count && strcmp(op_clock.rows[i].name, name) != 0)
        i++;
    CHECK(i < CLOCK_ROWS);
    struct clock_row *r = &op_clock.rows[i];
    if (i == op_clock.count) op_clock.count++, snprintf(r->name, sizeof r->name, "%s", name);
    r->seconds += now - op_clock.begun;
    r->flop += flop;
    r->calls++;
}
#define CLOCKED(dev, name, flop, call)                                                                                 \
    do {                                                                                                               \
        op_clock.begun = clock_seconds();                                                                              \
        call;                                                                                                          \
        clock_row(dev, name, flop);                                                                                    \
    } while (0)

/* A row of its own for every shape of a product. */
static inline void clock_product(char *name, const char *op, int64_t rows, int64_t out, int64_t in) {
    snprintf(name, 72, "matmul.%s %lldx%lldx%lld", op, (long long)rows, (long long)out, (long long)in);
}
static inline double product_flop(int64_t a, int64_t b, int64_t c) {
    return 2.0 * (double)a * (double)b * (double)c;
}

static void clocked_matmul_forward(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate) {
    char name[72];
    clock_product(name, accumulate ? "forward+" : "forward", x.rows, w.rows, w.cols);
    CLOCKED(dev, name, product_flop(x.rows, w.rows, w.cols), op_clock.ops->matmul->forward(dev, y, x, w, accumulate));
}
static void clocked_forward_add(struct device *dev, struct mat y, struct mat base, struct mat x, struct mat w) {
    char name[72];
    clock_product(name, "forward_add", x.rows, w.rows, w.cols);
    CLOCKED(dev, name, product_flop(x.rows, w.rows, w.cols), op_clock.ops->matmul->forward_add(dev, y, base, x, w));
}
/* The gated products would else be counted with the op that follows them. */
static void clocked_forward_gated(struct device *dev, struct mat gated, struct mat both, struct mat x, struct mat w) {
    char name[72];
    clock_product(name, "forward_gated", x.rows, w.rows, w.cols);
    CLOCKED(dev, name, product_flop(x.rows, w.rows, w.cols),
            op_clock.ops->matmul->forward_gated(dev, gated, both, x, w));
}
static void clocked_backward_input(struct device *dev, struct mat dx, struct mat dy, struct mat w, bool accumulate) {
    char name[72];
    clock_product(name, "backward_input", dy.rows, w.cols, w.rows);
    CLOCKED(dev, name, product_flop(dy.rows, w.rows, w.cols),
            op_clock.ops->matmul->backward_input(dev, dx, dy, w, accumulate));
}
static void clocked_backward_gated(struct device *dev, struct mat both, struct mat dgated, struct mat dy,
                                   struct mat w) {
    char name[72];
    clock_product(name, "backward_gated", dy.rows, w.cols, w.rows);
    CLOCKED(dev, name, product_flop(dy.rows, w.rows, w.cols),
            op_clock.ops->matmul->backward_gated(dev, both, dgated, dy, w));
}
static void clocked_backward_weight(struct device *dev, struct mat dw, struct mat dy, struct mat x) {
    char name[72];
    clock_product(name, "backward_weight", dw.rows, dw.cols, x.rows);
    CLOCKED(dev, name, product_flop(dw.rows, dw.cols, x.rows), op_clock.ops->matmul->backward_weight(dev, dw, dy, x));
}

#define CLOCK(family, op, parameters, arguments)                                                                       \
    static void clocked_##family##_##op parameters {                                                                   \
        CLOCKED(dev, #family "." #op, 0.0, op_clock.ops->family->op arguments);                                        \
    }
CLOCK(norm, forward, (struct device * dev, struct mat y, struct mat rstd, struct mat x, struct mat w, float eps),
      (dev, y, rstd, x, w, eps))
CLOCK(norm, backward,
      (struct device * dev, struct mat dx, struct mat dw, struct mat dy, struct mat x, struct mat w, struct mat rstd,
       bool accumulate),
      (dev, dx, dw, dy, x, w, rstd, accumulate))
CLOCK(rope, forward, (struct device * dev, struct mat x, int heads, int period, float theta),
      (dev, x, heads, period, theta))
CLOCK(rope, backward, (struct device * dev, struct mat x, int heads, int period, float theta),
      (dev, x, heads, period, theta))
CLOCK(attention, forward_sequences,
      (struct device * dev, struct mat o, struct mat lse, const struct attention_sequences *in), (dev, o, lse, in))
CLOCK(attention, backward_sequences,
      (struct device * dev, struct mat dq, struct mat dk, struct mat dv, struct mat dout, struct mat o, struct mat lse,
       const struct attention_sequences *in),
      (dev, dq, dk, dv, dout, o, lse, in))
CLOCK(chunk_attention, forward_keep,
      (struct device * dev, struct mat o, struct mat lse, struct mat q, struct mat k, struct mat v, int heads,
       int positions),
      (dev, o, lse, q, k, v, heads, positions))
CLOCK(chunk_attention, backward,
      (struct device * dev, struct mat dq, struct mat dk, struct mat dv, struct mat dout,
       const struct chunk_attention_kept *kept),
      (dev, dq, dk, dv, dout, kept))
CLOCK(gca, forward_keep,
      (struct device * dev, struct mat o, struct mat lse, struct mat q, struct gca_pool pool, struct gca_blocks blocks,
       int heads),
      (dev, o, lse, q, pool, blocks, heads))
CLOCK(gca, backward,
      (struct device * dev, const struct gca_gradients *to, struct mat dout, struct mat q, struct gca_pool pool,
       struct gca_blocks blocks, struct gca_inverse inverse, struct mat lse),
      (dev, to, dout, q, pool, blocks, inverse, lse))
CLOCK(gca, invert,
      (struct device * dev, int32_t *begin, int32_t *entry, const int32_t *slot, int64_t entries, int64_t slots),
      (dev, begin, entry, slot, entries, slots))
CLOCK(elementwise, convert, (struct device * dev, struct mat y, struct mat x), (dev, y, x))
CLOCK(elementwise, add, (struct device * dev, struct mat y, struct mat a, struct mat b), (dev, y, a, b))
CLOCK(elementwise, swiglu, (struct device * dev, struct mat y, struct mat gate, struct mat up), (dev, y, gate, up))
CLOCK(elementwise, swiglu_backward,
      (struct device * dev, struct mat dgate, struct mat dup, struct mat dy, struct mat gate, struct mat up),
      (dev, dgate, dup, dy, gate, up))
CLOCK(embed, forward, (struct device * dev, struct mat x, struct mat table, const int32_t *ids, int32_t pad_id),
      (dev, x, table, ids, pad_id))
CLOCK(embed, backward, (struct device * dev, struct mat dtable, struct mat dx, const int32_t *ids, int32_t pad_id),
      (dev, dtable, dx, ids, pad_id))
CLOCK(loss, forward_backward,
      (struct device * dev, float *nll, struct mat dx, struct mat dtable, struct mat x, struct mat table,
       struct loss_rows rows),
      (dev, nll, dx, dtable, x, table, rows))
CLOCK(loss, contrastive,
      (struct device * dev, float *nll, float *hit, struct mat dx, struct mat dtable, struct mat x, struct mat table,
       struct loss_contrast how),
      (dev, nll, hit, dx, dtable, x, table, how))
CLOCK(topk, sample,
      (struct device * dev, int64_t *index, int32_t *slot, float *score, const struct topk_sampling *sampling),
      (dev, index, slot, score, sampling))
CLOCK(topk, softmax_weights, (struct device * dev, float *weight, const float *score, int64_t n, int k),
      (dev, weight, score, n, k))
CLOCK(topk, backward,
      (struct device * dev, struct mat dqueries, struct mat dlandmarks, const float *dweight, struct topk_weights found,
       struct mat queries, struct mat landmarks),
      (dev, dqueries, dlandmarks, dweight, found, queries, landmarks))
CLOCK(adamw, norm, (struct device * dev, float *sum, const float *gradient, int64_t n), (dev, sum, gradient, n))
CLOCK(adamw, update,
      (struct device * dev, struct adamw_state state, const float *gradient, int64_t n, const float *sum, float clip,
       struct adamw_step how),
      (dev, state, gradient, n, sum, clip, how))
#undef CLOCK

static void clocked_copy(struct device *dev, void *to, const void *from, size_t bytes) {
    CLOCKED(dev, "device_copy", 0.0, op_clock.runtime->copy(dev, to, from, bytes));
}
static void clocked_clear(struct device *dev, void *memory, size_t bytes) {
    CLOCKED(dev, "device_clear", 0.0, op_clock.runtime->clear(dev, memory, bytes));
}
static void clocked_upload(struct device *dev, void *to, const void *from, size_t bytes) {
    CLOCKED(dev, "device_upload", 0.0, op_clock.runtime->upload(dev, to, from, bytes));
}
static void clocked_download(struct device *dev, void *to, const void *from, size_t bytes) {
    CLOCKED(dev, "device_download", 0.0, op_clock.runtime->download(dev, to, from, bytes));
}

/* From here on dev's ops and copies are timed, until clock_stop. */
static inline void clock_start(struct device *dev) {
    static struct device_runtime runtime;
    static struct matmul_ops matmul;
    static struct norm_ops norm;
    static struct rope_ops rope;
    static struct attention_ops attention;
    static struct chunk_attention_ops chunk_attention;
    static struct gca_ops gca;
    static struct elementwise_ops elementwise;
    static struct embed_ops embed;
    static struct loss_ops loss;
    static struct topk_ops topk;
    static struct adamw_ops adamw;
    static struct ops ops;
    ops = *dev->ops;
    ops.matmul = &matmul, ops.norm = &norm, ops.rope = &rope, ops.attention = &attention;
    ops.chunk_attention = &chunk_attention, ops.gca = &gca, ops.elementwise = &elementwise, ops.embed = &embed;
    ops.loss = &loss, ops.topk = &topk, ops.adamw = &adamw;
    op_clock.ops = dev->ops;
    op_clock.runtime = dev->runtime;
    op_clock.count = 0;
    memset(op_clock.rows, 0, sizeof op_clock.rows);
    matmul = *dev->ops->matmul, norm = *dev->ops->norm, rope = *dev->ops->rope, attention = *dev->ops->attention;
    chunk_attention = *dev->ops->chunk_attention, gca = *dev->ops->gca, elementwise = *dev->ops->elementwise;
    embed = *dev->ops->embed, loss = *dev->ops->loss, topk = *dev->ops->topk, adamw = *dev->ops->adamw;
    runtime = *dev->runtime;
    matmul.forward = clocked_matmul_forward, matmul.backward_input = clocked_backward_input;
    matmul.backward_weight = clocked_backward_weight, matmul.forward_add = clocked_forward_add;
    matmul.forward_gated = clocked_forward_gated, matmul.backward_gated = clocked_backward_gated;
    norm.forward = clocked_norm_forward, norm.backward = clocked_norm_backward;
    rope.forward = clocked_rope_forward, rope.backward = clocked_rope_backward;
    attention.forward_sequences = clocked_attention_forward_sequences;
    attention.backward_sequences = clocked_attention_backward_sequences;
    chunk_attention.forward_keep = clocked_chunk_attention_forward_keep;
    chunk_attention.backward = clocked_chunk_attention_backward;
    gca.forward_keep = clocked_gca_forward_keep, gca.backward = clocked_gca_backward, gca.invert = clocked_gca_invert;
    elementwise.convert = clocked_elementwise_convert, elementwise.add = clocked_elementwise_add;
    elementwise.swiglu = clocked_elementwise_swiglu, elementwise.swiglu_backward = clocked_elementwise_swiglu_backward;
    embed.forward = clocked_embed_forward, embed.backward = clocked_embed_backward;
    loss.forward_backward = clocked_loss_forward_backward, loss.contrastive = clocked_loss_contrastive;
    topk.sample = clocked_topk_sample, topk.softmax_weights = clocked_topk_softmax_weights,
    topk.backward = clocked_topk_backward;
    adamw.norm = clocked_adamw_norm, adamw.update = clocked_adamw_update;
    runtime.copy = clocked_copy, runtime.clear = clocked_clear;
    runtime.upload = clocked_upload, runtime.download = clocked_download;
    dev->ops = &ops;
    dev->runtime = &runtime;
}
static inline void clock_stop(struct device *dev) {
    dev->ops = op_clock.ops;
    dev->runtime = op_clock.runtime;
}
/* CSV, a row for each part, the longest first: part, calls, ms, share, TFLOP/s; of `steps` steps. */
static inline void clock_print(int steps) {
    double all = 0.0;
    for (int i = 0; i < op_clock.count; i++)
        all += op_clock.rows[i].seconds;
    printf("part,calls,ms,share,TFLOP/s\n");
    for (int left = op_clock.count; left > 0; left--) {
        struct clock_row *best = op_clock.rows;
        for (int i = 1; i < op_clock.count; i++)
            if (op_clock.rows[i].seconds > best->seconds) best = &op_clock.rows[i];
        printf("%s,%lld,%.3f,%.1f %%,%.0f\n", best->name, (long long)best->calls / steps, 1e3 * best->seconds / steps,
               100.0 * best->seconds / all, best->flop / best->seconds / 1e12);
        best->seconds = -1.0;
    }
    printf("all parts,,%.3f,,\n", 1e3 * all / steps);
}
