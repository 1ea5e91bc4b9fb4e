/* memory_text_internal.h -- what a text with a token memory is made of, for the files memory_text*.c. */
#pragma once
#include "kernels/ops.h"
#include "session/memory_text.h"

/* A mixture: what it reads and what it leaves. Pointers and matrices are device memory, except g. */
struct text_mixture {
    struct mat state; /* [1, d], with a projection */
    /* [vocab_size]: the model's logits; the mixture, if the device cannot write it to the caller's memory */
    float *logits, *log_p;
    double *g;          /* [1 + MEMORY_SIDES], allocated with device_allocate_host */
    const float *mixed; /* the caller's array with log p; NULL: it is in log_p */
    struct mat last;    /* [1]: the state, or its key if `last_is_key` */
    bool last_is_key;
    struct text_read {              /* of each memory that is read */
        struct mat weights;         /* [1, columns] */
        float *p;                   /* [vocab_size] */
        struct token_memory memory; /* where it was */
    } side[MEMORY_SIDES];
};
/* What a search found, and the corpus side reads. */
struct text_found {
    int64_t searched; /* number of ids at the search; -1: there was none */
    struct memory_slots slots;
    struct memory_marks marks;
    const struct memory_marks *on_device; /* instead of `marks`; NULL: `marks` */
    const int64_t *chunks;                /* with on_device: after device_fetch_wait */
    int turn;                             /* with on_device: of memory_source_find_on_device */
};
/* A decode step that is queued, while the search before its mixture waits for the id. then NULL: there is none. */
struct text_waiting {
    struct decoder_batch_keys made;
    device_ops *then;
    void *context;
};
/* Two in turns, if passes may be queued ahead: the mixture before such a pass is kept. */
enum { TEXT_MIXTURES = 2 };

struct memory_text {
    struct memory_text_config config;
    struct memory_source *source; /* NULL: only the text's own past */
    int64_t n, ring;              /* n: ids so far; ring: positions of the ring buffer */
    int32_t *ids;
    size_t ids_capacity;
    struct mat projection;  /* [m, d]; data NULL: the state is the key, m is d */
    struct mat fresh, keys; /* fresh: [pass, m] of the current call; keys: [ring, m] */
    /* The states of the last ids, of which queries are made; data NULL: queries need none. states: [states_ring, d],
     * which is `keys` without a projection; fresh_states: [pass, d], with one. */
    struct mat states, fresh_states;
    struct mat query; /* [1, d] the vector that is made of them; data NULL: the source makes it, if there is one */
    int32_t *value;         /* [ring] */
    float *square;
    bool read[MEMORY_SIDES], marked_is_key;
    float *tau[MEMORY_SIDES]; /* [1] */
    struct text_mixture mixtures[TEXT_MIXTURES], *now;
    bool ahead;  /* the last pass was queued ahead of its id, which has not joined the text */
    bool queued; /* the search for the next mixture */
    /* of the last search; found_before: of the one before a pass that was queued ahead and searches */
    struct text_found found, found_before;
    struct text_waiting waiting;
    int64_t *chunks; /* of searches whose hits this process has taken */
    float *scores;
    struct memory_marks marked_marks;
    struct memory_gate *gate; /* device memory */
    double seconds;           /* from the end of the forward pass to the mixture */
    int32_t *column; /* [1 + MEMORY_CONTRIBUTORS_MAX]: an id, then the columns that were found for it; device memory */
    float *column_weight;
    /* [1] copies of `last` and `logits` of memory_text_mark; data NULL: none so far */
    struct mat marked, marked_logits;
    int64_t marked_n, marked_searched;
    int64_t *marked_chunks; /* what the search at marked_searched found */
};

/* The mixture that is not `now`. */
static inline struct text_mixture *memory_text_other(const struct memory_text *t) {
    return t->now == t->mixtures ? t->now + 1 : t->now - 1;
}
/* Whether a mixture after n ids searches. */
bool memory_text_searches(const struct memory_text *t, int64_t n);
/* Queues the making of the vector of a search after t->n ids, where it is made of states. */
void memory_text_vector(struct memory_text *t);
/* Adds ids after the first t->n. */
enum status memory_text_ids(struct memory_text *t, const int32_t *ids, int64_t n);
/* Where the pass of n ids writes their key states. The key of a single id is written into the ring buffer at once, or
 * the mixture projects its state. */
struct decoder_batch_keys memory_text_keys(const struct memory_text *t, bool mix, int64_t n);
/* The task of the mixture after the pass that fed n ids, whose last key state is the mixture's. */
struct next_token_task memory_text_task(struct memory_text *t, const struct decoder_state *state,
                                        const struct decoder_batch_keys *made, int64_t n);
/* Queues the mixture. out_device: [vocab_size], where log p of the next id goes. task: the state, what is appended and
 * the decode step. */
void memory_text_queue_mix(struct memory_text *t, float *out_device, struct next_token_task task);
