/* test_near_name.c -- the known name that a mistyped one means. */
#include "base/formats/near_name.h"
#include "tests/test.h"

static const char *const known[] = {"steps", "warmup", "length", "sequences", "mlm.rate", "memory.passages", "lr"};

static const char *meant(const char *name) {
    struct near_name near = near_name_of(name, strlen(name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        near_name_offer(&near, known[i]);
    const char *best = near_name_best(&near);
    return best ? best : "";
}

int main(void) {
    CHECK_STR(meant("setps"), "steps");                   /* swapped */
    CHECK_STR(meant("lenth"), "length");                  /* missing */
    CHECK_STR(meant("warm_up"), "warmup");                /* too many */
    CHECK_STR(meant("mlm_rate"), "mlm.rate");             /* replaced */
    CHECK_STR(meant("sequence"), "sequences");            /* a part of it */
    CHECK_STR(meant("passages"), "memory.passages");      /* without its object */
    CHECK_STR(meant("memory.pasage"), "memory.passages"); /* two */
    CHECK_STR(meant("max_steps"), "steps");               /* contains it */
    CHECK_STR(meant("warmup_steps"), "warmup");           /* the longer of two */
    CHECK_STR(meant("weight_decay"), "");
    CHECK_STR(meant("lrx"), "lr");
    CHECK_STR(meant("LR"), "lr");
    CHECK_STR(meant("xl"), "");
    CHECK_STR(meant(""), "");
    /* Only the given length of the name counts, and a very long one is near to nothing, unless it contains a name. */
    struct near_name near = near_name_of("stepsize=3", 4);
    near_name_offer(&near, "steps");
    CHECK_STR(near_name_best(&near), "steps");
    char longest[1000];
    memset(longest, 'x', sizeof longest);
    near = near_name_of(longest, sizeof longest);
    near_name_offer(&near, "steps");
    CHECK(!near_name_best(&near));
    memcpy(longest + 700, "steps", 5);
    near_name_offer(&near, "steps");
    CHECK_STR(near_name_best(&near), "steps");
    return test_done();
}
