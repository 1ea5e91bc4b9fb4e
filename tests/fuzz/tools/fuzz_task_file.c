/* fuzz_task_file.c -- files of task samples: the samples are strings within the file, with at least one output each. */
#include "tools/tasks/task_file.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[] = "/tmp/fuzz-task-XXXXXX";
    struct task_file *f = NULL;
    struct task_sample s;
    bool more = true;
    int fd = mkstemp(path);
    if (fd < 0) abort();
    ssize_t written = write(fd, data, size);
    close(fd);
    if (written == (ssize_t)size && task_file_open(&f, path) == STATUS_OK)
        while (task_file_next(f, &s, &more) == STATUS_OK && more) {
            assert(s.n_outputs > 0 && s.prompt[s.prompt_bytes] == 0);
            for (int i = 0; i < s.n_outputs; i++)
                (void)strlen(s.outputs[i]);
            const double score = task_contained(&s, s.prompt, s.prompt_bytes);
            assert(score >= 0 && score <= 1);
        }
    task_file_close(f);
    unlink(path);
    return 0;
}
