/* event_file.h -- RUN/events.out.tfevents...: what log.jsonl says of a step, as TensorBoard reads it.
 *
 * Records of TFRecord (length, masked CRC-32C, an Event of TensorFlow's event.proto, masked CRC-32C). The bytes are
 * written here: two nested messages with five kinds of field do not need a protobuf library. One thread at a time. */
#pragma once
#include "base/status.h"
#include <stdint.h>

struct event_file;
struct event_value { const char *tag; double value; };    /* NaN: left out; stored as float32 */

/* Removes the events after step `keep` (and an incomplete one of a killed run), then appends: the steps of a resumed
 * run are there once. STATUS_CORRUPT names the position of what is not an event file. */
enum status event_file_open(struct event_file **out, const char *path, int64_t keep);
enum status event_file_write(struct event_file *e, int64_t step, const struct event_value *values, int n);
enum status event_file_sync(struct event_file *e);
void event_file_close(struct event_file *e);              /* NULL is fine */
