/* test_trace.c -- records of a trace: which list belongs to which chunk, characters across chunk ends, and the escaping
 * of text in JSON and in the page. */
#include "tools/trace/trace.h"

#include "tests/test.h"

enum { CHUNK = 4, K = 3 };
static struct tokenizer *tokenizer;

/* ---- a sink that keeps its records ------------------------------------------------------------------ */

struct kept {
    int64_t number;
    int n_ids, n_prompt, n_groups, n_hits[2];
    int64_t ids[2][K];
    float weight[2][K];
    char text[64], hit_text[2][K][64];
    size_t prompt_bytes;
};
static struct kept kept[16];
static int n_kept, n_ended;
static bool ended_keep;
static enum status sink_answer;

static enum status keep_chunk(struct trace_sink *sink, const struct trace_chunk *c) {
    (void)sink;
    if (sink_answer != STATUS_OK) return fail(sink_answer, "the sink is full");
    struct kept *k = &kept[n_kept++];
    *k = (struct kept){.number = c->number,
                       .n_ids = c->n_ids,
                       .n_prompt = c->n_prompt,
                       .n_groups = c->n_groups,
                       .prompt_bytes = c->prompt_text_bytes};
    memcpy(k->text, c->text, c->text_bytes);
    for (int g = 0; g < c->n_groups; g++) {
        k->n_hits[g] = c->groups[g].n_hits;
        for (int i = 0; i < c->groups[g].n_hits; i++) {
            const struct trace_hit *hit = &c->groups[g].hits[i];
            CHECK_EQ(hit->source, NEIGHBOUR_OWN_PAST);
            CHECK_EQ(hit->token_offset, hit->chunk * CHUNK);
            CHECK_STR(hit->document, "");
            k->ids[g][i] = hit->chunk;
            k->weight[g][i] = hit->weight;
            memcpy(k->hit_text[g][i], hit->text, hit->text_bytes);
        }
    }
    return STATUS_OK;
}
static enum status keep_end(struct trace_sink *sink, bool keep) {
    (void)sink;
    n_ended++;
    ended_keep = keep;
    return STATUS_OK;
}
static struct trace_sink keeper = {keep_chunk, keep_end};

static struct trace *start(struct trace_sink *sink) {
    struct trace *t;
    struct trace_config config = {.tokenizer = tokenizer, .chunk = CHUNK, .groups = 2, .sinks = {sink}, .n_sinks = 1};
    n_kept = n_ended = 0;
    sink_answer = STATUS_OK;
    CHECK_OK(trace_create(&t, &config));
    return t;
}

/* The decoder's report: the query of chunk `first` + row finds `found` own chunks, the newest first. */
static void report(struct trace *t, int group, int64_t first, int64_t rows) {
    int64_t id[8 * K];
    float weight[8 * K], score[8 * K];
    int8_t source[8 * K];
    int32_t slot[8 * K] = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int i = 0; i < K; i++) {
            int64_t at = r * K + i, chunk = first + r - 1 - i;
            bool there = chunk >= 0;
            id[at] = there ? chunk : -1;
            source[at] = there ? NEIGHBOUR_OWN_PAST : NEIGHBOUR_NONE;
            weight[at] = there ? 1.0f / (float)(i + 2 + group) : 0;
            score[at] = there ? (float)-i : -INFINITY;
        }
    struct neighbours n = {
        .n = rows, .k = K, .slot = slot, .weight = weight, .score = score, .id = id, .source = source};
    struct decoder_watch watch = trace_watch(t);
    watch.retrieval(watch.context, group, first, &n);
}

static int32_t ids_of(int32_t *out, const char *text) {
    struct tokenizer_scratch *scratch;
    const int32_t *ids;
    size_t n;
    CHECK_OK(tokenizer_scratch_create(&scratch, tokenizer));
    CHECK_OK(tokenizer_encode(tokenizer, scratch, text, strlen(text), TOKENIZER_LITERAL, &ids, &n));
    memcpy(out, ids, n * sizeof *ids);
    tokenizer_scratch_free(scratch);
    return (int32_t)n;
}

