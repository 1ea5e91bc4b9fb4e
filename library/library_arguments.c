/* library_arguments.c -- messages, versions, and the structs that callers give. */
#include "base/memory.h"
#include "library/library_internal.h"
#include "session/build_version.h"
#include <string.h>

#define SAME(name)                                                                                                     \
    _Static_assert((int)STATUS_##name == (int)DRT_##name, "drt.h numbers its codes as base/status.h does")
SAME(OK);
SAME(IO);
SAME(NO_SPACE);
SAME(NO_MEMORY);
SAME(NOT_FOUND);
SAME(INVALID);
SAME(CORRUPT);
SAME(MISMATCH);
SAME(VERSION);
SAME(BUSY);
SAME(UNSUPPORTED);
SAME(INTERRUPTED);
SAME(READ_ONLY);

const char *drt_message(void) {
    return status_message();
}

const char *drt_status_text(int status) {
    return status_text((enum status)status);
}

void drt_free(void *memory) {
    memory_free(memory);
}

enum drt_status drt_version(struct drt_version_info *out) {
    LIBRARY_NEEDS(out);
    const struct build_version built = build_version();
    struct drt_version_info info = {.major = built.major, .minor = built.minor, .patch = built.patch};
    snprintf(info.commit, sizeof info.commit, "%s", built.commit);
    snprintf(info.faiss, sizeof info.faiss, "%s", built.faiss);
    snprintf(info.cuda, sizeof info.cuda, "%s", built.cuda);
    build_version_text(info.text, sizeof info.text, "libdrt");
    return (enum drt_status)library_fill(out, &info, sizeof info, "struct drt_version_info");
}

static enum status library_size(size_t *out, const void *given, const char *name) {
    memcpy(out, given, sizeof *out);
    if (*out < sizeof *out || *out > 1 << 16)
        return fail(STATUS_INVALID, "%s: its member size is %zu: set it to the sizeof of the struct", name, *out);
    return STATUS_OK;
}

enum status library_take(void *out, size_t size, const void *given, const char *name) {
    memset(out, 0, size);
    if (!given) return STATUS_OK;
    size_t has;
    TRY(library_size(&has, given, name));
    memcpy(out, given, has < size ? has : size);
    for (size_t i = size; i < has; i++)
        if (((const char *)given)[i])
            return fail(STATUS_UNSUPPORTED, "%s: has a member that this version of libdrt does not know", name);
    return STATUS_OK;
}

enum status library_fill(void *given, const void *filled, size_t size, const char *name) {
    size_t has;
    TRY(library_size(&has, given, name));
    size_t n = has < size ? has : size;
    memset(given, 0, has);
    memcpy(given, filled, n);
    memcpy(given, &has, sizeof has);
    return STATUS_OK;
}

/* The first loop has no exit, so that the compiler makes vector code of it: a call may have millions of ids. */
enum status library_check_ids(const int32_t *ids, int64_t n, int vocab, bool pad) {
    const int32_t least = pad ? -1 : 0;
    const uint32_t range = (uint32_t)(vocab - least);
    int wrong = 0;
    for (int64_t i = 0; i < n; i++)
        wrong |= (uint32_t)ids[i] - (uint32_t)least >= range;
    for (int64_t i = 0; wrong && i < n; i++)
        if (ids[i] >= vocab || ids[i] < least)
            return fail(STATUS_INVALID, "id %d at %lld: must be %s below the vocabulary's size, %d", (int)ids[i],
                        (long long)i, pad ? "-1 or an id" : "an id", vocab);
    return STATUS_OK;
}

/* ---- progress ----------------------------------------------------------------------------------------------- */

static void library_report(void *context, const struct progress_event *event) {
    const struct drt_progress *to = context;
    const struct drt_progress_event copy = {.stage = event->stage,
                                            .unit = event->unit,
                                            .done = event->done,
                                            .total = event->total,
                                            .note = event->note,
                                            .detail = event->detail};
    to->report(to->context, &copy);
}

static bool library_stop(void *context) {
    const struct drt_progress *to = context;
    return to->stop(to->context);
}

struct progress library_progress(const struct drt_progress *from) {
    return (struct progress){.report = from->report ? library_report : NULL,
                             .stop_requested = from->stop ? library_stop : NULL,
                             .context = (void *)from};
}
