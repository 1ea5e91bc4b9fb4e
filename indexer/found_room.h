/* found_room.h -- where a search on a device leaves what it finds: ids and scores in one piece, so that one copy brings both. */
#pragma once
#include "kernels/device/device.h"

struct found_places { int64_t *index; float *score; };    /* score lies behind index */
/* Zeroed: empty. `there`: the device's side, NULL where memory is shared; `reach`: `here` as the device may write it, or NULL. */
struct found_room { void *here, *there, *reach; int64_t places; };

/* Room for that many places at least; what was found before is lost when it has to grow. */
enum status found_room_reserve(struct found_room *r, struct device *dev, int64_t places);
void found_room_release(struct found_room *r, struct device *dev);        /* empty is fine; and is what it leaves */

static inline size_t found_bytes(int64_t places) { return (size_t)places * (sizeof(int64_t) + sizeof(float)); }
static inline struct found_places found_in(void *memory, int64_t places) {
    return (struct found_places){(int64_t *)memory, (float *)(void *)((int64_t *)memory + places)};
}
static inline struct found_places found_here(const struct found_room *r, int64_t places) { return found_in(r->here, places); }
static inline struct found_places found_there(const struct found_room *r, const struct device *dev, int64_t places) {
    return found_in(device_side(dev, r->here, r->there), places);
}
/* For an op that writes each place once: straight to this process where that can be, else as found_there. device_fetch to
 * found_here brings either. */
static inline struct found_places found_straight(const struct found_room *r, const struct device *dev, int64_t places) {
    return r->reach ? found_in(r->reach, places) : found_there(r, dev, places);
}
