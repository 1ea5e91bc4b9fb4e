/* teach_fixture.h -- small models whose retriever learns from their token memory. */
#pragma once
#include "tests/memory_fixture.h"

/* Taught retrievers: candidates that are not read are ranked, too. */
[[maybe_unused]] static const struct memory_case teach_cases[] = {
    {"taught, projections", "[1,1,1]", false, 2, 3, 2, 16,
     {.past = 100, .group = 2, .passages = 2, .read = 2, .span = MEMORY_SPAN, .unread = 1}, true,
     1 + TEACH_PROJECTIONS, 0},
    {"taught, encoder", "[1,1]", false, 2, 3, 1, 0,
     {.past = 63, .group = 1, .passages = 1, .read = 1, .span = MEMORY_SPAN, .unread = 2}, false,
     1 + TEACH_ENCODER, 0},
    {"taught, all", "[2,1]", false, 3, 2, 2, 16,
     {.past = 0, .group = 1, .passages = 3, .read = 4, .span = MEMORY_SPAN}, true, 1 + TEACH_ALL, 0},
};

/* Without neighbours, so that no weight of the retriever changes the losses of the teacher. */
[[maybe_unused]] static struct step_now teach_now(const struct memory_case *c, float weight) {
    struct step_now now = memory_now(c, 0.6F);
    now.pool = POOL_NONE, now.teach_weight = weight, now.teach_temperature = 0.5F;
    return now;
}

/* The retriever's own tensors, on which neither trunk nor teacher depends: its projections alone, or all. */
[[maybe_unused]] static bool teach_student(const struct model *m, const char *name) {
    if (strstr(name, "lmk_q_proj") || strstr(name, "lmk_k_proj")) return true;
    return !m->config.retrieval_proj &&
           (strstr(name, "encoder.") || strstr(name, "enc_prenorm") || strstr(name, "lmk_norms"));
}
