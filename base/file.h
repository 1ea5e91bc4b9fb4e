/* file.h -- maps files for reading, and publishes files atomically. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of a file, mapped read-only until file_unmap. An empty file has size 0, and data is not NULL. */
struct file_map { const uint8_t *data; size_t size; };
enum status file_map(struct file_map *out, const char *path);
void file_unmap(struct file_map *map);                    /* a zeroed map is fine */
/* Releases the map's pages. They are then not memory of this process, and the next access reads them again. */
void file_release_pages(const struct file_map *map);

/* A new file. It is written to `<path>.tmp`. file_publish syncs it, renames it to `path` and syncs the directory.
 * file_discard removes it. Both close it. Writes are buffered, in order, from one thread. Several processes may write
 * the same path (`<path>.1.tmp`, ...): the last one to publish replaces the files of the others. The temporary file of
 * a killed process is reused by the next writer of the path. STATUS_INVALID: the path is a link, a device or a folder,
 * which the rename would replace. */
struct file_writer;
struct threads;                          /* base/system/threads.h */
enum status file_create(struct file_writer **out, const char *path);
enum status file_write(struct file_writer *w, const void *data, size_t bytes);
/* A hint: takes disk space, or the memory of a file system in memory, for the first `bytes` bytes of the file before
 * they are written. A file's writers wait for each other while its space grows; in memory that is two thirds of their
 * time. Nothing happens if the file system cannot do it, or if the file would take more than an eighth of the free
 * space. file_publish gives back what was not written. */
void file_reserve(struct file_writer *w, uint64_t bytes);
/* Appends `bytes` bytes, in blocks of 1 MiB that the threads of a pool make and write at the same time. fill writes
 * bytes at .. at + n - 1 of them to `out`. *crc (NULL is fine): their CRC32C. */
typedef void file_fill(void *context, uint8_t *out, uint64_t at, size_t n);
enum status file_write_blocks(struct file_writer *w, uint64_t bytes, struct threads *pool, file_fill *fill,
                              void *context, uint32_t *crc);
uint64_t file_written(const struct file_writer *w);       /* bytes so far */
uint32_t file_crc32c(const struct file_writer *w);        /* of the bytes given to file_write so far */
int file_descriptor(struct file_writer *w);               /* after a flush; -1 if the flush fails */
enum status file_publish(struct file_writer *w);          /* w is freed, also on failure */
void file_discard(struct file_writer *w);                 /* NULL is fine */
enum status file_save(const char *path, const void *data, size_t bytes);      /* create, write, publish */

/* Locks a file, which is created if it is missing, until *fd is closed or the process ends. STATUS_BUSY: another
 * process holds the lock. The holder may remove the file before it closes *fd. */
enum status file_lock(int *fd, const char *path);

enum status file_sync(const char *path);                  /* makes a file durable that another program has written */
enum status file_sync_directory(const char *path);        /* makes the names in it durable */
enum status file_make_directory(const char *path);        /* parents must exist; an existing directory is fine */
enum status file_remove(const char *path);                /* a missing file is fine */
enum status file_size(uint64_t *out, const char *path);   /* STATUS_NOT_FOUND: there is no such file */
bool file_exists(const char *path);
bool file_is_directory(const char *path);
/* STATUS_INVALID: the output `out` would replace one of the files inputs[n]. NULL and missing files are fine. */
enum status file_apart(const char *out, const char *const *inputs, int n);
enum status file_free_space(uint64_t *out, const char *path);   /* bytes that an ordinary user may still write there */

/* Computes the CRC32C of a whole file, which is read in blocks. */
enum status file_checksum(uint32_t *out, const char *path);

/* Writes "<a>/<b>" into out. STATUS_INVALID: it does not fit. */
enum { FILE_PATH_MAX = 4096 };
enum status file_join(char out[FILE_PATH_MAX], const char *a, const char *b);
/* Writes the path that names the same file after a change of the working directory. STATUS_INVALID: it does not fit. */
enum status file_absolute(char out[FILE_PATH_MAX], const char *path);
