/* take_file.c -- see take_file_internal.h. */
#include "store/parts/take_file_internal.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { COPY_BLOCK = 1 << 20 };

/* A copy is compared with the recorded checksum, so that damage is not copied unnoticed. */
static enum status file_copy(const char *to, const char *from, struct stored_file recorded) {
    struct file_map map;
    struct file_writer *file;
    TRY(file_map(&map, from));
    enum status s = file_create(&file, to);
    for (size_t at = 0; s == STATUS_OK && at < map.size; at += COPY_BLOCK) {
        s = file_write(file, map.data + at, map.size - at < COPY_BLOCK ? map.size - at : COPY_BLOCK);
        if (s != STATUS_OK) file_discard(file);
        file_release_pages(&map);
    }
    if (s == STATUS_OK && file_crc32c(file) != recorded.crc) {
        file_discard(file);
        s = fail(STATUS_CORRUPT, "%s: its bytes changed, run drt-index verify --deep --store on its store", from);
    } else if (s == STATUS_OK)
        s = file_publish(file);
    file_unmap(&map);
    return s;
}

enum status file_take(const char *to, const char *from, struct stored_file recorded, const struct file_taking *t) {
    if (!*t->copy && link(from, to) == 0) {
        (*t->linked)++;
        return STATUS_OK;
    }
    if (!*t->copy && errno != EXDEV && errno != EPERM && errno != EMLINK && errno != EOPNOTSUPP)
        return fail_errno("%s: cannot be linked to %s", from, to);
    if (!*t->copy)
        progress_note(t->progress,
                      "%s: files are copied: they cannot be linked to %s (%s), which takes their space twice", from, to,
                      errno == EXDEV ? "another file system" : strerror(errno));
    *t->copy = true;
    (*t->copied)++;
    return file_copy(to, from, recorded);
}
