/* drt_index_devices.h -- the devices that compute an index: its centroids, and the list of each chunk. build, add and
 * update use those of their encoder; all other commands that can make an index use this.
 *
 * The devices are opened when they are needed, because most calls of join, repair, compact and drop make no index. */
#pragma once
#include "session/device_choice.h"
#include "store/store.h"

struct index_devices {
    struct device_choice choice;
    const char *devices;                 /* the text of --devices */
    int threads;
    struct device *first;                /* NULL: not opened yet */
    enum dtype type;                     /* of weights on it */
    struct device_group all, one;        /* all.n 0: `one` has the first */
    struct store_assignment inner; void *assigner;        /* of an assignment of index_devices_late */
};
/* Needs tools/shared/report.h. */
#define INDEX_DEVICES_DEFAULT {.choice = DEVICE_CHOICE_DEFAULT}
/* Rows of a table of options, as in tools/shared/option_rows.h; p: struct index_devices. */
#define OPTIONS_OF_INDEX_DEVICES(p)                                                                                    \
    OPTION_DEVICE((p).choice.device, "where the centroids of an index are computed, and chunks assigned to lists"),    \
        OPTION_DEVICES((p).devices, "assign chunks to lists on several GPUs, with the same result")

/* Reads the text of --devices. Call it after the options are parsed, before a GPU is used. Returns -1, or the exit code
 * of a usage error of the command. */
int index_devices_check(struct index_devices *p, const char *command, int64_t threads);
/* Opens the devices, if they are not open. */
enum status index_devices_open(struct index_devices *p);
/* Sets `clustering` and `assignment` of *how so that publishing opens the devices when it needs them. surely: an index
 * will be made; then a GPU that the user demands is opened at once, so that a host without one is refused before the
 * work. `p` must not move or be closed while *how is used. */
enum status index_devices_late(struct index_devices *p, struct store_publish *how, bool surely);
/* The assignment on the open devices: by GPUs, or by FAISS if the device is the CPU. */
struct store_assignment index_devices_assignment(struct index_devices *p);
void index_devices_close(struct index_devices *p);        /* a zeroed struct is fine */
