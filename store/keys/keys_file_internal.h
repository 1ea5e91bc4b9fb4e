/* keys_file_internal.h -- one file of keys. A file is a header of 128 bytes, the codes of all rows, zeros up to a
 * multiple of 64 bytes, a float32 scale for each row, and a footer of 16 bytes with the CRC32C of all before it. */
#pragma once
#include "base/file.h"
#include "store/catalog/records_internal.h"
#include "store/keys/store_keys.h"

enum { KEYS_HEADER_BYTES = 128, KEYS_FOOTER_BYTES = 16, KEYS_ALIGN = 64 };
struct keys_head {
    struct store_keys_spec spec;
    int64_t number, chunks;              /* number: in its section */
    uint8_t anchor[16];                  /* content hash of the first chunk's document; 0: it was deleted */
};
struct keys_file {
    struct file_map map;                 /* data NULL: none is mapped */
    struct keys_head head;
};

/* Path of file `number` of a store, "keys/00007.keys". */
enum status keys_path(char out[FILE_PATH_MAX], const char *store, int64_t number);
/* Size of a file of so many chunks. */
uint64_t keys_file_bytes(const struct store_keys_spec *spec, int64_t chunks);
void keys_header_make(uint8_t out[KEYS_HEADER_BYTES], const struct keys_head *head);
void keys_footer_make(uint8_t out[KEYS_FOOTER_BYTES], uint32_t crc);

/* Maps a file, and checks all but its checksum. spec NULL: a file of any spec; model: for messages. STATUS_NOT_FOUND,
 * _MISMATCH, _CORRUPT, _VERSION: messages name the remedy. */
enum status keys_file_open(struct keys_file *out, const char *path, const struct store_keys_spec *spec,
                           const char *model);
void keys_file_close(struct keys_file *f);                /* a zeroed struct is fine */
enum status keys_file_verify(const struct keys_file *f, const char *path);   /* STATUS_CORRUPT: wrong checksum */
/* Size and checksum of the whole file, which are those of an undamaged file. */
struct stored_file keys_file_recorded(const struct keys_file *f);
struct store_key_rows keys_file_rows(const struct keys_file *f, int64_t chunk);      /* chunk: in the file */

/* Checks that a file is file `number` of the view's store, by the layout and the documents. STATUS_CORRUPT. */
enum status keys_file_fits(const struct keys_file *f, const char *path, struct store_view *view,
                           struct keys_range range);
/* The same without a view: only by the layout. */
enum status keys_file_in(const struct keys_file *f, const char *path, struct keys_range range);
/* The content hash of the document of a chunk; 0 if it was deleted. */
enum status keys_anchor(uint8_t out[16], struct store_view *view, int64_t chunk);
