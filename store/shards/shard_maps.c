/* shard_maps.c -- see shard_maps_internal.h. The slots of mapped files form a list, the most recently touched first. */
#include "base/memory.h"
#include "store/shards/shard_maps_internal.h"
#include <assert.h>

enum { NONE = -1 };

enum status shard_maps_open(struct shard_maps *out, const char *store, enum shard_kind kind,
                            const struct store_fingerprint *f, const struct shard_record *shards, int64_t n_shards) {
    struct shard_maps m = {.store = store,
                           .kind = kind,
                           .fingerprint = *f,
                           .shards = shards,
                           .n_shards = n_shards,
                           .budget = SHARD_MAPS_BUDGET,
                           .newest = NONE,
                           .oldest = NONE,
                           .unused = NONE};
    TRY(memory_allocate_zero(&m.slot_of, (size_t)n_shards));
    for (int64_t i = 0; i < n_shards; i = shards[i].last_file_shard + 1) {
        struct shard_record file = record_of_shard_file(shards, i);
        m.files += !shard_is_dropped(&file);
    }
    *out = m;
    return STATUS_OK;
}

void shard_maps_close(struct shard_maps *m) {
    for (size_t i = 0; i < m->n_slots; i++)
        shard_close(&m->slots[i].map);
    memory_free(m->slots);
    memory_free(m->slot_of);
    *m = (struct shard_maps){0};
}

void shard_maps_begin(struct shard_maps *m) {
    m->round++;
}

bool shard_maps_complete(const struct shard_maps *m) {
    return m->mapped == m->files;
}

const struct shard_map *shard_maps_get(const struct shard_maps *m, int64_t shard) {
    int32_t slot = m->slot_of[m->shards[shard].first_file_shard];
    return slot ? &m->slots[slot - 1].map : NULL;
}

static void shard_maps_unlink(struct shard_maps *m, int32_t slot) {
    struct shard_slot *s = &m->slots[slot];
    *(s->newer == NONE ? &m->newest : &m->slots[s->newer].older) = s->older;
    *(s->older == NONE ? &m->oldest : &m->slots[s->older].newer) = s->newer;
}

static void shard_maps_link(struct shard_maps *m, int32_t slot) {
    struct shard_slot *s = &m->slots[slot];
    s->round = m->round;
    s->newer = NONE;
    s->older = m->newest;
    *(m->newest == NONE ? &m->oldest : &m->slots[m->newest].newer) = slot;
    m->newest = slot;
}

/* Unmaps the least recently touched file. Returns false if all mapped files were touched in this round. */
static bool shard_maps_evict(struct shard_maps *m) {
    int32_t slot = m->oldest;
    if (slot == NONE || m->slots[slot].round == m->round) return false;
    shard_maps_unlink(m, slot);
    m->slot_of[m->slots[slot].first_shard] = 0;
    shard_close(&m->slots[slot].map);
    m->slots[slot].older = m->unused;
    m->unused = slot;
    m->mapped--;
    return true;
}

static enum status shard_maps_reserve(struct shard_maps *m) {
    if (m->unused != NONE) return STATUS_OK;
    TRY(memory_grow(&m->slots, &m->slots_capacity, m->n_slots + 1));
    m->slots[m->n_slots] = (struct shard_slot){.older = NONE};
    m->unused = (int32_t)m->n_slots++;
    return STATUS_OK;
}

/* Halves the budget after a refused mapping, to leave address space to the rest of the process. Returns false if all
 * mapped files were touched in this round. */
static bool shard_maps_shrink(struct shard_maps *m) {
    int64_t before = m->mapped;
    m->budget = before > 1 ? before / 2 : 1;
    while (m->mapped >= m->budget && shard_maps_evict(m))
        ;
    return m->mapped < before;
}

enum status shard_maps_touch(struct shard_maps *m, bool *full, int64_t shard) {
    assert(shard >= 0 && shard < m->n_shards);
    int64_t first = m->shards[shard].first_file_shard;
    *full = false;
    if (m->slot_of[first]) {
        int32_t slot = m->slot_of[first] - 1;
        shard_maps_unlink(m, slot);
        shard_maps_link(m, slot);
        return STATUS_OK;
    }
    while (m->mapped >= m->budget)
        if (!shard_maps_evict(m)) {
            *full = true;
            return STATUS_OK;
        }
    if (m->catalog) TRY(catalog_check_folder(m->catalog));
    TRY(shard_maps_reserve(m));
    struct shard_slot *s = &m->slots[m->unused];
    struct shard_record file = record_of_shard_file(m->shards, first);
    enum status status = shard_open(&s->map, m->store, m->kind, &file, &m->fingerprint);
    while (status == STATUS_NO_MEMORY && shard_maps_shrink(m))
        status = shard_open(&s->map, m->store, m->kind, &file, &m->fingerprint);
    if (status == STATUS_NO_MEMORY && m->mapped > 0) { /* the files that are mapped in this round suffice to continue */
        *full = true;
        return STATUS_OK;
    }
    TRY(status);
    int32_t slot = (int32_t)(s - m->slots);
    m->unused = s->older;
    s->first_shard = first;
    m->slot_of[first] = slot + 1;
    m->mapped++;
    shard_maps_link(m, slot);
    return STATUS_OK;
}
