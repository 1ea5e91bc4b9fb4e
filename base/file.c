/* file.c -- see file.h. A writer keeps a 1 MiB buffer. Its CRC covers the bytes given to it, before they reach the
 * disk. */
#include "base/file.h"
#include "base/crc32c.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "base/system/threads.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/magic.h>
#include <sys/vfs.h>
#endif

enum { BUFFER_BYTES = 1 << 20, MAP_ALIGN = 1 << 16 /* a multiple of every page's size */ };

enum status file_join(char out[FILE_PATH_MAX], const char *a, const char *b) {
    int n = snprintf(out, FILE_PATH_MAX, "%s/%s", a, b);
    if (n < 0 || n >= FILE_PATH_MAX) return fail(STATUS_INVALID, "%.100s.../%s: path is too long", a, b);
    return STATUS_OK;
}

enum status file_absolute(char out[FILE_PATH_MAX], const char *path) {
    char folder[FILE_PATH_MAX];
    if (strlen(path) >= FILE_PATH_MAX) return fail(STATUS_INVALID, "%.100s...: path is too long", path);
    if (path[0] && path[0] != '/') {
        if (!getcwd(folder, sizeof folder)) return fail_errno("the working directory, for %s", path);
        return file_join(out, strcmp(folder, "/") == 0 ? "" : folder, path);
    }
    memcpy(out, path, strlen(path) + 1);
    return STATUS_OK;
}

enum status file_map(struct file_map *out, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("%s", path);
    struct stat st;
    if (fstat(fd, &st) != 0) {
        enum status s = fail_errno("%s", path);
        close(fd);
        return s;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return fail(STATUS_INVALID, "%s: not a regular file", path);
    }
    *out = (struct file_map){(const uint8_t *)"", (size_t)st.st_size};
    if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            enum status s = errno == ENOMEM
                                ? fail(STATUS_NO_MEMORY,
                                       "%s: no address space for its %llu bytes: raise ulimit -v, or vm.max_map_count",
                                       path, (unsigned long long)st.st_size)
                                : fail_errno("%s: cannot map", path);
            close(fd);
            return s;
        }
        out->data = p;
    }
    close(fd);
    return STATUS_OK;
}

void file_unmap(struct file_map *map) {
    if (map->size > 0) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct file_map){0};
}

void file_release_pages(const struct file_map *map) {
    if (map->size > 0) /* this is advice, which the system may refuse */
        (void)madvise((void *)(uintptr_t)map->data, map->size, MADV_DONTNEED);
}

struct file_writer {
    int fd;
    uint32_t crc;
    uint64_t written;
    size_t buffered;
    char path[FILE_PATH_MAX], temporary[FILE_PATH_MAX];
    uint8_t buffer[BUFFER_BYTES];
    uint64_t reserved; /* bytes that file_reserve took space for */
    bool no_space;     /* it gave up */
    bool in_memory;    /* the file system is, and so is the space that was taken */
};

/* Whether `path` still names the file that is open as fd. */
static bool file_names(const char *path, int fd) {
    struct stat there, opened;
    return lstat(path, &there) == 0 && fstat(fd, &opened) == 0 && there.st_dev == opened.st_dev &&
           there.st_ino == opened.st_ino;
}

/* Opens `<path>.tmp`, or `<path>.<n>.tmp` if other processes write the same file. A writer holds a lock on its file, so
 * that the file of a killed process is reused. Between the open and the lock the file's writer may have renamed or
 * removed it; then the open is repeated. On a file system without locks the first name is used, even if another process
 * uses it. */
