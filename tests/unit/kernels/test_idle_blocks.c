/* test_idle_blocks.c -- released memory is used again for its size alone, and no more is kept than the limit. */
#include "kernels/device/idle_blocks.h"
#include "tests/test.h"

int main(int argc, char **argv) {
    char memory[5];
    struct idle_blocks b = {.limit = 2048};
    test_start(argc, argv, 1);
    CHECK_EQ(idle_blocks_size(0), 512);
    CHECK_EQ(idle_blocks_size(1), 512);
    CHECK_EQ(idle_blocks_size(512), 512);
    CHECK_EQ(idle_blocks_size(513), 1024);
    CHECK(!idle_blocks_take(&b, 512) && !idle_blocks_drop(&b) && !idle_blocks_keep(&b, &memory[0]));
    const size_t sizes[] = {512, 1024, 1024, 4096, 512};
    for (int i = 0; i < 5; i++)
        CHECK_OK(idle_blocks_add(&b, &memory[i], sizes[i]));
    CHECK(!idle_blocks_take(&b, 512)); /* all are in use */
    CHECK(idle_blocks_keep(&b, &memory[1]) && idle_blocks_keep(&b, &memory[0]));
    CHECK_EQ(b.kept, 1536);
    CHECK(!idle_blocks_keep(&b, &memory[2])); /* above the limit: forgotten */
    CHECK(!idle_blocks_keep(&b, &memory[2]));
    CHECK(!idle_blocks_keep(&b, &memory[3]));
    CHECK_EQ(b.n, 3);
    CHECK(!idle_blocks_take(&b, 2048));
    CHECK(idle_blocks_take(&b, 1024) == &memory[1]);
    CHECK(!idle_blocks_take(&b, 1024));
    CHECK_EQ(b.kept, 512);
    CHECK(idle_blocks_keep(&b, &memory[4]));
    CHECK(idle_blocks_take(&b, 512) != NULL);
    CHECK(idle_blocks_drop(&b) != NULL);
    CHECK(!idle_blocks_drop(&b));
    CHECK_EQ(b.kept, 0);
    CHECK_EQ(b.n, 2);
    idle_blocks_release(&b);
    return test_done();
}
