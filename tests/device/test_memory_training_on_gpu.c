/* test_memory_training_on_gpu.c -- steps that train a token memory and a taught retriever, on a GPU against the CPU:
 * losses, gate, gains and the gradient of each tensor, in float32 and in bf16; the same bits in a second run. Keys of
 * 64 numbers use the tensor cores (kernels/memory/token_memory.h), those of 16 and 128 the plain kernels. */
#include "tests/teach_fixture.h"

static const struct memory_case cases[] = {
    {"Base LM, past", "[2]", true, 2, 3, 2, 0, {.past = 80, .group = 1, .span = MEMORY_SPAN}, true, 0, 128},
    {"Base LM, all three",
     "[2]",
     true,
     4,
     2,
     1,
     64,
     {.past = 200, .group = 2, .passages = 1, .read = 2, .span = MEMORY_SPAN},
     false,
     0,
     128},
    {"Base LM, plain kernels",
     "[2]",
     true,
     2,
     2,
     2,
     16,
     {.past = 63, .group = 2, .passages = 1, .read = 2, .span = MEMORY_SPAN},
     false,
     0,
     128},
    {"DRT, all three",
     "[1,1]",
     false,
     2,
     3,
     2,
     64,
     {.past = 100, .group = 2, .passages = 1, .read = 2, .span = MEMORY_SPAN},
     true,
     0,
     128},
    {"taught, projections",
     "[1,1,1]",
     false,
     2,
     3,
     2,
     64,
     {.past = 100, .group = 2, .passages = 2, .read = 2, .span = MEMORY_SPAN, .unread = 1},
     true,
     1 + TEACH_PROJECTIONS,
     128},
    {"taught, all",
     "[1,1]",
     false,
     2,
     2,
     2,
     64,
     {.past = 0, .group = 1, .passages = 2, .read = 4, .span = MEMORY_SPAN, .unread = 1},
     false,
     1 + TEACH_ALL,
     128},
};

struct result {
    struct step_report report;
    float *gradient;
};

static struct result step_on(struct device *dev, const struct model *m, const struct memory_case *c, enum dtype type) {
    struct memory_text t;
    struct result out;
    struct params *gradient;
    make_memory_text(&t, c, 0, c->sequences);
    struct step *s = make_memory_step_of(dev, m, c, c->sequences, type);
    struct step_now now = c->teach ? teach_now(c, 0.4F) : memory_now(c, 0.6F);
    CHECK_OK(step_run(s, &out.report, &t.t.batch, 1, &now));
    CHECK_OK(params_init(&gradient, &m->config, 1));
    CHECK_OK(step_gradients(s, gradient));
    size_t bytes = (size_t)params_elements(gradient) * sizeof(float);
    CHECK(out.gradient = malloc(bytes));
    memcpy(out.gradient, params_at(gradient, 0)->data, bytes);
    params_free(gradient), step_free(s), free_memory_text(&t);
    return out;
}

static void check_number(const char *name, const char *what, double gpu, double cpu, double tolerance) {
    if (isnan(gpu) && isnan(cpu)) return;
    bool good = fabs(gpu - cpu) <= tolerance * (1 + fabs(cpu));
    if (!good) fprintf(stderr, "%s: %s is %g on the GPU, %g on the CPU\n", name, what, gpu, cpu);
    CHECK(good);
}

/* In bf16 the teacher's order of candidates may differ: rounding changes distances by more than the differences of
 * gains. */
static void check_reports(const char *name, const struct step_report *a, const struct step_report *b, bool narrow) {
    double within = narrow ? 0.03 : 2e-4;
    check_number(name, "loss", a->loss, b->loss, within);
    check_number(name, "memory_loss", a->memory_loss, b->memory_loss, within);
    check_number(name, "memory_gate", a->memory_gate, b->memory_gate, within);
    check_number(name, "memory_share", a->memory_share, b->memory_share, within);
    if (narrow) return;
    check_number(name, "teach_loss", a->teach_loss, b->teach_loss, 5 * within);
    check_number(name, "teach_gain", a->teach_gain, b->teach_gain, 5 * within);
    check_number(name, "teach_best_gain", a->teach_best_gain, b->teach_best_gain, 5 * within);
    check_number(name, "gradient_norm", a->gradient_norm, b->gradient_norm, 5 * within);
    check_number(name, "memory_gradient_norm", a->memory_gradient_norm, b->memory_gradient_norm, 5 * within);
}

/* For each tensor |a - b| / |b|; in bf16 the cosine, without the retriever's tensors. Tensors with nearly zero
 * gradients are skipped. */
static void check_gradients(const char *name, const struct model *m, const float *a, const float *b, bool narrow) {
    double all = 0;
    for (int64_t i = 0; i < params_elements(m->params); i++)
        all += (double)b[i] * (double)b[i];
    for (int i = 0; i < params_count(m->params); i++) {
        const struct param *p = params_at(m->params, i);
        double off = 0, aa = 0, bb = 0, ab = 0;
        for (int64_t j = 0; j < p->rows * p->cols; j++, a++, b++) {
            off += ((double)*a - (double)*b) * ((double)*a - (double)*b);
            aa += (double)*a * (double)*a, bb += (double)*b * (double)*b, ab += (double)*a * (double)*b;
        }
        bool retriever = strstr(p->name, "lmk_") || strstr(p->name, "encoder.") || strstr(p->name, "enc_prenorm");
        bool good = narrow ? retriever || bb < 1e-4 * all || ab > 0.9 * sqrt(aa * bb) : off <= 1e-5 * (bb + 1e-6 * all);
        if (!good)
            fprintf(stderr, "%s: %s: its gradient is off by %g of its length, cosine %g\n", name, p->name,
                    sqrt(off / bb), ab / sqrt(aa * bb));
        CHECK(good);
    }
}

int main(int argc, char **argv) {
    struct device *gpu, *cpu;
    test_start(argc, argv, 41);
    enum status opened = device_open(&gpu, "cuda", 2);
    if (opened == STATUS_UNSUPPORTED) test_skip(status_message());
    CHECK_OK(opened);
    cpu = open_device(2);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct memory_case *c = &cases[i];
        struct model m;
        make_memory_model(&m, c, test_seed() + i);
        size_t bytes = (size_t)params_elements(m.params) * sizeof(float);
        struct result on_cpu = step_on(cpu, &m, c, DTYPE_F32);
        for (int narrow = 0; narrow < 2; narrow++) {
            enum dtype type = narrow ? DTYPE_BF16 : DTYPE_F32;
            struct result a = step_on(gpu, &m, c, type), b = step_on(gpu, &m, c, type);
            CHECK(memcmp(a.gradient, b.gradient, bytes) == 0 && memcmp(&a.report, &b.report, sizeof a.report) == 0);
            check_reports(c->name, &a.report, &on_cpu.report, narrow);
            check_gradients(c->name, &m, a.gradient, on_cpu.gradient, narrow);
            free(a.gradient), free(b.gradient);
        }
        free(on_cpu.gradient), params_free(m.params);
    }
    device_close(gpu), device_close(cpu);
    return test_done();
}
