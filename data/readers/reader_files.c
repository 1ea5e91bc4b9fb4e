/* reader_files.c -- makes a list of files with formats from the inputs. A folder's files are in byte order of their
 * paths. */
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include "data/tokenizer/utf8.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const text_suffixes[] = {".txt", ".md", ".rst", ".tex", ".text", ".markdown"};
static const char *const jsonl_suffixes[] = {".jsonl", ".ndjson"};
static const char *const parquet_suffixes[] = {".parquet", ".pq"};
static const char *const arrow_suffixes[] = {".arrow", ".feather"};
static const char *const packed_suffixes[] = {".gz", ".zst", ".xz"};

bool reader_is_stdin(const char *path) {
    return strcmp(path, "-") == 0;
}

static bool ends_with(const char *name, size_t n, const char *suffix) {
    size_t m = strlen(suffix);
    return n > m && strncasecmp(name + n - m, suffix, m) == 0;
}

enum reader_format reader_format_of_name(const char *name) {
    size_t n = strlen(name);
    bool packed = false;
    for (size_t i = 0; i < ARRAY_LEN(packed_suffixes) && !packed; i++)
        if (ends_with(name, n, packed_suffixes[i])) {
            n -= strlen(packed_suffixes[i]);
            packed = true;
        }
    for (size_t i = 0; i < ARRAY_LEN(text_suffixes); i++)
        if (ends_with(name, n, text_suffixes[i])) return READER_TXT;
    for (size_t i = 0; i < ARRAY_LEN(jsonl_suffixes); i++)
        if (ends_with(name, n, jsonl_suffixes[i])) return READER_JSONL;
    if (packed) return READER_AUTO;
    for (size_t i = 0; i < ARRAY_LEN(parquet_suffixes); i++)
        if (ends_with(name, n, parquet_suffixes[i])) return READER_PARQUET;
    for (size_t i = 0; i < ARRAY_LEN(arrow_suffixes); i++)
        if (ends_with(name, n, arrow_suffixes[i])) return READER_ARROW;
    if (ends_with(name, n, ".u16")) return READER_U16;
    if (ends_with(name, n, ".u32")) return READER_U32;
    if (ends_with(name, n, ".idx")) return READER_MEGATRON;
    return READER_AUTO;
}

const char *reader_offset_unit(const char *source) {
    enum reader_format format = reader_format_of_name(source);
    return format == READER_PARQUET ? "row group" : format == READER_ARROW ? "record batch" : "byte";
}

enum status reader_add_file(struct reader *r, const char *path, enum reader_format format, bool from_folder,
                            int64_t bytes) {
    TRY(memory_grow(&r->files, &r->files_capacity, r->n_files + 1));
    struct input_file *f = &r->files[r->n_files];
    *f = (struct input_file){.format = format, .from_folder = from_folder, .bytes = bytes, .end = UINT64_MAX};
    TRY(memory_copy_string(&f->path, path));
    r->n_files++;
    return STATUS_OK;
}

/* ---- folders --------------------------------------------------------------------------------------------------- */

static int compare_paths(const void *a, const void *b) {
    return strcmp(((const struct input_file *)a)->path, ((const struct input_file *)b)->path);
}

static enum status add_folder(struct reader *r, const char *path, enum reader_format format) {
    if (format == READER_U16 || format == READER_U32 || format == READER_MEGATRON)
        return fail(STATUS_INVALID, "%s: is a folder; name the token files themselves", path);
    size_t before = r->n_files;
    TRY(reader_walk(r, path, format));
    if (r->n_files == before)
        return fail(STATUS_NOT_FOUND, "%s: the folder holds no %s files", path,
                    format == READER_JSONL     ? ".jsonl"
                    : format == READER_PARQUET ? ".parquet"
                    : format == READER_ARROW   ? ".arrow"
                    : format == READER_TXT     ? "text (.txt .md .rst .tex .text)"
                                               : "text (.txt .md .rst .tex .text), .jsonl, .parquet or .arrow");
    if (r->links_out > 0)
        progress_note(r->progress,
                      "%s: %lld links lead out of this folder and were followed (--no-follow leaves links out)", path,
                      (long long)r->links_out);
    r->links_out = 0;
    qsort(r->files + before, r->n_files - before, sizeof *r->files, compare_paths);
    return STATUS_OK;
}

/* ---- single files ------------------------------------------------------------------------------------------------ */

bool megatron_path(char out[FILE_PATH_MAX], const char *input, const char *suffix) {
    size_t n = strlen(input);
    if (ends_with(input, n, ".bin") || ends_with(input, n, ".idx")) n -= 4;
    if (n + strlen(suffix) + 1 > FILE_PATH_MAX) return false;
    memcpy(out, input, n);
    memcpy(out + n, suffix, strlen(suffix) + 1);
    return true;
}

