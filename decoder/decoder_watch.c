/* decoder_watch.c -- rows for whoever looks on: float32 in memory of this process, fetched where they lie elsewhere. */
#include "base/half.h"
#include "decoder/decoder_internal.h"
#include <assert.h>

/* Widens n bf16 numbers that lie in the second half of `out`: each is read before its place is written. */
static void widen(float *out, int64_t n) {
    const uint16_t *from = (const uint16_t *)(const void *)out + n;
    for (int64_t i = 0; i < n; i++)
        out[i] = half_from_bf16(from[i]);
}

void decoder_watch_rows(struct decoder_state *s, const char *what, int group, int64_t first, struct mat rows) {
    if (!s->watch.rows || rows.rows == 0) return;
    struct device *dev = s->decoder->dev;
    assert(rows.stride == rows.cols);
    int64_t n = rows.rows * rows.cols;
    float *seen = s->seen ? s->seen : rows.data;
    size_t bytes = (size_t)(n * dtype_bytes(rows.type));
    if (s->seen && rows.type == DTYPE_BF16) {
        device_download(dev, (uint16_t *)(void *)seen + n, rows.data, bytes);
        widen(seen, n);
    } else {
        device_download(dev, seen, rows.data, bytes);
    }
    s->watch.rows(s->watch.context, what, group, first, seen, rows.rows, rows.cols);
}
