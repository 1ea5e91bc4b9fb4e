/* fuzz_json.c -- any bytes: the parser terminates, unescaped strings stay within their bound, and errors name a
 * position. */
#include "base/formats/json.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct json j;
    json_open(&j, "fuzz", data, size);
    bool skipped = json_skip(&j) == STATUS_OK; /* the walk below must have the same result */
    if (skipped && json_next(&j) != JSON_END) skipped = false;
    json_open(&j, "fuzz", data, size);
    for (;;) {
        enum json_event event = json_next(&j);
        if ((event == JSON_END && !skipped) || (event == JSON_ERROR && skipped)) abort();
        if (event == JSON_END) return 0;
        if (event == JSON_ERROR) return json_fail(&j, "JSON") == STATUS_OK;
        if (event == JSON_KEY || event == JSON_STRING) {
            char *text = malloc(j.length + 1);
            size_t length = 0;
            if (!text || json_string(&j, text, j.length + 1, &length) != STATUS_OK || length > j.length) abort();
            text[length] = 0;
            (void)json_equals(&j, text);
            free(text);
        } else if (event == JSON_NUMBER) {
            int64_t i = 0;
            double d = 0;
            (void)(json_int(&j, &i) == STATUS_OK);
            (void)(json_double(&j, &d) == STATUS_OK);
        }
    }
}
