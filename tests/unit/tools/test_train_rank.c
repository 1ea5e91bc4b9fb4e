/* test_train_rank.c -- the environment variables of launchers, and the one GPU that stays visible to a process. */
#include "tests/test.h"
#include "tools/shared/train_rank.h"

static const char *const names[] = {"OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "MPI_LOCALRANKID",
                                    "PMI_SIZE",
                                    "MPI_LOCALNRANKS",
                                    "RANK",
                                    "LOCAL_RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_WORLD_SIZE",
                                    "CUDA_VISIBLE_DEVICES"};

/* Pairs of name and value, NULL after the last; no other variable is set. */
static void environment(const char *const *pairs) {
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        CHECK(unsetenv(names[i]) == 0);
    for (; pairs[0]; pairs += 2)
        CHECK(setenv(pairs[0], pairs[1], 1) == 0);
}
#define ENVIRONMENT(...) environment((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void test_launchers(void) {
    struct train_rank rank;
    ENVIRONMENT();
    CHECK_OK(train_rank_detect(&rank));
    CHECK(rank.world == 1 && rank.rank == 0 && !rank.launched);
    ENVIRONMENT("RANK", "3"); /* set by other programs, too */
    CHECK_OK(train_rank_detect(&rank));
    CHECK(rank.world == 1 && rank.rank == 0);
    ENVIRONMENT("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
    CHECK_OK(train_rank_detect(&rank));
    CHECK(rank.world == 2 && rank.rank == 1 && rank.local == 1 && rank.launched);
    ENVIRONMENT("RANK", "2", "WORLD_SIZE", "4", "LOCAL_RANK", "2", "LOCAL_WORLD_SIZE", "4");
    CHECK_OK(train_rank_detect(&rank));
    CHECK(rank.world == 4 && rank.rank == 2 && rank.local == 2);
    ENVIRONMENT("RANK", "2", "WORLD_SIZE", "4", "LOCAL_RANK", "0", "LOCAL_WORLD_SIZE", "2");
    CHECK_FAILS(train_rank_detect(&rank), STATUS_UNSUPPORTED, "4 processes on several hosts");
    /* None of them alone counts: all processes would train the same model. */
    ENVIRONMENT("PMI_RANK", "70", "PMI_SIZE", "128");
    CHECK_FAILS(train_rank_detect(&rank), STATUS_UNSUPPORTED, "128 processes: at most 64");
    const char *const damaged[][2] = {{"2", "2"}, {"-1", "2"}, {"x", "2"}, {"0", "0"}, {"0", "99999999999999999999"}};
    for (size_t i = 0; i < ARRAY_LEN(damaged); i++) {
        ENVIRONMENT("RANK", damaged[i][0], "WORLD_SIZE", damaged[i][1]);
        CHECK_FAILS(train_rank_detect(&rank), STATUS_INVALID, "the launcher's environment is damaged");
    }
}

static void check_gpu(const char *list, int local, bool launched, const char *want) {
    struct train_rank rank = {.rank = local, .world = 4, .local = local, .launched = launched};
    ENVIRONMENT();
    if (list) CHECK(setenv("CUDA_VISIBLE_DEVICES", list, 1) == 0);
    if (!want) {
        CHECK_FAILS(train_rank_show_gpu(&rank), STATUS_INVALID, "names fewer GPUs than there are processes");
        return;
    }
    CHECK_OK(train_rank_show_gpu(&rank));
    CHECK(strcmp(getenv("CUDA_VISIBLE_DEVICES"), want) == 0);
}

static void test_gpus(void) {
    for (int launched = 0; launched < 2; launched++) {
        check_gpu(NULL, 0, launched, "0");
        check_gpu(NULL, 3, launched, "3");
        check_gpu("4,7,GPU-1a", 1, launched, "7");
        check_gpu("4,7,GPU-1a", 2, launched, "GPU-1a");
        check_gpu("4,7,GPU-1a", 3, launched, NULL);
        check_gpu("", 1, launched, ""); /* hidden GPUs stay hidden */
    }
    check_gpu("5", 0, false, "5");
    check_gpu("5", 1, false, NULL);
    check_gpu("5", 1, true, "5"); /* a launcher that makes one GPU visible to each process */
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_launchers();
    test_gpus();
    return test_done();
}
