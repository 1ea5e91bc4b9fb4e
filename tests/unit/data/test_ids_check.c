/* test_ids_check.c -- token files of another tokenizer are reported; those of this one, and inputs without ids, are
 * not. */
#include "base/file.h"
#include "data/readers/ids_check.h"
#include "tests/test.h"
#include <sys/stat.h>

static const char text[] =
    "The scheduler of a kernel decides which of the processes that could run is given a processor, and for how long. "
    "It keeps those that wait in a tree, ordered by the time that each of them has had so far, and takes the leftmost. "
    "A process that sleeps runs less, and would have all of the processor when it wakes: its time is moved up, so "
    "that it has what the others had, less a little. 1,024 is the weight of a process with the default priority.";

static char notes[4096];

static void keep_note(void *context, const struct progress_event *event) {
    (void)context;
    if (event->note) snprintf(notes + strlen(notes), sizeof notes - strlen(notes), "%s\n", event->note);
}

/* Two documents of the text's first `bytes` bytes, the end id after each. */
static void put_ids(const char *path, const struct tokenizer *t, size_t bytes, int32_t eod) {
    struct tokenizer_scratch *s;
    const int32_t *ids;
    size_t n;
    CHECK_OK(tokenizer_scratch_create(&s, t));
    CHECK_OK(tokenizer_encode(t, s, text, bytes, TOKENIZER_LITERAL, &ids, &n));
    FILE *file = fopen(path, "wb");
    for (int copy = 0; copy < 2; copy++)
        CHECK(file && fwrite(ids, sizeof *ids, n, file) == n && fwrite(&eod, sizeof eod, 1, file) == 1);
    CHECK_EQ(fclose(file), 0);
    tokenizer_scratch_free(s);
}

static const char *notes_on(const char *path, enum reader_format format, const struct tokenizer *t) {
    const struct progress progress = {.report = keep_note};
    const struct reader_config config = {.inputs = &path, .n_inputs = 1, .format = format, .eod_id = 0};
    notes[0] = 0;
    ids_check(&progress, &config, t);
    return notes;
}

int main(int argc, char **argv) {
    static const char *const files[] = {"data/models/drt-28m/tokenizer.json",
                                        "tests/unit/data/tokenizer_train/expected-gpt2.json",
                                        "tests/unit/data/tokenizer/llama2.json"};
    struct tokenizer *tokenizers[ARRAY_LEN(files)];
    test_start(argc, argv, 1);
    const char *source = getenv("DRT_SOURCE");
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char path[FILE_PATH_MAX];
        CHECK_OK(file_join(path, source ? source : ".", files[i]));
        CHECK_OK(tokenizer_open(&tokenizers[i], path));
    }
    const char *ids = test_path("ids.u32"), *named = test_path("ids"), *pipe = test_path("pipe.jsonl");
    for (size_t made = 0; made < ARRAY_LEN(files); made++) {
        put_ids(ids, tokenizers[made], sizeof text - 1, 0);
        put_ids(named, tokenizers[made], sizeof text - 1, 0);
        for (size_t read = 0; read < ARRAY_LEN(files); read++) {
            CHECK_EQ(strstr(notes_on(ids, READER_AUTO, tokenizers[read]), "another tokenizer") != NULL, made != read);
            CHECK_EQ(strlen(notes_on(named, READER_U32, tokenizers[read])) > 0, made != read);
        }
        /* A document cut in the middle of a word, and one that is too short for a verdict. */
        put_ids(ids, tokenizers[made], 401, 0);
        CHECK_STR(notes_on(ids, READER_AUTO, tokenizers[made]), "");
        put_ids(ids, tokenizers[made], 20, 0);
        CHECK_STR(notes_on(ids, READER_AUTO, tokenizers[(made + 1) % ARRAY_LEN(files)]), "");
    }
    /* Text, a pipe, which must not be opened, and a file that is not there. */
    CHECK_EQ(mkfifo(pipe, 0600), 0);
    CHECK_STR(notes_on(pipe, READER_AUTO, tokenizers[0]), "");
    CHECK_STR(notes_on(test_path("nothing.u16"), READER_AUTO, tokenizers[0]), "");
    CHECK_STR(notes_on(named, READER_TXT, tokenizers[0]), "");
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        tokenizer_free(tokenizers[i]);
    return test_done();
}
