/* keys_follow.h -- whether the keys of a store (stored_keys.h) follow a change of its chunks, for drt-index and libdrt.
 *
 * After a build or an addition the new chunks get keys if the store has keys of the same model and rounding, with their
 * layer and step. Other keys stay as they are, without the new chunks: neither are they replaced, which may cost hours,
 * nor are rows of two kinds in one file. */
#pragma once
#include "indexer/build/stored_keys.h"

/* What a program computes keys with. */
struct keys_maker {
    uint8_t weights[16];                 /* fingerprint of all weights (params_fingerprint) */
    int layers;
    enum store_keys_rounding rounding;
};
struct keys_maker keys_maker_of(const struct model_config *model, const struct params *params,
                                enum store_keys_rounding rounding);

/* What is to do. layer, step: as in struct key_windows_config, but layer 0: the model's memory_layer, or the last. */
struct keys_follow {
    bool make;                           /* keys of this layer and step are to make */
    int layer, step;
    int64_t lacking;                     /* chunks that the store's keys lack and, without `make`, will lack */
};
/* have: of the newest view. maker: NULL only if have->chunks is 0. wanted: keys are made in any case. Without it a note
 * says which keys do not have the new chunks. */
void keys_follow_decide(struct keys_follow *out, const char *store, const struct store_keys_state *have,
                        const struct keys_maker *maker, bool wanted, const struct progress *progress);
/* STATUS_MISMATCH: the store has keys of another model or rounding. The message names the remedy. */
enum status keys_follow_check(const char *store, const struct store_keys_state *have, const struct keys_maker *maker);
/* The same for keys of a given spec: STATUS_MISMATCH also for another layer or step. */
enum status keys_spec_check(const char *store, const struct store_keys_state *have,
                            const struct store_keys_spec *spec);
/* stored_keys_make after that check. */
enum status keys_follow_make(struct stored_keys_report *out, const char *store, const struct stored_keys_job *job);
