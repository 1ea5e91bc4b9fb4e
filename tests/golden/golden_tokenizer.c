/* golden_tokenizer.c -- tokenizer_cases.jsonl: text to ids, exactly, and for the literal cases back to the text. */
#include "base/file.h"
#include "base/formats/json.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/golden/golden.h"

enum { TOKENIZERS_MAX = 8, IDS_MAX = 1 << 16 };

struct used {
    char name[64];
    struct tokenizer *tokenizer;
    struct tokenizer_scratch *scratch;
    int lines, wrong;
};

struct line {
    char tokenizer[64];
    char *text;
    size_t bytes;
    int32_t *ids;
    size_t n_ids;
};

static void parse_line(struct line *l, const char *path, const char *at, size_t bytes) {
    struct json j;
    json_open(&j, path, at, bytes);
    l->bytes = l->n_ids = 0;
    CHECK_OK(json_expect(&j, JSON_OBJECT, "an object"));
    while (json_next(&j) == JSON_KEY) {
        size_t length;
        if (json_equals(&j, "tokenizer")) {
            CHECK_OK(json_expect(&j, JSON_STRING, "a name"));
            CHECK_OK(json_string(&j, l->tokenizer, sizeof l->tokenizer, &length));
        } else if (json_equals(&j, "text")) {
            CHECK_OK(json_expect(&j, JSON_STRING, "a text"));
            l->text = realloc(l->text, j.length + 1);
            CHECK_OK(json_string(&j, l->text, j.length + 1, &l->bytes));
        } else if (json_equals(&j, "ids")) {
            CHECK_OK(json_expect(&j, JSON_ARRAY, "ids"));
            for (int64_t id; json_next(&j) == JSON_NUMBER;) {
                CHECK_OK(json_int(&j, &id));
                CHECK(l->n_ids < IDS_MAX);
                l->ids[l->n_ids++] = (int32_t)id;
            }
        } else {
            CHECK_OK(json_skip(&j));
        }
    }
}

static struct used *find(struct used *all, int *n, const char *path, const char *name) {
    for (int i = 0; i < *n; i++)
        if (strcmp(all[i].name, name) == 0) return &all[i];
    CHECK(*n < TOKENIZERS_MAX);
    struct used *u = &all[(*n)++];
    snprintf(u->name, sizeof u->name, "%s", name);
    const char *slash = strrchr(path, '/');
    char file[FILE_PATH_MAX];
    snprintf(file, sizeof file, "%.*stokenizers/%s.json", slash ? (int)(slash - path) + 1 : 0, path, name);
    CHECK_OK(tokenizer_open(&u->tokenizer, file));
    CHECK_OK(tokenizer_scratch_create(&u->scratch, u->tokenizer));
    return u;
}

int golden_tokenizer(const char *path, const char *name) {
    enum tokenizer_specials specials = strstr(name, "special") ? TOKENIZER_RECOGNISE : TOKENIZER_LITERAL;
    struct file_map map;
    CHECK_OK(file_map(&map, path));
    struct used used[TOKENIZERS_MAX] = {0};
    struct line l = {.ids = golden_zeroed(IDS_MAX, sizeof(int32_t))};
    int n = 0, number = 0, failures = 0;
    for (const char *at = (const char *)map.data, *end = at + map.size; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((stop ? stop : end) - at);
        number++;
        if (bytes > 0) {
            parse_line(&l, path, at, bytes);
            struct used *u = find(used, &n, path, l.tokenizer);
            const int32_t *ids;
            size_t n_ids;
            CHECK_OK(tokenizer_encode(u->tokenizer, u->scratch, l.text, l.bytes, specials, &ids, &n_ids));
            bool same = n_ids == l.n_ids && (n_ids == 0 || memcmp(ids, l.ids, n_ids * sizeof *ids) == 0);
            if (!same) fprintf(stderr, "%s:%d: %s: other ids\n", name, number, l.tokenizer);
            u->lines++;
            u->wrong += !same;
        }
        at = stop ? stop + 1 : end;
    }
    for (int i = 0; i < n; i++) {
        printf("%s %s(%d-lines) %d 0 %s\n", name, used[i].name, used[i].lines, used[i].wrong,
               used[i].wrong ? "FAIL" : "ok");
        failures += used[i].wrong;
        tokenizer_scratch_free(used[i].scratch);
        tokenizer_free(used[i].tokenizer);
    }
    if (n == 0) {
        fprintf(stderr, "%s: holds no case\n", path);
        failures++;
    }
    free(l.text), free(l.ids);
    file_unmap(&map);
    return failures;
}
