/* stop_text.c -- see stop_text.h. `held` has text that was taken, then text that can be shown, then the tail
 * that is held back. */
#include "session/stop_text.h"
#include "base/memory.h"
#include <assert.h>
#include <string.h>

struct stop_text {
    char **stops;
    int n_stops;
    char *held;
    size_t n_held, n_shown, capacity; /* the first n_shown bytes can be shown ... */
    size_t n_taken;                   /* ... and the last call took the first n_taken of these */
    bool stopped;
};

enum status stop_text_create(struct stop_text **out, const char *const *stops, int n) {
    struct stop_text *s = NULL;
    enum status status;
    TRY(memory_allocate_zero(&s, 1));
    TRY_GOTO(status, memory_allocate_zero(&s->stops, (size_t)n), out);
    for (; s->n_stops < n; s->n_stops++) {
        assert(stops[s->n_stops][0]);
        TRY_GOTO(status, memory_copy_string(&s->stops[s->n_stops], stops[s->n_stops]), out);
    }
    TRY_GOTO(status, memory_grow(&s->held, &s->capacity, 1), out);
    *out = s;
    return STATUS_OK;
out:
    stop_text_free(s);
    return status;
}

void stop_text_free(struct stop_text *s) {
    if (!s) return;
    for (int i = 0; i < s->n_stops; i++)
        memory_free(s->stops[i]);
    memory_free(s->stops);
    memory_free(s->held);
    memory_free(s);
}

void stop_text_reset(struct stop_text *s) {
    s->n_held = s->n_shown = s->n_taken = 0;
    s->stopped = false;
}

static void stop_text_drop_taken(struct stop_text *s) {
    s->n_held -= s->n_taken;
    s->n_shown -= s->n_taken;
    memmove(s->held, s->held + s->n_taken, s->n_held);
    s->n_taken = 0;
}

/* Returns the offset of the first stop string in the text that is not shown; n_held: there is none. */
static size_t stop_text_find(const struct stop_text *s) {
    const char *from = s->held + s->n_shown;
    size_t first = s->n_held;
    for (int i = 0; i < s->n_stops; i++) {
        const char *found = memmem(from, s->n_held - s->n_shown, s->stops[i], strlen(s->stops[i]));
        if (found && (size_t)(found - s->held) < first) first = (size_t)(found - s->held);
    }
    return first;
}

/* Returns the length of the longest tail of the text that is not shown with which a stop string begins. */
static size_t stop_text_tail(const struct stop_text *s) {
    size_t longest = 0;
    for (int i = 0; i < s->n_stops; i++) {
        const char *stop = s->stops[i];
        size_t length = strlen(stop) - 1;
        if (length > s->n_held - s->n_shown) length = s->n_held - s->n_shown;
        while (length > longest && memcmp(s->held + s->n_held - length, stop, length) != 0)
            length--;
        if (length > longest) longest = length;
    }
    return longest;
}

enum status stop_text_put(struct stop_text *s, const char *text, size_t bytes, bool *stopped) {
    stop_text_drop_taken(s);
    *stopped = s->stopped;
    if (s->stopped || bytes == 0) return STATUS_OK;
    TRY(memory_grow(&s->held, &s->capacity, s->n_held + bytes));
    memcpy(s->held + s->n_held, text, bytes);
    s->n_held += bytes;
    size_t stop = stop_text_find(s);
    *stopped = s->stopped = stop < s->n_held;
    s->n_held = stop;
    s->n_shown = s->stopped ? stop : s->n_held - stop_text_tail(s);
    return STATUS_OK;
}

void stop_text_end(struct stop_text *s) {
    stop_text_drop_taken(s);
    s->n_shown = s->n_held;
}

void stop_text_take(struct stop_text *s, const char **out, size_t *bytes) {
    stop_text_drop_taken(s);
    *out = s->held;
    *bytes = s->n_taken = s->n_shown;
}
