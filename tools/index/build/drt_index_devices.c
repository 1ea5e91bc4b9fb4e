/* drt_index_devices.c -- see drt_index_devices.h. */
#include "tools/index/build/drt_index_devices.h"
#include "indexer/search/assignment.h"
#include "indexer/search/clustering.h"
#include "tools/index/drt_index.h"
#include "tools/shared/option_rows.h"
#include <stdio.h>
#include <string.h>

int index_devices_check(struct index_devices *p, const char *command, int64_t threads) {
    p->threads = (int)threads;
    return devices_choose(&p->choice, p->devices) == STATUS_OK ? -1 : drt_index_usage(command, status_message());
}

enum status index_devices_open(struct index_devices *p) {
    if (p->first) return STATUS_OK;
    TRY(device_choose(&p->first, &p->type, &p->choice, p->threads));
    p->one = (struct device_group){&p->first, 1};
    return device_choose_group(&p->all, p->first, &p->choice);
}

void index_devices_close(struct index_devices *p) {
    device_group_close(&p->all);
    device_close(p->first);
    p->first = NULL;
}

struct store_assignment index_devices_assignment(struct index_devices *p) {
    if (p->first->shares_memory) return (struct store_assignment){0};
    return assignment_on(p->all.n > 0 ? &p->all : &p->one);
}

/* ---- opened when publishing needs them ---- */

/* STATUS_IO for any failure: after STATUS_NO_MEMORY FAISS would do the work. */
static enum status late_open(struct index_devices *p) {
    char why[300];
    if (index_devices_open(p) == STATUS_OK) return STATUS_OK;
    snprintf(why, sizeof why, "%s", status_message());
    return fail(STATUS_IO, "%s", why);
}

static enum status late_fit(void *context, float *centroids, const float *rows, int64_t n, int dim, int64_t lists,
                            const struct progress *progress) {
    struct index_devices *p = context;
    TRY(late_open(p));
    const struct store_clustering there = clustering_on(p->first);
    return there.fit(there.context, centroids, rows, n, dim, lists, progress);
}

static enum status late_available(void *context, bool *out) {
    struct index_devices *p = context;
    TRY(late_open(p));
    p->inner = index_devices_assignment(p);
    *out = p->inner.open;
    return STATUS_OK;
}

static enum status late_begin(void *context, void **assigner, const float *centroids, int64_t lists, int dim) {
    struct index_devices *p = context;
    TRY(p->inner.open(p->inner.context, &p->assigner, centroids, lists, dim));
    *assigner = p;
    return STATUS_OK;
}

static enum status late_assign(void *assigner, int32_t *list, struct store_assign_rows rows, int64_t first, int64_t n) {
    const struct index_devices *p = assigner;
    return p->inner.assign(p->assigner, list, rows, first, n);
}

static void late_end(void *assigner) {
    struct index_devices *p = assigner;
    p->inner.close(p->assigner);
    p->assigner = NULL;
}

enum status index_devices_late(struct index_devices *p, struct store_publish *how, bool surely) {
    how->clustering = (struct store_clustering){.fit = late_fit, .context = p};
    how->assignment = (struct store_assignment){
        .available = late_available, .open = late_begin, .assign = late_assign, .close = late_end, .context = p};
    return surely && strcmp(p->choice.device, "cuda") == 0 ? index_devices_open(p) : STATUS_OK;
}