static enum status open_temporary(struct file_writer *w) {
    size_t length = strlen(w->path);
    memcpy(w->temporary, w->path, length);
    for (int n = 0; n < 1000; n++) {
        snprintf(w->temporary + length, sizeof w->temporary - length, n ? ".%d.tmp" : ".tmp", n);
        w->fd = open(w->temporary, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (w->fd < 0 && errno == ENOENT)
            return fail(STATUS_NOT_FOUND, "%s: cannot create it: its folder does not exist", w->path);
        if (w->fd < 0) return fail_errno("%s: cannot create", w->temporary);
        bool locked = flock(w->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
        if (locked && file_names(w->temporary, w->fd)) {
            if (ftruncate(w->fd, 0) == 0) return STATUS_OK;
            enum status s = fail_errno("%s: cannot empty it", w->temporary);
            close(w->fd);
            return s;
        }
        close(w->fd);
    }
    return fail(STATUS_BUSY, "%s: too many processes write this file", w->path);
}

/* The name is removed before the file is closed, because after that another process may own it. */
static void drop_temporary(struct file_writer *w) {
    unlink(w->temporary);
    close(w->fd);
}

enum status file_create(struct file_writer **out, const char *path) {
    struct file_writer *w;
    TRY(memory_allocate(&w, 1));
    w->crc = 0;
    w->written = 0;
    w->buffered = 0;
    w->reserved = 0;
    w->no_space = false;
    int n = snprintf(w->path, sizeof w->path, "%s", path);
    if (n == 0 || n + (int)sizeof ".1000.tmp" > FILE_PATH_MAX) {
        memory_free(w);
        return n == 0 ? fail(STATUS_INVALID, "the name of the file to write is empty")
                      : fail(STATUS_INVALID, "%.100s...: path is too long", path);
    }
    struct stat there;
    if (lstat(path, &there) == 0 &&
        !S_ISREG(there.st_mode)) { /* e.g. "--out /dev/stdout" would replace the link for all programs */
        memory_free(w);
        return fail(STATUS_INVALID, "%s: exists and is not a plain file: give another name", path);
    }
    enum status s = open_temporary(w);
    if (s == STATUS_OK)
        *out = w;
    else
        memory_free(w);
    return s;
}

static enum status write_all(int fd, const char *path, const uint8_t *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno("%s: cannot write", path);
        data += n;
        bytes -= (size_t)n;
    }
    return STATUS_OK;
}

static enum status file_flush(struct file_writer *w) {
    TRY(fault_point("file:write"));
    size_t bytes = w->buffered;
    w->buffered = 0;
    return write_all(w->fd, w->temporary, w->buffer, bytes);
}

enum status file_write(struct file_writer *w, const void *data, size_t bytes) {
    w->crc = crc32c(w->crc, data, bytes);
    w->written += bytes;
    if (bytes > BUFFER_BYTES - w->buffered) TRY(file_flush(w));
    if (bytes >= BUFFER_BYTES) return write_all(w->fd, w->temporary, data, bytes);
    memcpy(w->buffer + w->buffered, data, bytes);
    w->buffered += bytes;
    return STATUS_OK;
}

void file_reserve(struct file_writer *w, uint64_t bytes) {
    enum { SHARE = 8, STEP = 16 << 20 };
    struct statvfs there;
    if (bytes <= w->reserved || w->no_space) return;
    bytes = (bytes + STEP - 1) / STEP * STEP;
    const uint64_t more = bytes - w->reserved;
    w->no_space = fstatvfs(w->fd, &there) != 0 || (uint64_t)there.f_bavail * there.f_frsize / SHARE < bytes;
    if (!w->no_space && fallocate(w->fd, FALLOC_FL_KEEP_SIZE, (off_t)w->reserved, (off_t)more) != 0) {
        w->no_space = true; /* a quota, say; some systems keep the part that they could give */
        (void)fallocate(w->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)w->reserved, (off_t)more);
    }
    w->reserved = bytes; /* also after a failure, in case a part is left */
#if defined(__linux__)
    struct statfs system;
    w->in_memory = !w->no_space && fstatfs(w->fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
#endif
}

/* A file system in memory copies the bytes of one writer of a file at a time. So what is in reserved space is written
 * through a map instead, by all threads. */
struct reserved_map {
    uint8_t *map; /* NULL: none */
    size_t size, skipped;
};

static struct reserved_map map_reserved(const struct file_writer *w, uint64_t bytes) {
    const uint64_t end = w->written + bytes, begin = w->written / MAP_ALIGN * MAP_ALIGN;
    struct reserved_map m = {.size = (size_t)(end - begin), .skipped = (size_t)(w->written - begin)};
    if (!w->in_memory || w->no_space || end > w->reserved || ftruncate(w->fd, (off_t)end) != 0)
        return (struct reserved_map){0};
    void *map = mmap(NULL, m.size, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, (off_t)begin);
    m.map = map == MAP_FAILED ? NULL : map;
    return m;
}

struct blocks {
    struct file_writer *w;
    uint64_t bytes;
    file_fill *fill;
    void *context;
    uint8_t *buffers; /* one for each thread */
    uint8_t *map;     /* of the bytes in the file; NULL: they are written from the buffers */
    uint32_t *crc;    /* of each block */
    _Atomic int error;
};

static void write_block(struct blocks *b, int64_t block, uint8_t *buffer) {
    const uint64_t at = (uint64_t)block * BUFFER_BYTES;
    const size_t n = b->bytes - at < BUFFER_BYTES ? (size_t)(b->bytes - at) : BUFFER_BYTES;
    if (b->map) buffer = b->map + at;
    b->fill(b->context, buffer, at, n);
    b->crc[block] = crc32c(0, buffer, n);
    if (b->map) return;
    for (size_t done = 0; done < n;) {
        const ssize_t some = pwrite(b->w->fd, buffer + done, n - done, (off_t)(b->w->written + at + done));
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) {
            b->error = errno;
            return;
        }
        done += (size_t)some;
    }
}

