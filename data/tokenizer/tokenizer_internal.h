/* tokenizer_internal.h -- the parts of a tokenizer, for the tokenizer_*.c files and their tests. A text is encoded in
 * these steps: repair UTF-8 -> cut out added tokens -> normalise -> cut out added tokens of the normalised kind ->
 * pre-tokenise into words -> byte-pair merges (with a cache of words) -> ids. */
#pragma once
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_regex.h"
#include "data/tokenizer/tokenizer_scan.h"

struct json;
struct bytes { char *data; size_t size, capacity; };
struct piece { const char *text; size_t bytes; bool first; };   /* first: begins where the whole text begins */
struct pieces { struct piece *items; size_t count, capacity; };

enum normal_kind { NORMAL_NFC, NORMAL_NFD, NORMAL_NFKC, NORMAL_NFKD, NORMAL_PREPEND, NORMAL_REPLACE };
struct normal { enum normal_kind kind; struct regex *regex; struct bytes from, to; };

enum split_behaviour { SPLIT_ISOLATED, SPLIT_REMOVED, SPLIT_PREVIOUS, SPLIT_NEXT, SPLIT_CONTIGUOUS };
enum prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };
enum step_kind { STEP_SCAN, STEP_REGEX, STEP_LITERAL, STEP_NUMBERS, STEP_PREFIX_SPACE, STEP_METASPACE };
struct step {
    enum step_kind kind;
    enum scanner scanner;
    struct regex *regex;
    struct bytes literal;                    /* STEP_LITERAL; STEP_METASPACE: the replacement */
    enum split_behaviour behaviour;
    bool invert;
    enum prepend prepend;
};

enum decoder_kind { DECODER_JOIN, DECODER_BYTE_LEVEL, DECODER_METASPACE, DECODER_SEQUENCE };

struct added { int32_t id; uint32_t at, bytes; bool special, single_word, lstrip, rstrip, normalized; };
struct added_set {                           /* sorted by spelling, so that a search narrows a range byte by byte */
    struct added *items;
    struct bytes text;
    int count, count_plain;                  /* count_plain: not special */
    int begin[257];                          /* items[begin[b] .. begin[b + 1]) start with byte b */
};

enum { STEPS_MAX = 16, TOKEN_KNOWN = 1, TOKEN_SPECIAL = 2, TOKEN_OF_MODEL = 4 };
struct token { uint32_t at, bytes, decoded_at, decoded_bytes; uint8_t flags; };
struct merge { uint64_t pair; int32_t rank, id; };                /* rank < 0: free slot */
/* The merges again: (left, right) has the rank of slots[rows[left] + right], if that slot has this left id (< 0: free).
 * Rows overlap in free slots. made: of each rank; its row is rows[id]. */
struct pair_slot { int32_t left; uint32_t rank; }; struct made { int32_t id; uint32_t row; };
struct pair_rows { struct pair_slot *slots; uint32_t *rows; struct made *made; };

struct tokenizer {
    char *path;
    uint8_t fingerprint[16];
    struct bytes spellings, decoded;         /* each spelling is followed by a NUL */
    struct token *tokens;
    size_t n_tokens, tokens_capacity;
    int32_t *by_spelling; size_t spelling_mask;   /* open addressing; -1: free */
    struct merge *merges; size_t merge_mask, n_ranks; struct pair_rows pairs;
    int32_t byte_id[256];                    /* byte-level: id of each byte; with byte fallback: id of <0xNN> */
    int32_t *char_id;                        /* not byte-level: id of each character below U+10000 */
    int32_t unk_id;
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    bool cut_at_space;                   /* no merge crosses U+2581, so words can be divided before it (bpe_prepare) */
    struct added_set added[2];               /* searched before ([0]) and after ([1]) normalisation */
    struct normal normals[STEPS_MAX]; int n_normals;
    struct step steps[STEPS_MAX]; int n_steps;
    enum scanner scanner;                    /* the last step, if it is a scanner: it is fused with the merges */
    uint8_t *classes;                        /* class of each code point, for the scanners */
    enum decoder_kind decoder;
    bool decode_bytes, decode_fused, strip_space;
    struct bytes decode_from, decode_to; int n_decode_replaces;   /* a Metaspace decoder replaces its mark */
    bool metaspace_drop;                     /* whether the first token's mark is dropped */
};

struct tokenizer_scratch {
    const struct tokenizer *tokenizer;
    struct short_word *short_words; struct word *words; struct run *runs;    /* the cache: tokenizer_bpe.c */
    uint64_t hits, misses;
    int32_t *ids; size_t n_ids, ids_capacity;
    struct bytes repaired, normal[2], rewritten[2], out;
    struct pieces pieces[2];
    uint32_t *codes; size_t codes_capacity; struct symbol *symbols; size_t symbols_capacity;
    uint64_t *heap; size_t heap_count, heap_capacity; struct regex_scratch *regex;
};

enum status bytes_append(struct bytes *b, const void *data, size_t bytes);
void bytes_free(struct bytes *b);

/* tokenizer_load.c, tokenizer_components.c: read the file. */
enum status tokenizer_load(struct tokenizer *t, const char *data, size_t bytes);
enum status tokenizer_load_normalizer(struct tokenizer *t, struct json *j);
enum status tokenizer_load_pre_tokenizer(struct tokenizer *t, struct json *j);
enum status tokenizer_load_post_processor(struct tokenizer *t, struct json *j);
enum status tokenizer_load_decoder(struct tokenizer *t, struct json *j);
enum status tokenizer_refuse(const struct tokenizer *t, const char *part, const char *what);
int32_t tokenizer_find(const struct tokenizer *t, const char *spelling, size_t bytes);

/* tokenizer_added.c */
enum status added_prepare(struct tokenizer *t, struct tokenizer_scratch *s, const struct added *items,
                          const struct bytes *text, int count);
typedef enum status added_segment(void *context, const char *text, size_t bytes, bool first);
enum status added_split(const struct added_set *set, struct tokenizer_scratch *s, const char *text, size_t bytes,
                        bool first, enum tokenizer_specials specials, added_segment *segment, void *context);

/* tokenizer_normalise.c: replaces *text and *bytes by a borrowed result. */
enum status tokenizer_normalise(const struct tokenizer *t, struct tokenizer_scratch *s, const char **text,
                                size_t *bytes);
/* tokenizer_pretokenise.c: cuts a segment into words and encodes them. */
enum status tokenizer_pretokenise(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text,
                                  size_t bytes, bool first);
/* tokenizer_bpe.c; bpe_encode_scanned cuts a text into words by t->scanner, and encodes them. */
enum status bpe_prepare(struct tokenizer *t);
enum status bpe_words_create(struct tokenizer_scratch *s);
enum status bpe_encode(const struct tokenizer *t, struct tokenizer_scratch *s, const char *word, size_t bytes);
enum status bpe_encode_scanned(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text, size_t bytes);
static inline uint64_t bpe_pair(int32_t a, int32_t b) { return (uint64_t)(uint32_t)a << 32 | (uint32_t)b; }
/* The upper half of the product, because its low bits depend on b alone. */
static inline size_t bpe_slot(uint64_t pair) { return (size_t)((pair * 0x9E3779B97F4A7C15u) >> 32); }

/* tokenizer_decode.c */
enum status decode_prepare(struct tokenizer *t);
extern const uint16_t byte_level_code[256];  /* character of each byte */
int byte_level_byte(uint32_t code);          /* byte of a character; -1: none */
