/* files_ahead.c -- see files_ahead.h. */
#include "data/readers/reader_internal.h"

enum { BLOCKS_MIN = 8 };

static uint64_t files_ahead_fit(const struct reader *r) {
    return r->following.bytes / (FILES_AHEAD + 1) / STREAM_AHEAD_BLOCK;
}

int files_ahead_blocks(const struct reader *r) {
    const uint64_t fit = files_ahead_fit(r), most = 1 << 16;
    return (int)(fit < BLOCKS_MIN ? BLOCKS_MIN : fit < most ? fit : most);
}

static void file_ahead_free(struct file_ahead *f) {
    stream_ahead_free(f->ahead);
    stream_close(f->stream);
    *f = (struct file_ahead){0};
}

void files_ahead_close(struct reader *r) {
    for (int i = 0; i < FILES_AHEAD; i++)
        file_ahead_free(&r->following.next[i]);
}

bool files_ahead_take(struct reader *r, struct stream **stream, struct stream_ahead **ahead) {
    for (int i = 0; i < FILES_AHEAD; i++) {
        struct file_ahead *f = &r->following.next[i];
        if (!f->stream || f->file != r->position.file) continue;
        *stream = f->stream;
        *ahead = f->ahead;
        *f = (struct file_ahead){0};
        return true;
    }
    return false;
}

/* NULL: the file is begun already, or all slots are in use. */
static struct file_ahead *unused_slot(struct reader *r, uint64_t file) {
    struct file_ahead *unused = NULL;
    for (int i = 0; i < FILES_AHEAD; i++) {
        struct file_ahead *f = &r->following.next[i];
        if (f->stream && f->file <= r->position.file) file_ahead_free(f); /* after reader_seek */
        if (f->stream && f->file == file) return NULL;
        if (!f->stream) unused = f;
    }
    return unused;
}

static void file_begin(struct reader *r, uint64_t file) {
    const struct input_file *in = &r->files[file];
    if (in->format != READER_JSONL || in->begin > 0 || in->bytes < STREAM_SLOW_BYTES) return;
    struct file_ahead *f = unused_slot(r, file);
    if (!f || stream_open(&f->stream, in->path) != STATUS_OK) return;
    f->file = file;
    if (stream_is_slow(f->stream) && stream_ahead_start(&f->ahead, f->stream, files_ahead_blocks(r)) == STATUS_OK)
        return;
    file_ahead_free(f);
}

void files_ahead_begin(struct reader *r) {
    if (files_ahead_fit(r) < BLOCKS_MIN) return;
    for (uint64_t i = 1; i <= FILES_AHEAD && r->position.file + i < r->n_files; i++)
        file_begin(r, r->position.file + i);
}
