/* drt_index_stats.c -- drt-index stats: the contents of a store in numbers. */
#include "base/formats/json.h"
#include "store/keys/store_keys.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"

/* Files and bytes of keys, and what they cover. */
struct keys_stats {
    struct store_keys_usage usage;
    struct store_keys_state state;
};

static void print_json(const struct store_info *i, const struct keys_stats *keys) {
    char hex[33];
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    const struct json_number numbers[] = {
        {"format", i->format},
        {"generation", (int64_t)i->generation},
        {"documents", i->documents - i->dropped_documents},
        {"chunks", i->chunks - i->dropped_chunks},
        {"tokens", i->tokens - i->dropped_tokens},
        {"shards", i->shards},
        {"dropped_shards", i->dropped_shards},
        {"dropped_documents", i->dropped_documents - i->deleted_documents},
        {"dropped_chunks", i->dropped_chunks - i->deleted_chunks},
        {"deleted_documents", i->deleted_documents},
        {"deleted_chunks", i->deleted_chunks},
        {"segments", i->segments},
        {"duplicates", i->duplicates},
        {"token_bytes", (int64_t)i->token_bytes},
        {"landmark_bytes", (int64_t)i->landmark_bytes},
        {"index_bytes", (int64_t)i->index_bytes},
        {"lexical_segments", i->lexical_segments},
        {"lexical_bytes", (int64_t)i->lexical_bytes},
        {"keys_files", keys->usage.files},
        {"keys_bytes", (int64_t)keys->usage.bytes},
        {"keys_chunks", keys->state.chunks},
        {"catalog_bytes", (int64_t)i->catalog_bytes},
        {"chunk_tokens", i->fingerprint.chunk_tokens},
        {"dim", i->fingerprint.dim},
        {"vocab_size", i->fingerprint.vocab_size},
    };
    drt_index_numbers(&w, numbers, ARRAY_LEN(numbers));
    json_write_key(&w, "frozen"), json_write_bool(&w, i->frozen);
    json_write_key(&w, "lexical"), json_write_bool(&w, i->lexical);
    json_write_key(&w, "landmarks"), json_write_string(&w, store_landmarks_name(i->landmarks));
    json_write_key(&w, "index"), json_write_string(&w, i->index);
    json_write_key(&w, "encoder"), json_write_string(&w, drt_index_hex(hex, i->fingerprint.encoder));
    json_write_key(&w, "tokenizer"), json_write_string(&w, drt_index_hex(hex, i->fingerprint.tokenizer));
    json_write_object_end(&w);
    fputc('\n', stdout);
}

static void print_lexical(const struct opened_store *s, double each) {
    const struct store_info *i = &s->info;
    const struct lexical *index;
    char bytes[32];
    if (!i->lexical)
        printf("lexical      none (drt-index lexical makes it)\n");
    else if (store_view_lexical(&index, s->view) != STATUS_OK)
        streams_printf(stdout, "lexical      damaged: %s\n", status_message());
    else
        printf("lexical      %lld segments, %s (%.1f bytes a chunk)\n", (long long)i->lexical_segments,
               progress_bytes_text(bytes, i->lexical_bytes), (double)i->lexical_bytes / each);
}

static void print_keys(const struct keys_stats *keys) {
    const struct store_keys_state *s = &keys->state;
    char bytes[32];
    if (keys->usage.files == 0) return;
    printf("keys         %lld files, %s (of a token memory: ", (long long)keys->usage.files,
           progress_bytes_text(bytes, keys->usage.bytes));
    if (s->chunks > 0)
        printf("layer %d, %d numbers, %lld of %lld chunks, %s products)\n", s->spec.layer, s->spec.size,
               (long long)s->chunks, (long long)s->all, store_keys_rounding_name(s->spec.rounding));
    else
        printf("damaged, drt-index verify names the files)\n");
}

