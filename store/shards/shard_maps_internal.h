/* shard_maps_internal.h -- maps a store's data files of one kind when they are needed.
 *
 * Touching a file that is not mapped maps it and checks it against its record. At most `budget` files are mapped at a
 * time; the least recently touched one is unmapped first. The operating system limits a process' mappings
 * (vm.max_map_count, 65,530) and address space (ulimit -v). If it refuses a mapping, the budget is halved.
 *
 * For one thread at a time. While that thread waits, other threads may read the mapped files. */
#pragma once
#include "store/shards/shard_files_internal.h"

enum { SHARD_MAPS_BUDGET = 8192 };       /* for each of two kinds: together a quarter of vm.max_map_count */

struct shard_slot {
    struct shard_map map;
    int64_t first_shard;                 /* of the file */
    uint64_t round;                      /* the last round in which it was touched */
    int32_t newer, older;                /* -1: none; the free list uses only `older` */
};
struct shard_maps {
    const char *store;
    const struct catalog *catalog;       /* whose files are mapped; NULL: `store` is not moved meanwhile */
    enum shard_kind kind;
    struct store_fingerprint fingerprint;
    const struct shard_record *shards;   /* borrowed until shard_maps_close */
    int64_t n_shards, files, mapped, budget;
    int32_t *slot_of;                    /* [n_shards]: for the first shard of a file, its slot + 1; 0: not mapped */
    struct shard_slot *slots;
    size_t n_slots, slots_capacity;
    int32_t newest, oldest, unused;
    uint64_t round;
};

/* Opens without mapping a file. `store` and `shards` must stay valid. */
enum status shard_maps_open(struct shard_maps *out, const char *store, enum shard_kind kind,
                            const struct store_fingerprint *f, const struct shard_record *shards, int64_t n_shards);
void shard_maps_close(struct shard_maps *m);              /* a zeroed one is fine */

/* Begins a round. Files that are touched in it stay mapped until the next round begins. */
void shard_maps_begin(struct shard_maps *m);
/* Maps the file of the shard, of which at least one shard must not be dropped. *full true: the file was not mapped,
 * because the files of this round use the whole budget. That cannot happen to the first file of a round. */
enum status shard_maps_touch(struct shard_maps *m, bool *full, int64_t shard);
/* Whether every file is mapped, so that touching changes nothing. */
bool shard_maps_complete(const struct shard_maps *m);
/* NULL: not mapped. */
const struct shard_map *shard_maps_get(const struct shard_maps *m, int64_t shard);
