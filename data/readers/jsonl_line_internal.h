/* jsonl_line_internal.h -- makes documents from lines of jsonl, into buffers that it keeps. */
#pragma once
#include "data/readers/reader.h"

struct reader_buffer { char *data; size_t size, capacity; };
struct jsonl_parser { const char *text_field; struct reader_buffer text, repaired, key, spare; };
/* Replaces invalid UTF-8 in a key, and NUL, at which a C string would end, by U+FFFD. `spare` is any other buffer. */
enum status reader_key_repair(struct reader_buffer *key, struct reader_buffer *spare);
/* A document from a line, without its newline, which is valid until the next call. d->source and d->line are set, for
 * messages. STATUS_INVALID: the line is no document. */
enum status jsonl_parse(struct jsonl_parser *l, struct document *d, const char *line, size_t bytes);
void jsonl_parser_close(struct jsonl_parser *l);
