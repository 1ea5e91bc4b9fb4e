/* event_file.h -- RUN/events.out.tfevents...: the numbers of log.jsonl in TensorBoard's format.
 *
 * The file has TFRecord records: length, masked CRC-32C, an Event of TensorFlow's event.proto, masked CRC-32C. The code
 * encodes the messages itself, because two nested messages with five kinds of field do not justify a protobuf library.
 * One thread at a time. */
#pragma once
#include "base/status.h"
#include <stdint.h>

struct event_file;
struct event_value { const char *tag; double value; };    /* NaN: left out; stored as float32 */

/* Removes the events after step `keep`, and the incomplete event of a killed run; then appends. So each step of a
 * resumed run is there once. STATUS_CORRUPT: not an event file; the message names the position. */
enum status event_file_open(struct event_file **out, const char *path, int64_t keep);
enum status event_file_write(struct event_file *e, int64_t step, const struct event_value *values, int n);
enum status event_file_sync(struct event_file *e);
void event_file_close(struct event_file *e);              /* NULL is fine */
