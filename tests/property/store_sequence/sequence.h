/* sequence.h -- a store under random operations, and a model of it: a list of documents in memory.
 *
 * An operation changes the store, and the model in the same manner. It needs no other state and no other random numbers
 * than those of the model, so an operation that was killed can be repeated from a copy of the model. Text number t
 * gives the ids and the hash of a document; a chunk's ids give its landmark and its keys. Landmarks are integers, so
 * that scores are exact, and there are few different ones, so that many scores are equal. */
#pragma once
#include "store/keys/store_keys.h"
#include "store/store.h"
#include "tests/lexical_fixture.h"
#include "tests/store_fixture.h"

enum {
    SEQUENCE_DIM = 16,
    SEQUENCE_VOCAB = 90,     /* different ids; the ids of a wide vocabulary are multiples of SEQUENCE_WIDE */
    SEQUENCE_WIDE = 751,
    SEQUENCE_NAMES = 240,    /* pairs of a source and a key */
    SEQUENCE_SOURCES = 12,
    SEQUENCE_VERSIONS = 5,   /* texts of a name */
    SEQUENCE_SAME_IDS = 500, /* texts t and t + this have the same ids */
    SEQUENCE_DOCUMENTS = 8000,
    SEQUENCE_SHARDS = 4000,
    SEQUENCE_LIVE = 64,      /* a drop or a delete leaves so many chunks at least */
    SEQUENCE_KEY = 6,
    SEQUENCE_ROWS_MAX = FIXTURE_IDS_MAX
};
struct sequence_document { int64_t text, name, shard, first_chunk, chunks, tokens; bool deleted; };
struct sequence_shard { int64_t first_document; bool dropped; };
struct sequence {
    char base[600];                      /* the folder of all stores */
    int number;                          /* the store is <base>/s<number> */
    enum store_landmarks type;
    struct rng r;
    struct sequence_document documents[SEQUENCE_DOCUMENTS]; int64_t published, sealed;
    /* sealed_shards + 1 of them are valid: the last one is the next */
    struct sequence_shard shards[SEQUENCE_SHARDS + 1]; int64_t published_shards, sealed_shards;
    int64_t duplicates_published, duplicates_sealed;
    bool unchecked;                      /* the journal is of an update: it can only be dropped */
    bool lexical, frozen;
    bool whole;                          /* operations are one change of the store */
    char index[64];
    /* spec of the keys, 0: none, -1: they are not compared; the number of chunks when they were made */
    int keys; int64_t keys_chunks;
};

/* ---- sequence_model.c ---- */
extern bool sequence_wide;                                /* whether ids of tokens take four bytes */
int sequence_vocab(void);
const char *sequence_dir(const struct sequence *m);       /* one result is valid at a time in a thread */
void sequence_path(char out[700], const struct sequence *m, const char *name);
struct store_writer_config sequence_config(const struct sequence *m);
uint64_t sequence_below(struct sequence *m, uint64_t n);
bool sequence_one_in(struct sequence *m, uint64_t n);
size_t sequence_ids(int32_t ids[FIXTURE_IDS_MAX], int64_t text);
int sequence_chunk_ids(int32_t ids[FIXTURE_CHUNK], const struct sequence_document *d, int64_t in_document);
void sequence_landmark(float *row, const int32_t *ids);   /* of the ids of a chunk, -1 after the last */
void sequence_key(int8_t *codes, float *scales, int spec, const int32_t *ids);
struct store_keys_spec sequence_keys_spec(int spec);
void sequence_source(char out[64], int64_t name);
void sequence_add_document(struct sequence *m, int64_t text, int64_t name);
int64_t sequence_chunks(const struct sequence *m, int64_t documents);    /* of the first documents */
bool sequence_gone(const struct sequence *m, int64_t document);
int64_t sequence_holder(const struct sequence *m, int64_t text);         /* the document with this text, or -1 */
int64_t sequence_indexed(const struct sequence *m);       /* published chunks of shards that are not dropped */
int64_t sequence_alive(const struct sequence *m);         /* published chunks that a view has */
void sequence_forget_journal(struct sequence *m);
void sequence_compacted(struct sequence *m, int64_t shard_chunks);

/* ---- sequence_check.c, sequence_search.c: NULL, or what differs ---- */
/* What may differ in a view that was opened before later operations. */
struct sequence_view { bool old; const bool *dropped_later; };
const char *sequence_compare(const struct sequence *m, struct store_view *v, const struct sequence_view *how);
const char *sequence_compare_search(const struct sequence *m, struct store_view *v, struct rng *r);
const char *sequence_compare_words(const struct sequence *m, struct store_view *v, struct rng *r);
/* Opens the store; also verify --deep. */
const char *sequence_check(const struct sequence *m);
/* Opens a writer, which removes orphan files, and counts the files of the folders. */
const char *sequence_check_files(const struct sequence *m);
const char *sequence_differs(const char *file, int line, const char *what);
#define SEQUENCE_WANT(condition) \
    do { if (!(condition)) return sequence_differs(__FILE__, __LINE__, #condition); } while (0)
#define SEQUENCE_WANT_OK(call) \
    do { if ((call) != STATUS_OK) return sequence_differs(__FILE__, __LINE__, #call); } while (0)

/* ---- sequence_change.c, sequence_mend.c, sequence_copy.c ---- */
enum status sequence_add(struct sequence *m);
enum status sequence_update(struct sequence *m);
enum status sequence_delete(struct sequence *m);
enum status sequence_drop(struct sequence *m);
enum status sequence_lexical(struct sequence *m);
enum status sequence_publish(struct sequence *m);         /* publishes or drops the journal */
enum status sequence_keys(struct sequence *m);
enum status sequence_another_index(struct sequence *m);
enum status sequence_index_parts(struct sequence *m);
void sequence_damage(struct sequence *m);                 /* damages derived files and tables */
void sequence_damage_file(struct sequence *m, const char *path);
enum status sequence_repair(struct sequence *m);
enum status sequence_compact(struct sequence *m);
enum status sequence_join(struct sequence *m);            /* makes a new store of parts */
enum status sequence_freeze(struct sequence *m);
enum status sequence_fill(struct sequence *m, struct store_writer *w, int documents); /* one shard */
void sequence_finish_publish(struct store_publish *how);  /* after the publish that used `how` */
struct store_publish sequence_publish_how(struct sequence *m, int64_t indexed);
enum status sequence_make_keys(struct sequence *m, int spec);

/* ---- sequence_faults.c ---- */
void sequence_faults_off(void);
void sequence_faults_arm(bool kill, const char *name, long pass);
bool sequence_faults_fired(void);
extern const struct progress sequence_progress;           /* its requests to stop are one of the points */
struct sequence_passes { char name[96]; long passes; };
enum { SEQUENCE_POINTS = 200 };
void sequence_faults_count(struct sequence_passes out[SEQUENCE_POINTS]);  /* counts passes from now on */