static bool megatron_pair(const char *path) {
    char bin[FILE_PATH_MAX], idx[FILE_PATH_MAX];
    return megatron_path(bin, path, ".bin") && megatron_path(idx, path, ".idx") && file_exists(bin) && file_exists(idx);
}

enum reader_format reader_format_of_path(const char *path) {
    enum reader_format format = reader_format_of_name(path);
    return format == READER_AUTO && megatron_pair(path) ? READER_MEGATRON : format;
}

static size_t past_blanks(const char *text, size_t bytes, size_t at) {
    while (at < bytes && strchr(" \t\r\n", text[at]))
        at++;
    return at;
}

/* Determines the format by content: an object at the start is jsonl, text without NUL is text. */
static enum status format_of_bytes(enum reader_format *out, const char *path) {
    struct stream *s;
    char head[1024];
    size_t got = 0;
    TRY(stream_open(&s, path));
    enum status status = stream_read(s, head, sizeof head, &got);
    stream_close(s);
    TRY(status);
    if (got >= 4 && memcmp(head, "PAR1", 4) == 0) return *out = READER_PARQUET, STATUS_OK;
    if (got >= 6 && memcmp(head, "ARROW1", 6) == 0) return *out = READER_ARROW, STATUS_OK;
    if (memchr(head, '\0', got))
        return fail(STATUS_UNSUPPORTED,
                    "%s: the format is not known from name or content; give it with --format "
                    "(jsonl, txt, u16, u32, megatron, parquet or arrow)",
                    path);
    size_t at = past_blanks(head, got, utf8_mark(head, got));
    size_t second = past_blanks(head, got, at + 1);
    if (second < got && head[at] == '[' && head[second] == '{')
        return fail(STATUS_UNSUPPORTED,
                    "%s: is one JSON array: make it JSON lines (jq -c '.[]'), or give --format txt to take it as text",
                    path);
    *out = at < got && head[at] == '{' ? READER_JSONL : READER_TXT;
    return STATUS_OK;
}

static enum status add_megatron(struct reader *r, const char *input) {
    char bin[FILE_PATH_MAX], idx[FILE_PATH_MAX];
    if (!megatron_path(bin, input, ".bin") || !megatron_path(idx, input, ".idx"))
        return fail(STATUS_INVALID, "%s: the path is too long", input);
    uint64_t bytes, index_bytes;
    TRY(file_size(&index_bytes, idx));
    TRY(file_size(&bytes, bin));
    return reader_add_file(r, input, READER_MEGATRON, false, (int64_t)bytes);
}

static enum status add_input(struct reader *r, const char *input, enum reader_format format) {
    if (reader_is_stdin(input)) {
        if (format != READER_AUTO && format != READER_JSONL && format != READER_TXT)
            return fail(STATUS_INVALID, "standard input can be jsonl or txt; token files must be named");
        return reader_add_file(r, input, format == READER_AUTO ? READER_JSONL : format, false, -1);
    }
    if (file_is_directory(input)) return add_folder(r, input, format);
    if (format == READER_AUTO) format = reader_format_of_path(input);
    if (format == READER_MEGATRON) return add_megatron(r, input);
    struct stat info;
    if (stat(input, &info) != 0) return fail_errno("%s", input);
    bool plain = S_ISREG(info.st_mode);
    if (format == READER_AUTO && !plain) /* a pipe cannot be read twice */
        return fail(STATUS_INVALID, "%s: is not a plain file, so its format must be given: --format jsonl or txt",
                    input);
    if (format == READER_AUTO) TRY(format_of_bytes(&format, input));
    return reader_add_file(r, input, format, false, plain ? info.st_size : -1);
}

/* Reads the schema of each parquet and arrow file at once, so that an error in one of many files is found
 * before hours of work. */
static enum status check_columns(struct reader *r) {
    enum status status = STATUS_OK;
    for (size_t i = 0; i < r->n_files && status == STATUS_OK; i++) {
        if (r->files[i].format != READER_PARQUET && r->files[i].format != READER_ARROW) continue;
        if (progress_stop_requested(r->progress))
            return fail(STATUS_INTERRUPTED, "stopped while the inputs were opened");
        r->position.file = i;
        status = reader_open_file(r);
        reader_close_file(r);
    }
    r->position.file = 0;
    return status;
}

enum status reader_list(struct reader *r, const struct reader_config *config) {
    if (config->source.next) return reader_add_file(r, "memory", READER_TXT, false, -1);
    if (config->n_inputs <= 0) return fail(STATUS_INVALID, "no input: name files, folders, or - for standard input");
    int from_stdin = 0;
    for (int i = 0; i < config->n_inputs; i++) {
        from_stdin += reader_is_stdin(config->inputs[i]);
        if (from_stdin > 1) return fail(STATUS_INVALID, "standard input (-) is named twice");
        TRY(add_input(r, config->inputs[i], config->format));
    }
    return check_columns(r);
}
