/* stored_keys.h -- computes the keys of all tokens of a store (store/keys/store_keys.h). */
#pragma once
#include "indexer/build/key_windows.h"

/* What the keys of a model at a layer depend on, except for their rounding, which is STORE_KEYS_ANY. weights:
 * fingerprint of all weights (params_fingerprint). step: as in struct key_windows_config; for reading: 0, any. */
struct store_keys_spec stored_keys_spec(const struct model_config *config, const uint8_t weights[16], int key_layer,
                                        int step);

/* The rounding of keys that a device makes with weights of a type. rounded: as in struct key_windows_config. */
enum store_keys_rounding stored_keys_rounding(struct device *dev, enum dtype type, bool rounded);

/* A CPU without bf16 instructions from now on rounds products in plain C (matmul_round_plainly), if the store has keys
 * of bf16 products and `rounded` is set: they can then be extended. Returns whether it does. Before the decoder has
 * made passages or keys. */
bool stored_keys_round_plainly(struct device *dev, enum dtype type, bool rounded, const struct store_keys_state *have);

/* Opens the store's keys of a spec (store_keys_open). If `must` is false and the store has none, or those of another
 * model, *out is NULL. */
enum status stored_keys_find(struct store_keys **out, struct store_view *view, const struct store_keys_spec *spec,
                             const char *model, bool must);

/* A further device with the same model. */
struct stored_keys_device { struct device *device; struct decoder *decoder; };
struct stored_keys_job {
    struct key_windows_config config;
    const uint8_t *weights;              /* [16] */
    /* Each device makes whole files, the next one that no other has. Devices of one kind make the same bytes. store:
     * of config.view; only needed with further devices. */
    const struct stored_keys_device *more; int n_more;
    struct store *store;
    /* parts above 0: only every parts-th file, from number part - 1 on, so that processes may make parts at the same
     * time */
    int part, parts;
};
struct stored_keys_report {
    struct store_keys_spec spec;         /* of the keys */
    int64_t files, made;                 /* of the part, and those that this call has made; the others were complete */
    int64_t chunks;                      /* whose keys this call has computed */
    uint64_t bytes;                      /* of the files of the part */
    double seconds;
};
struct store_keys_spec stored_keys_job_spec(const struct stored_keys_job *job); /* of the keys that a job makes */
/* Makes the files that are missing or not complete; keys that an incomplete one has of the same spec are kept.
 * STATUS_INTERRUPTED: a stop was requested; complete files stay, and the next call continues. STATUS_UNSUPPORTED: the
 * model's layers have a state (decoder_passages.h). */
enum status stored_keys_make(struct stored_keys_report *out, const struct stored_keys_job *job);
