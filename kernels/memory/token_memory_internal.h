/* token_memory_internal.h -- shared by the CPU twin's forward, backward and weights: the loop over the entries that
 * rows read, KEYS of them at a time, and their squared distances. */
#pragma once
#include "base/minmax.h"
#include "kernels/device/device_internal.h"
#include "kernels/memory/token_memory.h"
#include <assert.h>

enum { ROWS = 64, KEYS = 128, WIDTH_MAX = 1 << 11 };
/* A worker's scratch: distances, keys as float32. After those in the first worker's: parts, or sums of rows. */
enum {
    TILE_FLOATS = ROWS * KEYS,
    PARTS_AT = (TILE_FLOATS + KEYS * WIDTH_MAX) * (int)sizeof(float),
    PARTS_BYTES = (int)DEVICE_SCRATCH_BYTES - PARTS_AT
};
static_assert(PARTS_BYTES > 0);

struct part;
struct memory_task {
    struct device *dev;
    const struct token_memory *memory;
    struct mat states;
    const int32_t *target;
    float per_tau; /* 1 / tau */
    int64_t first_row, rows, tile_rows;
    int parts, slot_parts, part_slots;
    struct part *part; /* [rows][parts] */
    struct token_memory_stats stats;
    const struct token_memory_gradients *to;
    struct mat w;
    double *dtau; /* [row tiles] */
};

/* Up to KEYS consecutive key rows that `rows` rows from `row` read. */
struct strip {
    int64_t row, rows, key_row, count;
    int64_t column;    /* of slots: of the first entry */
    int64_t position; /* of the text's own past: of the first entry; row_position: of the first row */
    int64_t row_position;
    bool past;
};
typedef void strip_visitor(const struct memory_task *t, const struct strip *s, int worker, void *context);

/* The i-th slot of all blocks: its first row, -1: none; and how many entries it has. */
static inline int64_t slot_row(const struct memory_slots *m, int64_t i) {
    return m->slot[i] < 0 ? -1 : (int64_t)m->slot[i] * (m->packed.code ? m->slot_step : m->slot_rows);
}
static inline int slot_entries(const struct memory_slots *m, int64_t i) {
    return m->packed.code && m->entries ? m->entries[i] : m->slot_rows;
}

static inline int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }
static inline const int32_t *strip_values(const struct memory_task *t, const struct strip *s) {
    return (s->past ? t->memory->past.value : t->memory->slots.value) + s->key_row;
}
static inline float *tile_distances(const struct memory_task *t, int worker) { return device_scratch(t->dev, worker); }
static inline void *memory_parts(const struct memory_task *t) {
    return (unsigned char *)device_scratch(t->dev, 0) + PARTS_AT;
}

/* Checks shapes; all rows are one pass. */
struct memory_task memory_task_of(struct device *dev, struct mat states, const struct token_memory *m);
/* The strip's keys as float32. */
struct mat strip_keys(const struct memory_task *t, const struct strip *s, int worker);
/* Squared distances into tile_distances, [s->rows][KEYS]; entries that take no part get +infinity. Returns
 * strip_keys. */
struct mat strip_distances(const struct memory_task *t, const struct strip *s, int worker);
/* Strips of one part of the entries that rows row .. row+rows-1 read; part -1: of all parts, in order. */
void strips_visit(const struct memory_task *t, int64_t row, int64_t rows, int part, int worker, strip_visitor *visitor,
                  void *context);

/* Weights w [1, token_memory_columns] of one row and, from the same distances, its stats but log_p, which is not
 * written. */
void token_memory_row(struct device *dev, struct token_memory_stats out, struct mat w, struct mat state,
                      const struct token_memory *memory);
void token_memory_backward(struct device *dev, const struct token_memory_gradients *to, struct mat states,
                           const struct token_memory *memory, const int32_t *target, struct token_memory_stats stats);