static void write_block_range(void *context, int64_t begin, int64_t end, int worker) {
    struct blocks *b = context;
    for (int64_t i = begin; i < end && !b->error; i++)
        write_block(b, i, b->buffers + (size_t)worker * BUFFER_BYTES);
}

enum status file_write_blocks(struct file_writer *w, uint64_t bytes, struct threads *pool, file_fill *fill,
                              void *context, uint32_t *crc) {
    const int64_t n = (int64_t)((bytes + BUFFER_BYTES - 1) / BUFFER_BYTES);
    struct blocks b = {.w = w, .bytes = bytes, .fill = fill, .context = context};
    uint32_t all = 0;
    enum status s;
    if (crc) *crc = 0;
    if (bytes == 0) return STATUS_OK;
    TRY(file_flush(w));
    TRY_GOTO(s, memory_allocate(&b.buffers, (size_t)threads_count(pool) * BUFFER_BYTES), out);
    TRY_GOTO(s, memory_allocate(&b.crc, (size_t)n), out);
    const struct reserved_map m = map_reserved(w, bytes);
    if (m.map) b.map = m.map + m.skipped;
    threads_for(pool, n, 1, write_block_range, &b);
    if (m.map) munmap(m.map, m.size);
    errno = b.error;
    if (b.error || lseek(w->fd, (off_t)(w->written + bytes), SEEK_SET) < 0) {
        s = fail_errno("%s: cannot write", w->temporary);
        goto out;
    }
    for (int64_t i = 0; i < n; i++)
        all = crc32c_join(all, b.crc[i], i + 1 < n ? BUFFER_BYTES : bytes - (uint64_t)i * BUFFER_BYTES);
    w->crc = crc32c_join(w->crc, all, bytes);
    w->written += bytes;
    if (crc) *crc = all;
out:
    memory_free(b.buffers);
    memory_free(b.crc);
    return s;
}

uint64_t file_written(const struct file_writer *w) {
    return w->written;
}
uint32_t file_crc32c(const struct file_writer *w) {
    return w->crc;
}
int file_descriptor(struct file_writer *w) {
    return file_flush(w) == STATUS_OK ? w->fd : -1;
}

static enum status sync_parent(const char *path) {
    char folder[FILE_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash) return file_sync_directory(".");
    slash[slash == folder ? 1 : 0] = 0;
    return file_sync_directory(folder);
}

enum status file_publish(struct file_writer *w) {
    enum status s = STATUS_OK;
    TRY_GOTO(s, file_flush(w), out);
    if (w->reserved > w->written && ftruncate(w->fd, (off_t)w->written) != 0) {
        s = fail_errno("%s: cannot give back space", w->temporary);
        goto out;
    }
    TRY_GOTO(s, fault_point("file:before-sync"), out);
    if (fsync(w->fd) != 0) {
        s = fail_errno("%s: cannot sync", w->temporary);
        goto out;
    }
    TRY_GOTO(s, fault_point("file:before-rename"), out);
    if (rename(w->temporary, w->path) != 0) {
        s = fail_errno("%s: cannot rename to %s", w->temporary, w->path);
        goto out;
    }
    close(w->fd);
    w->fd = -1;
    TRY_GOTO(s, fault_point("file:before-directory-sync"), out);
    s = sync_parent(w->path);
out:
    if (w->fd >= 0) drop_temporary(w);
    memory_free(w);
    return s;
}

