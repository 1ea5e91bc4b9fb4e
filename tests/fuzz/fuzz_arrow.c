/* fuzz_arrow.c -- any bytes as an arrow file. tests/unit/data/readers/test_columnar.c reads the same corpus, which
 * make_columnar.py there wrote. */
#include "tests/fuzz/fuzz_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_rows(data, size, READER_ARROW);
    return 0;
}
