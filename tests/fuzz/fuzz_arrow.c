/* fuzz_arrow.c -- any bytes as a arrow file. The corpus is also what tests/unit/data/readers/test_columnar.c reads;
 * make_columnar.py beside it wrote it. */
#include "tests/fuzz/fuzz_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_rows(data, size, READER_ARROW);
    return 0;
}
