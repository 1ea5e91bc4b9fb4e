/* found_room.c -- see found_room.h. */
#include "indexer/found_room.h"

enum status found_room_reserve(struct found_room *r, struct device *dev, int64_t places) {
    if (places <= r->places) return STATUS_OK;
    found_room_release(r, dev);
    TRY(device_allocate_host(dev, &r->here, found_bytes(places)));
    TRY(device_buffer(dev, &r->there, found_bytes(places)));
    r->reach = device_reach(dev, r->here);
    r->places = places;
    return STATUS_OK;
}

void found_room_release(struct found_room *r, struct device *dev) {
    device_release_host(dev, r->here);
    device_release(dev, r->there);
    *r = (struct found_room){0};
}
