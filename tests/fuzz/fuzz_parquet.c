/* fuzz_parquet.c -- any bytes as a parquet file. The corpus is also what tests/unit/data/readers/test_columnar.c reads;
 * make_columnar.py beside it wrote it. */
#include "tests/fuzz/fuzz_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_rows(data, size, READER_PARQUET);
    return 0;
}