void file_discard(struct file_writer *w) {
    if (!w) return;
    drop_temporary(w);
    memory_free(w);
}

enum status file_save(const char *path, const void *data, size_t bytes) {
    struct file_writer *w;
    TRY(file_create(&w, path));
    enum status s = file_write(w, data, bytes);
    if (s == STATUS_OK) return file_publish(w);
    file_discard(w);
    return s;
}

/* Between the open and the lock the holder may have removed the file. Then the open is repeated. */
enum status file_lock(int *fd, const char *path) {
    int file = -1;
    for (bool again = true; again;) {
        struct stat there, opened;
        if (file >= 0) close(file);
        file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (file < 0) return fail_errno("%s: cannot open the lock", path);
        if (flock(file, LOCK_EX | LOCK_NB) != 0) break;
        again = stat(path, &there) != 0 || fstat(file, &opened) != 0 || there.st_ino != opened.st_ino ||
                there.st_dev != opened.st_dev;
        if (again) continue;
        *fd = file;
        return STATUS_OK;
    }
    enum status s = errno == EWOULDBLOCK ? fail(STATUS_BUSY, "%s: is locked by another process", path)
                                         : fail_errno("%s: cannot lock", path);
    close(file);
    return s;
}

static enum status sync_opened(const char *path, int flags) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0) return fail_errno("%s", path);
    enum status s = fsync(fd) == 0 ? STATUS_OK : fail_errno("%s: cannot sync", path);
    close(fd);
    return s;
}

enum status file_sync(const char *path) {
    return sync_opened(path, 0);
}

enum status file_sync_directory(const char *path) {
    return sync_opened(path, O_DIRECTORY);
}

enum status file_make_directory(const char *path) {
    if (!path[0]) return fail(STATUS_INVALID, "the name of the folder to make is empty");
    if (mkdir(path, 0777) == 0) return STATUS_OK;
    int error = errno;
    if (error == EEXIST && file_is_directory(path)) return STATUS_OK;
    if (error == ENOENT) return fail(STATUS_NOT_FOUND, "%s: cannot make this folder: its parent does not exist", path);
    errno = error;
    return fail_errno("%s: cannot make this folder", path);
}

enum status file_remove(const char *path) {
    if (unlink(path) == 0 || errno == ENOENT) return STATUS_OK;
    return fail_errno("%s: cannot remove", path);
}

enum status file_size(uint64_t *out, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return fail_errno("%s", path);
    *out = (uint64_t)st.st_size;
    return STATUS_OK;
}

bool file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool file_is_directory(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum status file_apart(const char *out, const char *const *inputs, int n) {
    struct stat to, from;
    if (!out || stat(out, &to) != 0) return STATUS_OK;
    for (int i = 0; i < n; i++)
        if (inputs[i] && stat(inputs[i], &from) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino)
            return fail(STATUS_INVALID, "%s: is read, and the output would replace it: give another name", out);
    return STATUS_OK;
}

enum status file_free_space(uint64_t *out, const char *path) {
    struct statvfs st;
    if (statvfs(path, &st) != 0) return fail_errno("%s", path);
    *out = (uint64_t)st.f_bavail * (uint64_t)st.f_frsize;
    return STATUS_OK;
}

enum status file_checksum(uint32_t *out, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("%s", path);
    void *buffer = NULL;
    enum status s = memory_allocate(&buffer, BUFFER_BYTES);
    uint32_t crc = 0;
    while (s == STATUS_OK) {
        ssize_t n = read(fd, buffer, BUFFER_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) s = fail_errno("%s: cannot read", path);
        if (n <= 0) break;
        crc = crc32c(crc, buffer, (size_t)n);
    }
    memory_free(buffer);
    close(fd);
    if (s == STATUS_OK) *out = crc;
    return s;
}
