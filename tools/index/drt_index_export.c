/* drt_index_export.c -- drt-index export: every chunk with its position, ids and landmark, for other programs and for
 * comparing stores. */
#include "base/formats/json.h"
#include "base/memory.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include <string.h>
#include <xxhash.h>

enum landmarks { LANDMARKS_HASH, LANDMARKS_VALUES, LANDMARKS_NONE };

static void print_landmark(struct json_writer *w, const float *row, int dim, enum landmarks how) {
    if (how == LANDMARKS_HASH) {
        char hex[20];
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)XXH3_64bits(row, (size_t)dim * sizeof *row));
        json_write_key(w, "landmark_hash"), json_write_string(w, hex);
    } else if (how == LANDMARKS_VALUES) {
        json_write_key(w, "landmark");
        json_write_array(w);
        for (int i = 0; i < dim; i++)
            json_write_double(w, (double)row[i]);
        json_write_array_end(w);
    }
}

static enum status print_chunk(struct store_view *view, int64_t chunk, int32_t *ids, float *row, int dim,
                               enum landmarks how) {
    struct store_chunk c;
    struct store_document d;
    TRY(store_view_chunk(view, &c, ids, chunk));
    TRY(store_view_document(view, &d, c.document));
    if (how != LANDMARKS_NONE) TRY(store_view_landmark(view, row, chunk));
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "chunk"), json_write_int(&w, c.id);
    json_write_key(&w, "document"), json_write_int(&w, c.document);
    json_write_key(&w, "chunk_in_document"), json_write_int(&w, c.in_document);
    json_write_key(&w, "token_offset"), json_write_int(&w, c.token_offset);
    json_write_key(&w, "source"), json_write_string(&w, d.source);
    json_write_key(&w, "key"), json_write_string(&w, d.key);
    json_write_key(&w, "offset"), json_write_int(&w, (int64_t)d.offset);
    json_write_key(&w, "ids");
    json_write_array(&w);
    for (int i = 0; i < c.n_tokens; i++)
        json_write_int(&w, ids[i]);
    json_write_array_end(&w);
    print_landmark(&w, row, dim, how);
    json_write_object_end(&w);
    fputc('\n', stdout);
    return ferror(stdout) ? fail(STATUS_IO, "standard output cannot be written") : STATUS_OK;
}

static enum status export_run(const char *dir, enum landmarks how, int64_t first, int64_t count) {
    struct opened_store s;
    int32_t *ids = NULL;
    float *row = NULL;
    TRY(opened_store_open(&s, dir));
    struct store_dropped dropped = store_view_dropped(s.view);
    enum status status = STATUS_OK;
    if (first > s.info.chunks)
        status = fail(STATUS_INVALID, "%s: there is no chunk %lld, the store has %lld", dir, (long long)first,
                      (long long)s.info.chunks);
    else if (how == LANDMARKS_VALUES && s.info.landmarks == STORE_LANDMARKS_NONE)
        status = fail(STATUS_UNSUPPORTED, "%s: has no landmarks to print: leave --landmarks values out", dir);
    if (s.info.landmarks == STORE_LANDMARKS_NONE) how = LANDMARKS_NONE;
    TRY_GOTO(status, status, out);
    TRY_GOTO(status, memory_allocate(&ids, (size_t)s.info.fingerprint.chunk_tokens), out);
    TRY_GOTO(status, memory_allocate(&row, (size_t)s.info.fingerprint.dim), out);
    for (int64_t rank = store_dropped_rank(dropped, first); count != 0; rank++, count--) {
        int64_t chunk = store_dropped_nth(dropped, rank);
        if (chunk >= s.info.chunks) break;
        TRY_GOTO(status, print_chunk(s.view, chunk, ids, row, s.info.fingerprint.dim, how), out);
    }
out:
    memory_free(row);
    memory_free(ids);
    opened_store_close(&s);
    return status;
}

int drt_index_export(int argc, char **argv, const char **operands) {
    const char *dir = NULL, *landmarks = "hash";
    int64_t first = 0, count = -1;
    const struct arg_option options[] = {
        OPTION_STORE(dir),
        {"landmarks", ARG_CHOICE, &landmarks, "hash|values|none",
         "what to print of landmarks, if the store has any; hash: XXH3-64 of the stored row as float32", 0, 0},
        {"first", ARG_INT, &first, "ID", "the first chunk", 0, 1e18},
        {"count", ARG_INT, &count, "N", "how many chunks; -1: to the end", -1, 1e18},
    };
    const struct arg_program program = {
        .name = "drt-index export",
        .synopsis = "[--store] STORE [options]",
        .about = "Prints one JSON object for each chunk of the newest generation: its position in its document and "
                 "source file, its token ids, and its landmark. Two stores hold the same data if their outputs are "
                 "equal except for the source files.",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!dir) return drt_index_usage("export", "--store STORE is missing");
    enum landmarks how = LANDMARKS_HASH;
    if (strcmp(landmarks, "values") == 0) how = LANDMARKS_VALUES;
    if (strcmp(landmarks, "none") == 0) how = LANDMARKS_NONE;
    return drt_index_exit(export_run(dir, how, first, count));
}
