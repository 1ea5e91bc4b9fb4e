/* test_library_abi.c -- what programs that were built with drt.h of soname libdrt.so.1 rely on: where members lie and
 * how large they are, and the numbers of enums. Members are added at the end of structs that have a `size`, at or after
 * the size that is noted here: in the padding before it, an older program's `size` would claim to have them. A new
 * member gets a row, and the struct's noted size stays. The functions are in cmake/symbols. */
#include "include/drt.h"
#include "tests/test.h"
#include <stddef.h>

struct member {
    const char *name;
    size_t offset, size, wanted_offset, wanted_size;
};
#define AT(type, member, at, bytes)                                                                                    \
    { #type "." #member, offsetof(struct type, member), sizeof(((struct type *)NULL)->member), at, bytes }

static const struct member members[] = {
    AT(drt_version_info, size, 0, 8),
    AT(drt_version_info, major, 8, 4),
    AT(drt_version_info, minor, 12, 4),
    AT(drt_version_info, patch, 16, 4),
    AT(drt_version_info, commit, 20, 64),
    AT(drt_version_info, faiss, 84, 64),
    AT(drt_version_info, cuda, 148, 32),
    AT(drt_version_info, text, 180, 256),
    AT(drt_progress_event, stage, 0, 8),
    AT(drt_progress_event, unit, 8, 8),
    AT(drt_progress_event, done, 16, 8),
    AT(drt_progress_event, total, 24, 8),
    AT(drt_progress_event, note, 32, 8),
    AT(drt_progress_event, detail, 40, 8),
    AT(drt_progress, report, 0, 8),
    AT(drt_progress, stop, 8, 8),
    AT(drt_progress, context, 16, 8),
    AT(drt_model_config, size, 0, 8),
    AT(drt_model_config, device, 8, 8),
    AT(drt_model_config, dtype, 16, 8),
    AT(drt_model_config, threads, 24, 4),
    AT(drt_model_info, size, 0, 8),
    AT(drt_model_info, path, 8, 8),
    AT(drt_model_info, variant, 16, 8),
    AT(drt_model_info, device, 24, 8),
    AT(drt_model_info, dtype, 32, 8),
    AT(drt_model_info, dim, 40, 4),
    AT(drt_model_info, vocab_size, 44, 4),
    AT(drt_model_info, layers, 48, 4),
    AT(drt_model_info, encoder_layers, 52, 4),
    AT(drt_model_info, heads, 56, 4),
    AT(drt_model_info, groups, 60, 4),
    AT(drt_model_info, chunk, 64, 4),
    AT(drt_model_info, window, 68, 4),
    AT(drt_model_info, neighbours, 72, 4),
    AT(drt_model_info, eos_id, 76, 4),
    AT(drt_model_info, pad_id, 80, 4),
    AT(drt_model_info, landmark_id, 84, 4),
    AT(drt_model_info, parameters, 88, 8),
    AT(drt_model_info, threads, 96, 4),
    AT(drt_store_info, size, 0, 8),
    AT(drt_store_info, generation, 8, 8),
    AT(drt_store_info, chunks, 16, 8),
    AT(drt_store_info, documents, 24, 8),
    AT(drt_store_info, tokens, 32, 8),
    AT(drt_store_info, dropped_chunks, 40, 8),
    AT(drt_store_info, dropped_documents, 48, 8),
    AT(drt_store_info, dropped_tokens, 56, 8),
    AT(drt_store_info, shards, 64, 8),
    AT(drt_store_info, segments, 72, 8),
    AT(drt_store_info, duplicates, 80, 8),
    AT(drt_store_info, token_bytes, 88, 8),
    AT(drt_store_info, landmark_bytes, 96, 8),
    AT(drt_store_info, index_bytes, 104, 8),
    AT(drt_store_info, catalog_bytes, 112, 8),
    AT(drt_store_info, dim, 120, 4),
    AT(drt_store_info, chunk, 124, 4),
    AT(drt_store_info, vocab_size, 128, 4),
    AT(drt_store_info, format, 132, 4),
    AT(drt_store_info, lexical, 136, 1),
    AT(drt_store_info, path, 144, 8),
    AT(drt_store_info, index, 152, 8),
    AT(drt_document, id, 0, 8),
    AT(drt_document, first_chunk, 8, 8),
    AT(drt_document, chunks, 16, 8),
    AT(drt_document, tokens, 24, 8),
    AT(drt_document, offset, 32, 8),
    AT(drt_document, line, 40, 8),
    AT(drt_document, bytes, 48, 8),
    AT(drt_document, hash, 56, 16),
    AT(drt_document, source, 72, 8),
    AT(drt_document, key, 80, 8),
    AT(drt_chunk, id, 0, 8),
    AT(drt_chunk, document, 8, 8),
    AT(drt_chunk, in_document, 16, 8),
    AT(drt_chunk, token_offset, 24, 8),
    AT(drt_chunk, n_tokens, 32, 4),
    AT(drt_chunk, reserved, 36, 4),
    AT(drt_landmark_rows, rows, 0, 8),
    AT(drt_landmark_rows, first, 8, 8),
    AT(drt_landmark_rows, n, 16, 8),
    AT(drt_landmark_rows, dim, 24, 4),
    AT(drt_landmark_rows, reserved, 28, 4),
    AT(drt_text, size, 0, 8),
    AT(drt_text, text, 8, 8),
    AT(drt_text, bytes, 16, 8),
    AT(drt_text, source, 24, 8),
    AT(drt_text, key, 32, 8),
    AT(drt_build_config, size, 0, 8),
    AT(drt_build_config, inputs, 8, 8),
    AT(drt_build_config, n_inputs, 16, 4),
    AT(drt_build_config, format, 24, 8),
    AT(drt_build_config, text_field, 32, 8),
    AT(drt_build_config, eod_id, 40, 8),
    AT(drt_build_config, skip_bad_lines, 48, 1),
    AT(drt_build_config, no_follow, 49, 1),
    AT(drt_build_config, next, 56, 8),
    AT(drt_build_config, next_context, 64, 8),
    AT(drt_build_config, append, 72, 1),
    AT(drt_build_config, restart, 73, 1),
    AT(drt_build_config, index, 80, 8),
    AT(drt_build_config, max_ram, 88, 8),
    AT(drt_build_config, shard_chunks, 96, 8),
    AT(drt_build_config, progress, 104, 24),
    AT(drt_report, size, 0, 8),
    AT(drt_report, documents, 8, 8),
    AT(drt_report, duplicates, 16, 8),
    AT(drt_report, empty, 24, 8),
    AT(drt_report, chunks, 32, 8),
    AT(drt_report, tokens, 40, 8),
    AT(drt_report, skipped_lines, 48, 8),
    AT(drt_report, passed_over, 56, 8),
    AT(drt_report, resumed_documents, 64, 8),
    AT(drt_report, resumed_chunks, 72, 8),
    AT(drt_report, generation, 80, 8),
    AT(drt_report, already_built, 88, 1),
    AT(drt_report, seconds, 96, 8),
    AT(drt_report, encode_seconds, 104, 8),
    AT(drt_report, tokenize_seconds, 112, 8),
    AT(drt_report, publish_seconds, 120, 8),
    AT(drt_searcher_config, size, 0, 8),
    AT(drt_searcher_config, kind, 8, 4),
    AT(drt_searcher_config, exact, 12, 1),
    AT(drt_searcher_config, exact_fallback, 13, 1),
    AT(drt_searcher_config, nprobe, 16, 4),
    AT(drt_searcher_config, candidates, 20, 4),
    AT(drt_searcher_config, landmark_weight, 24, 4),
    AT(drt_searcher_config, threads, 28, 4),
    AT(drt_searcher_info, size, 0, 8),
    AT(drt_searcher_info, kind, 8, 32),
    AT(drt_searcher_info, text, 40, 512),
    AT(drt_searcher_info, exact, 552, 1),
    AT(drt_searcher_info, visited, 560, 8),
    AT(drt_searcher_info, lists, 568, 8),
    AT(drt_searcher_info, device_bytes, 576, 8),
    AT(drt_searcher_info, queries, 584, 8),
    AT(drt_searcher_info, missing, 592, 8),
    AT(drt_range, begin, 0, 8),
    AT(drt_range, end, 8, 8),
    AT(drt_hit, chunk, 0, 8),
    AT(drt_hit, score, 8, 4),
    AT(drt_hit, reserved, 12, 4),
    AT(drt_search, size, 0, 8),
    AT(drt_search, k, 8, 4),
    AT(drt_search, nprobe, 12, 4),
    AT(drt_search, exclude, 16, 8),
    AT(drt_session_config, size, 0, 8),
    AT(drt_session_config, self, 8, 1),
    AT(drt_session_config, corpus, 9, 1),
    AT(drt_session_config, store, 16, 8),
    AT(drt_session_config, searcher, 24, 8),
    AT(drt_session_config, exclude, 32, 1),
    AT(drt_session_config, exclude_document, 40, 8),
    AT(drt_session_config, memory, 48, 4),
    AT(drt_session_config, memory_config, 56, 8),
    AT(drt_session_config, lexical, 64, 8),
    AT(drt_session_config, memory_past, 72, 8),
    AT(drt_session_config, temperature, 80, 4),
    AT(drt_session_config, top_p, 84, 4),
    AT(drt_session_config, min_p, 88, 4),
    AT(drt_session_config, top_k, 92, 4),
    AT(drt_session_config, repeat_penalty, 96, 4),
    AT(drt_session_config, repeat_last, 100, 4),
    AT(drt_session_config, seed, 104, 8),
    AT(drt_session_config, max_tokens, 112, 8),
    AT(drt_session_config, stops, 120, 8),
    AT(drt_session_config, n_stops, 128, 4),
    AT(drt_session_config, ignore_eos, 132, 1),
    AT(drt_session_config, top, 136, 4),
    AT(drt_session_config, progress, 144, 24),
    AT(drt_alternative, id, 0, 4),
    AT(drt_alternative, logprob, 4, 4),
    AT(drt_scores, n, 0, 8),
    AT(drt_scores, first, 8, 8),
    AT(drt_scores, top, 16, 4),
    AT(drt_scores, reserved, 20, 4),
    AT(drt_scores, ids, 24, 8),
    AT(drt_scores, logprob, 32, 8),
    AT(drt_scores, alternatives, 40, 8),
    AT(drt_scores, memory_share, 48, 8),
    AT(drt_scores, sum, 56, 8),
    AT(drt_neighbour, source, 0, 4),
    AT(drt_neighbour, group, 4, 4),
    AT(drt_neighbour, chunk, 8, 8),
    AT(drt_neighbour, document, 16, 8),
    AT(drt_neighbour, token_offset, 24, 8),
    AT(drt_neighbour, weight, 32, 4),
    AT(drt_neighbour, score, 36, 4),
    AT(drt_token, size, 0, 8),
    AT(drt_token, id, 8, 4),
    AT(drt_token, end, 12, 4),
    AT(drt_token, position, 16, 8),
    AT(drt_token, text, 24, 8),
    AT(drt_token, bytes, 32, 8),
    AT(drt_token, raw, 40, 8),
    AT(drt_token, raw_bytes, 48, 8),
    AT(drt_token, logprob, 56, 4),
    AT(drt_token, memory_share, 60, 4),
    AT(drt_token, alternatives, 64, 8),
    AT(drt_token, n_alternatives, 72, 4),
    AT(drt_token, n_neighbours, 76, 4),
    AT(drt_token, neighbours, 80, 8),
    AT(drt_session_info, size, 0, 8),
    AT(drt_session_info, tokens, 8, 8),
    AT(drt_session_info, chunks, 16, 8),
    AT(drt_session_info, queries, 24, 8),
    AT(drt_session_info, cache_hits, 32, 8),
    AT(drt_session_info, cache_misses, 40, 8),
    AT(drt_session_info, seconds, 48, 8),
    AT(drt_session_info, search_seconds, 56, 8),
    AT(drt_session_info, read_seconds, 64, 8),
    AT(drt_session_info, encode_seconds, 72, 8),
    AT(drt_session_info, searched_by, 80, 512),
};

struct whole {
    const char *name;
    size_t size, noted;
    bool grows;
};
#define GROWS(type, bytes)                                                                                             \
    { #type, sizeof(struct type), bytes, true }
#define FIXED(type, bytes)                                                                                             \
    { #type, sizeof(struct type), bytes, false }

static const struct whole wholes[] = {
    GROWS(drt_version_info, 440),   GROWS(drt_progress_event, 48),
    FIXED(drt_progress, 24),        GROWS(drt_model_config, 32),
    GROWS(drt_model_info, 104),     GROWS(drt_store_info, 160),
    GROWS(drt_document, 88),        FIXED(drt_chunk, 40),
    FIXED(drt_landmark_rows, 32),   GROWS(drt_text, 40),
    GROWS(drt_build_config, 128),   GROWS(drt_report, 128),
    GROWS(drt_searcher_config, 32), GROWS(drt_searcher_info, 600),
    FIXED(drt_range, 16),           FIXED(drt_hit, 16),
    GROWS(drt_search, 24),          GROWS(drt_session_config, 168),
    FIXED(drt_alternative, 8),      GROWS(drt_scores, 64),
    FIXED(drt_neighbour, 40),       GROWS(drt_token, 88),
    GROWS(drt_session_info, 592),
};

static void enums(void) {
    CHECK(DRT_OK == 0 && DRT_IO == -1 && DRT_NO_SPACE == -2 && DRT_NO_MEMORY == -3 && DRT_NOT_FOUND == -4);
    CHECK(DRT_INVALID == -5 && DRT_CORRUPT == -6 && DRT_MISMATCH == -7 && DRT_VERSION == -8 && DRT_BUSY == -9);
    CHECK(DRT_UNSUPPORTED == -10 && DRT_INTERRUPTED == -11 && DRT_READ_ONLY == -12);
    CHECK(DRT_SEARCH_AUTO == 0 && DRT_SEARCH_LEXICAL == 1 && DRT_SEARCH_HYBRID == 2);
    CHECK(DRT_MEMORY_NONE == 0 && DRT_MEMORY_OWN == 1 && DRT_MEMORY_CORPUS == 2 && DRT_MEMORY_BOTH == 3);
    CHECK(DRT_END_NONE == 0 && DRT_END_LENGTH == 1 && DRT_END_EOS == 2 && DRT_END_STOP == 3 && DRT_END_CALLBACK == 4);
    CHECK(DRT_SOURCE_SELF == 0 && DRT_SOURCE_CORPUS == 1);
    CHECK(sizeof(enum drt_status) == 4 && sizeof(bool) == 1);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    if (sizeof(void *) != 8) return 77;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        const struct member *m = &members[i];
        if (m->offset != m->wanted_offset || m->size != m->wanted_size)
            fprintf(stderr, "%s: %zu bytes at %zu, were %zu at %zu\n", m->name, m->size, m->offset, m->wanted_size,
                    m->wanted_offset);
        CHECK(m->offset == m->wanted_offset && m->size == m->wanted_size);
    }
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) {
        const struct whole *w = &wholes[i];
        if (w->grows ? w->size < w->noted : w->size != w->noted)
            fprintf(stderr, "%s: %zu bytes, were %zu\n", w->name, w->size, w->noted);
        CHECK(w->grows ? w->size >= w->noted : w->size == w->noted);
    }
    enums();
    return test_done();
}
