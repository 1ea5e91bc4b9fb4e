/* test_train_place.c -- what launchers say in the environment, and the one GPU that is left to a process. */
#include "tests/test.h"
#include "tools/shared/train_place.h"

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

/* Pairs of name and value, NULL behind the last; nothing else is set. */
static void environment(const char *const *pairs) {
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        CHECK(unsetenv(names[i]) == 0);
    for (; pairs[0]; pairs += 2)
        CHECK(setenv(pairs[0], pairs[1], 1) == 0);
}
#define ENVIRONMENT(...) environment((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void test_launchers(void) {
    struct train_place place;
    ENVIRONMENT();
    CHECK_OK(train_place_found(&place));
    CHECK(place.world == 1 && place.rank == 0 && !place.launched);
    ENVIRONMENT("RANK", "3"); /* anybody's variable */
    CHECK_OK(train_place_found(&place));
    CHECK(place.world == 1 && place.rank == 0);
    ENVIRONMENT("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
    CHECK_OK(train_place_found(&place));
    CHECK(place.world == 2 && place.rank == 1 && place.local == 1 && place.launched);
    ENVIRONMENT("RANK", "2", "WORLD_SIZE", "4", "LOCAL_RANK", "2", "LOCAL_WORLD_SIZE", "4");
    CHECK_OK(train_place_found(&place));
    CHECK(place.world == 4 && place.rank == 2 && place.local == 2);
    ENVIRONMENT("RANK", "2", "WORLD_SIZE", "4", "LOCAL_RANK", "0", "LOCAL_WORLD_SIZE", "2");
    CHECK_FAILS(train_place_found(&place), STATUS_UNSUPPORTED, "4 processes on several hosts");
    /* Never each of them alone: all would train the same model. */
    ENVIRONMENT("PMI_RANK", "70", "PMI_SIZE", "128");
    CHECK_FAILS(train_place_found(&place), STATUS_UNSUPPORTED, "128 processes: at most 64");
    const char *const damaged[][2] = {{"2", "2"}, {"-1", "2"}, {"x", "2"}, {"0", "0"}, {"0", "99999999999999999999"}};
    for (size_t i = 0; i < ARRAY_LEN(damaged); i++) {
        ENVIRONMENT("RANK", damaged[i][0], "WORLD_SIZE", damaged[i][1]);
        CHECK_FAILS(train_place_found(&place), STATUS_INVALID, "the launcher's environment is damaged");
    }
}

static void check_gpu(const char *list, int local, bool launched, const char *want) {
    struct train_place place = {.rank = local, .world = 4, .local = local, .launched = launched};
    ENVIRONMENT();
    if (list) CHECK(setenv("CUDA_VISIBLE_DEVICES", list, 1) == 0);
    if (!want) {
        CHECK_FAILS(train_place_show_gpu(&place), STATUS_INVALID, "names fewer GPUs than there are processes");
        return;
    }
    CHECK_OK(train_place_show_gpu(&place));
    CHECK(strcmp(getenv("CUDA_VISIBLE_DEVICES"), want) == 0);
}

static void test_gpus(void) {
    for (int launched = 0; launched < 2; launched++) {
        check_gpu(NULL, 0, launched, "0");
        check_gpu(NULL, 3, launched, "3");
        check_gpu("4,7,GPU-1a", 1, launched, "7");
        check_gpu("4,7,GPU-1a", 2, launched, "GPU-1a");
        check_gpu("4,7,GPU-1a", 3, launched, NULL);
        check_gpu("", 1, launched, ""); /* hidden stays hidden */
    }
    check_gpu("5", 0, false, "5");
    check_gpu("5", 1, false, NULL);
    check_gpu("5", 1, true, "5"); /* a launcher that shows each process its own */
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_launchers();
    test_gpus();
    return test_done();
}