static void print_text(const char *dir, const struct opened_store *s, const struct keys_stats *keys) {
    const struct store_info *i = &s->info;
    char a[32], b[32], c[32], d[32], encoder[33], tokenizer[33];
    int64_t documents = i->documents - i->dropped_documents, tokens = i->tokens - i->dropped_tokens;
    int64_t chunks = i->chunks - i->dropped_chunks;
    double each = chunks > 0 ? (double)chunks : 1;
    streams_printf(stdout, "store        %s (format %d, generation %llu%s)\n", dir, i->format,
                   (unsigned long long)i->generation, i->frozen ? ", a frozen snapshot" : "");
    printf("documents    %lld (%lld exact duplicates were skipped)\n", (long long)documents, (long long)i->duplicates);
    printf("chunks       %lld of %d tokens, %lld tokens in all (%.1f a chunk)\n", (long long)chunks,
           i->fingerprint.chunk_tokens, (long long)tokens, (double)tokens / each);
    if (i->dropped_shards)
        printf("dropped      %lld documents and %lld chunks of %lld shards\n",
               (long long)(i->dropped_documents - i->deleted_documents),
               (long long)(i->dropped_chunks - i->deleted_chunks), (long long)i->dropped_shards);
    if (i->deleted_documents)
        printf("deleted      %lld documents and %lld chunks, whose bytes are still there\n",
               (long long)i->deleted_documents, (long long)i->deleted_chunks);
    if (i->landmarks == STORE_LANDMARKS_NONE)
        printf("shards       %lld: tokens %s; no landmarks, chunks are found by words alone\n", (long long)i->shards,
               progress_bytes_text(a, i->token_bytes));
    else
        printf("shards       %lld: tokens %s, landmarks %s (%d dimensions, %s)\n", (long long)i->shards,
               progress_bytes_text(a, i->token_bytes), progress_bytes_text(b, i->landmark_bytes), i->fingerprint.dim,
               i->landmarks == STORE_LANDMARKS_I8 ? "8-bit codes" : "fp16");
    if (i->landmarks == STORE_LANDMARKS_NONE)
        printf("index        none\n");
    else if (i->segments == 0)
        printf("index        exact: none, all landmarks are scanned\n");
    else
        streams_printf(stdout, "index        %s, %lld segments, %s\n", i->index, (long long)i->segments,
                       progress_bytes_text(c, i->index_bytes));
    print_lexical(s, each);
    print_keys(keys);
    printf("catalog      %s\n", progress_bytes_text(d, i->catalog_bytes));
    printf("a chunk      %.0f bytes on disk, all counted\n",
           (double)(i->token_bytes + i->landmark_bytes + i->index_bytes + i->lexical_bytes + keys->usage.bytes +
                    i->catalog_bytes) /
               each);
    printf("encoder      %s\n", drt_index_hex(encoder, i->fingerprint.encoder));
    printf("tokenizer    %s (%d ids)\n", drt_index_hex(tokenizer, i->fingerprint.tokenizer), i->fingerprint.vocab_size);
}

int drt_index_stats(int argc, char **argv, const char **operands) {
    const char *dir = NULL;
    bool json = false;
    const struct arg_option options[] = {
        OPTION_STORE(dir),
        OPTION_JSON(json, "one line of JSON: the whole catalog"),
    };
    const struct arg_program program = {
        .name = "drt-index stats",
        .synopsis = "[--store] STORE [--json]",
        .about = "Shows the newest published generation: counts, sizes, the indexes, and the fingerprint of the model.",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!dir) return drt_index_usage("stats", "--store STORE is missing");
    struct opened_store s;
    struct keys_stats keys;
    enum status status = opened_store_open(&s, dir);
    if (status != STATUS_OK) return drt_index_exit(status);
    status = store_keys_usage(&keys.usage, dir);
    if (status == STATUS_OK) status = store_keys_state(&keys.state, s.view);
    if (status == STATUS_OK && json)
        print_json(&s.info, &keys);
    else if (status == STATUS_OK)
        print_text(dir, &s, &keys);
    opened_store_close(&s);
    return drt_index_exit(status);
}
