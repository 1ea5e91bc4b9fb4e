/* fuzz_ablation.c -- any bytes as a config of drt-eval ablation and, from a '[' on, as the result of an evaluation:
 * refused with one line, or read into values that plan and table may rely on. */
#include "tools/ablation/ablation_plan.h"
#include "tools/ablation/ablation_scored.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_result(const char *text, size_t size) {
    static const char *const modes[] = {"none", "memory-both"};
    struct ablation_scored s;
    if (ablation_scored_parse(&s, "fuzz", text, size, modes, 2) == STATUS_OK)
        for (size_t i = 0; i < s.n; i++)
            if (s.documents[i].file < 0 || s.documents[i].file >= ABLATION_FILES_MAX || s.documents[i].tokens < 1 ||
                isnan(s.nll[0][i]) || isnan(s.nll[1][i]))
                abort();
    ablation_scored_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct ablation_plan plan;
    struct ablation_config c;
    if (size > 0 && data[0] == '[') {
        fuzz_result((const char *)data + 1, size - 1);
        return 0;
    }
    enum status s = ablation_config_parse(&c, "fuzz", (const char *)data, size);
    if (s == STATUS_OK) {
        if (c.groups < 1 || c.domains.count != c.valid.count || !c.selected[0] || (c.steps > 0) == (c.tokens > 0))
            abort();
        if (ablation_plan_make(&plan, &c) == STATUS_OK && plan.n_parts == 0) abort();
        ablation_plan_free(&plan);
    } else if (!status_message()[0] || strchr(status_message(), '\n'))
        abort();
    ablation_config_free(&c);
    return 0;
}
