/* event_file.c -- see event_file.h. Wire types: 0 varint, 1 double, 2 bytes, 5 float. */
#include "train/run/event_file.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    HEADER = 12,  /* length and its checksum */
    TRAILER = 4,  /* checksum of the data */
    TAG_MAX = 96, /* bytes of a tag */
    VALUE_MAX = TAG_MAX + 16,
    VALUES_MAX = 64,
    EVENT_MAX = 64 + VALUES_MAX * VALUE_MAX,
    SUMMARY = 5, /* field numbers: of Event */
    FILE_VERSION = 3,
};

struct event_file {
    FILE *file;
    char *path;
};

static uint32_t event_file_masked(const uint8_t *data, size_t bytes) {
    uint32_t crc = crc32c(0, data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static size_t put_varint(uint8_t *at, uint64_t value) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        at[n++] = (uint8_t)(value | 0x80);
    at[n++] = (uint8_t)value;
    return n;
}

static size_t put_bytes(uint8_t *at, int field, const void *data, size_t bytes) {
    size_t n = put_varint(at, (uint64_t)(field << 3 | 2));
    n += put_varint(at + n, bytes);
    memcpy(at + n, data, bytes);
    return n + bytes;
}

/* Every record of this program begins with Event.wall_time and Event.step. */
static size_t put_begin(uint8_t *at, int64_t step) {
    struct timespec now;
    double seconds;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &seconds, sizeof bits);
    at[0] = 1 << 3 | 1;
    little_endian_put(at + 1, bits, 8);
    at[9] = 2 << 3;
    return 10 + put_varint(at + 10, (uint64_t)step);
}

/* Summary.Value: tag (1) and simple_value (2). */
static size_t put_value(uint8_t *at, const struct event_value *v) {
    uint8_t message[VALUE_MAX];
    float value = (float)v->value;
    uint32_t bits;
    size_t n = put_bytes(message, 1, v->tag, strnlen(v->tag, TAG_MAX));
    memcpy(&bits, &value, sizeof bits);
    message[n++] = 2 << 3 | 5;
    little_endian_put(message + n, bits, 4);
    return put_bytes(at, 1, message, n + 4);
}

static enum status write_record(struct event_file *e, const uint8_t *data, size_t bytes) {
    uint8_t head[HEADER], tail[TRAILER];
    little_endian_put(head, bytes, 8);
    little_endian_put(head + 8, event_file_masked(head, 8), 4);
    little_endian_put(tail, event_file_masked(data, bytes), 4);
    fwrite(head, 1, HEADER, e->file);
    fwrite(data, 1, bytes, e->file);
    fwrite(tail, 1, TRAILER, e->file);
    if (fflush(e->file) != 0 || ferror(e->file)) return fail_errno("%s: cannot be written", e->path);
    return STATUS_OK;
}

/* Bytes of the record at `at`; 0: it is incomplete or damaged. */
static size_t record_bytes(const struct file_map *map, size_t at) {
    const uint8_t *head = map->data + at;
    size_t left = map->size - at;
    if (left < HEADER + TRAILER || little_endian_get(head + 8, 4) != event_file_masked(head, 8)) return 0;
    uint64_t bytes = little_endian_get(head, 8);
    if (bytes > left - HEADER - TRAILER) return 0;
    if (little_endian_get(head + HEADER + bytes, 4) != event_file_masked(head + HEADER, (size_t)bytes)) return 0;
    return HEADER + (size_t)bytes + TRAILER;
}

/* Event.step of a record of this program; -1: it has none. */
static int64_t record_step(const uint8_t *record, size_t bytes) {
    uint64_t step = 0;
    size_t at = HEADER + 9, end = bytes - TRAILER;
    if (at >= end || record[HEADER] != (1 << 3 | 1) || record[at++] != 2 << 3) return -1;
    for (int shift = 0; at < end && shift < 63; shift += 7) {
        step |= (uint64_t)(record[at] & 0x7f) << shift;
        if (!(record[at++] & 0x80)) return (int64_t)step;
    }
    return -1;
}

static enum status truncate_after(const char *path, int64_t keep) {
    struct file_map map;
    size_t at = 0;
    if (!file_exists(path)) return STATUS_OK;
    TRY(file_map(&map, path));
    for (size_t bytes; (bytes = record_bytes(&map, at)) > 0 && record_step(map.data + at, bytes) <= keep;)
        at += bytes;
    bool longer = at < map.size, foreign = at == 0 && map.size >= HEADER + TRAILER;
    file_unmap(&map);
    if (foreign) return fail(STATUS_CORRUPT, "%s: does not begin with an event: move it away", path);
    if (longer && truncate(path, (off_t)at) != 0) return fail_errno("%s: cannot be truncated", path);
    return STATUS_OK;
}

static enum status write_version(struct event_file *e) {
    static const char version[] = "brain.Event:2";
    uint8_t event[64];
    size_t n = put_begin(event, 0);
    n += put_bytes(event + n, FILE_VERSION, version, sizeof version - 1);
    return write_record(e, event, n);
}

enum status event_file_open(struct event_file **out, const char *path, int64_t keep) {
    struct event_file *e;
    uint64_t bytes = 0;
    TRY(truncate_after(path, keep));
    if (file_exists(path)) TRY(file_size(&bytes, path));
    TRY(memory_allocate_zero(&e, 1));
    enum status s = memory_copy_string(&e->path, path);
    if (s == STATUS_OK && !(e->file = fopen(path, "ae"))) s = fail_errno("%s: cannot be written", path);
    if (s == STATUS_OK && bytes == 0) s = write_version(e);
    if (s == STATUS_OK)
        *out = e;
    else
        event_file_close(e);
    return s;
}

enum status event_file_write(struct event_file *e, int64_t step, const struct event_value *values, int n) {
    uint8_t event[EVENT_MAX], summary[VALUES_MAX * VALUE_MAX];
    size_t bytes = 0, length;
    for (int i = 0; i < n && i < VALUES_MAX; i++)
        if (!isnan(values[i].value)) bytes += put_value(summary + bytes, &values[i]);
    length = put_begin(event, step);
    length += put_bytes(event + length, SUMMARY, summary, bytes);
    return write_record(e, event, length);
}

enum status event_file_sync(struct event_file *e) {
    return fsync(fileno(e->file)) == 0 ? STATUS_OK : fail_errno("%s: cannot be synced", e->path);
}

void event_file_close(struct event_file *e) {
    if (!e) return;
    if (e->file) fclose(e->file); /* every record was flushed, and the flush was checked */
    memory_free(e->path);
    memory_free(e);
}
