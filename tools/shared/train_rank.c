/* train_rank.c -- see train_rank.h. */
#include "tools/shared/train_rank.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads a number from the environment; -1: it is missing, not a number, or too large. */
static int number_of(const char *name) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return -1;
    long value = strtol(text, &end, 10);
    return *end || value < 0 || value > 1 << 20 ? -1 : (int)value;
}

static bool is_set(const char *name) {
    const char *text = getenv(name);
    return text && *text;
}

void train_rank_set_rendezvous(struct train_rank *rank, long parent) {
    snprintf(rank->rendezvous, sizeof rank->rendezvous, "%s/drt-train-%ld",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", parent);
}

struct launcher {
    const char *rank, *local, *world, *here;
};

static enum status train_rank_from(struct train_rank *out, const struct launcher *l) {
    int rank = number_of(l->rank), world = number_of(l->world), here = number_of(l->here), local = number_of(l->local);
    if (rank < 0 || rank >= world)
        return fail(STATUS_INVALID, "%s is \"%.20s\" of %s \"%.20s\": the launcher's environment is damaged", l->rank,
                    getenv(l->rank), l->world, getenv(l->world));
    if (here >= 0 && here != world)
        return fail(STATUS_UNSUPPORTED, "%d processes on several hosts: drt-train trains on the GPUs of one host",
                    world);
    if (world > TRAIN_PROCESSES_MAX)
        return fail(STATUS_UNSUPPORTED, "%d processes: at most %d can train one model", world, TRAIN_PROCESSES_MAX);
    *out = (struct train_rank){.rank = rank, .world = world, .local = local >= 0 ? local : rank, .launched = true};
    train_rank_set_rendezvous(out, getppid());
    return STATUS_OK;
}

enum status train_rank_detect(struct train_rank *out) {
    static const struct launcher launchers[] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"},
        {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    };
    *out = (struct train_rank){.world = 1};
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++)
        if (is_set(launchers[i].rank) && is_set(launchers[i].world)) return train_rank_from(out, &launchers[i]);
    return STATUS_OK;
}

enum status train_rank_show_gpu(const struct train_rank *rank) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES"), *at = list;
    char one[64];
    snprintf(one, sizeof one, "%d", rank->local);
    if (list) {
        if (!*list || (rank->launched && !strchr(list, ','))) return STATUS_OK;
        for (int i = 0; i < rank->local && at; i++) {
            at = strchr(at, ',');
            if (at) at++;
        }
        if (!at)
            return fail(STATUS_INVALID, "CUDA_VISIBLE_DEVICES (%.40s) names fewer GPUs than there are processes", list);
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, ","), at);
    }
    return setenv("CUDA_VISIBLE_DEVICES", one, 1) == 0 ? STATUS_OK : fail_errno("CUDA_VISIBLE_DEVICES");
}