static void test_records(void) {
    struct trace *t = start(&keeper);
    int32_t ids[64];
    int n = ids_of(ids, "aaaabbbbccccdddde\xc3\xa9"
                        "f<"); /* the tiny tokenizer may merge letters, so the ids are counted below */
    CHECK(n >= 3 * CHUNK + 1);
    /* Two chunks in one pass, as a prompt; then one id at a time. */
    report(t, 0, 0, 2);
    report(t, 1, 0, 2);
    CHECK_OK(trace_tokens(t, ids, 2 * CHUNK + 1, true));
    CHECK_EQ(n_kept, 2);
    for (int i = 2 * CHUNK + 1; i < n; i++) {
        if ((i + 1) % CHUNK == 0) {
            report(t, 0, i / CHUNK, 1);
            report(t, 1, i / CHUNK, 1);
        }
        CHECK_OK(trace_tokens(t, &ids[i], 1, false));
    }
    CHECK_OK(trace_end(t, true));
    CHECK_EQ(n_ended, 1);
    CHECK(ended_keep);
    CHECK_EQ(n_kept, (n + CHUNK - 1) / CHUNK);
    char whole[256] = "";
    for (int c = 0; c < n_kept; c++) {
        CHECK_EQ(kept[c].number, c);
        CHECK_EQ(kept[c].n_ids, c + 1 < n_kept || n % CHUNK == 0 ? CHUNK : n % CHUNK);
        CHECK_EQ(kept[c].n_prompt, c < 2 ? CHUNK : c == 2 ? 1 : 0);
        if (c < 2) CHECK_EQ(kept[c].prompt_bytes, strlen(kept[c].text));
        if (c == 2) CHECK(kept[c].prompt_bytes < strlen(kept[c].text));
        if (c > 2) CHECK_EQ(kept[c].prompt_bytes, 0);
        CHECK_EQ(kept[c].n_groups, c == 0 ? 0 : 2);
        for (int g = 0; g < kept[c].n_groups; g++) {
            /* Chunk c reads what the query of chunk c - 1 found: chunks c - 2, c - 3, c - 4 as far as they exist. */
            CHECK_EQ(kept[c].n_hits[g], c - 1 < K ? c - 1 : K);
            for (int i = 0; i < kept[c].n_hits[g]; i++) {
                CHECK_EQ(kept[c].ids[g][i], c - 2 - i);
                CHECK(kept[c].weight[g][i] == 1.0f / (float)(i + 2 + g));
                CHECK_STR(kept[c].hit_text[g][i], kept[c - 2 - i].text);
            }
        }
        strcat(whole, kept[c].text);
    }
    CHECK_STR(whole, "aaaabbbbccccdddde\xc3\xa9"
                     "f<");
}

/* trace_tokens returns a sink's failure, and the other sinks end without keeping their output. */
static void test_failure(void) {
    struct trace *t = start(&keeper);
    int32_t ids[64];
    int n = ids_of(ids, "aaaabbbbccccdddd");
    sink_answer = STATUS_NO_SPACE;
    CHECK_FAILS(trace_tokens(t, ids, n, true), STATUS_NO_SPACE, "the sink is full");
    CHECK_OK(trace_end(t, false));
    CHECK_EQ(n_ended, 1);
    CHECK(!ended_keep);
    CHECK_OK(trace_end(NULL, true));
}

static char *read_whole(const char *path) {
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    CHECK(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void test_files(void) {
    char path[600];
    struct trace_sink *sink;
    int32_t ids[64];
    int n = ids_of(ids, "</script><!--\"\\\n");
    CHECK_FAILS(trace_sink_for(&sink, "x.txt", ""), STATUS_INVALID, ".jsonl");
    CHECK_FAILS(trace_sink_for(&sink, ".html", ""), STATUS_INVALID, ".jsonl");
    snprintf(path, sizeof path, "%s/t.jsonl", test_folder());
    CHECK_OK(trace_sink_for(&sink, path, ""));
    struct trace *t = start(sink);
    CHECK_OK(trace_tokens(t, ids, n, false));
    CHECK(access(path, F_OK) != 0); /* no incomplete trace appears */
    CHECK_OK(trace_end(t, true));
    char *text = read_whole(path);
    CHECK(strncmp(text, "{\"chunk\":0,", 11) == 0);
    CHECK(text[strlen(text) - 1] == '\n');
    snprintf(path, sizeof path, "%s/t.html", test_folder());
    CHECK_OK(trace_sink_for(&sink, path, "<title> & more"));
    t = start(sink);
    CHECK_OK(trace_tokens(t, ids, n, false));
    CHECK_OK(trace_end(t, true));
    text = read_whole(path);
    int closed = 0;
    for (char *at = text; (at = strstr(at, "</script")); at++)
        closed++;
    CHECK_EQ(closed, 2);
    CHECK(!strstr(text, "<!--"));
    CHECK(strstr(text, "\\u003c"));
    CHECK(strstr(text, "&lt;title> &amp; more"));
    CHECK(!strstr(text, "<title> &"));
    snprintf(path, sizeof path, "%s/dropped.html", test_folder());
    CHECK_OK(trace_sink_for(&sink, path, ""));
    CHECK_OK(trace_end(start(sink), false));
    CHECK(access(path, F_OK) != 0);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    const char *source = getenv("DRT_SOURCE");
    char path[600];
    snprintf(path, sizeof path, "%s/tests/cli/tiny/tokenizer.json", source ? source : ".");
    CHECK_OK(tokenizer_open(&tokenizer, path));
    test_records();
    test_failure();
    test_files();
    tokenizer_free(tokenizer);
    return test_done();
}
