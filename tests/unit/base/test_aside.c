/* test_aside.c -- a thread beside its owner: results and messages come back in order, waiting twice gives them once,
 * and closing waits for what runs. */
#include "base/system/aside.h"
#include "tests/test.h"
#include <time.h>

struct work {
    int steps, fails_at;
};

static enum status work_body(void *context) {
    struct work *w = context;
    const struct timespec moment = {.tv_nsec = 100000};
    nanosleep(&moment, NULL);
    w->steps++;
    return w->steps == w->fails_at ? fail(STATUS_CORRUPT, "step %d", w->steps) : STATUS_OK;
}

int main(void) {
    struct aside *a;
    struct work w = {.fails_at = 7};
    CHECK_OK(aside_create(&a));
    CHECK_OK(aside_wait(a));
    for (int i = 1; i <= 20; i++) {
        aside_start(a, work_body, &w);
        if (i % 3 == 0) aside_settle(a);
        if (i == 7)
            CHECK_FAILS(aside_wait(a), STATUS_CORRUPT, "step 7");
        else
            CHECK_OK(aside_wait(a));
        CHECK_EQ(w.steps, i);
        CHECK_OK(aside_wait(a));
    }
    aside_start(a, work_body, &w);
    aside_free(a);
    CHECK_EQ(w.steps, 21);
    aside_settle(NULL);
    aside_free(NULL);
    return 0;
}
