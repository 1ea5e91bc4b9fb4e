/* overlap.c -- see overlap.h.
 *
 * The texts are stored as a suffix automaton (Blumer et al. 1985, "The smallest automaton recognizing the subwords of a
 * text"). A state represents runs of tokens that end at the same positions. Its length is that of its longest run. Its
 * link leads to the state of its longest suffix that ends at more positions. All texts share one automaton, and each
 * begins at the root.
 *
 * The automaton reads each document of the store. After each token, its state and length are those of the longest run
 * of some text that ends there. If a state was reached, the store also has the runs of all states on its chain of
 * links. The longest shared run that ends at a position of a text is that of the first reached state on the chain of
 * this position. */
#include "indexer/overlap.h"
#include "base/memory.h"
#include <string.h>

enum { TOKENS_MAX = 1 << 29, ROOT = 0, NONE = -1 };

struct overlap_state {
    int32_t length, link, first_edge;
    int32_t reached; /* longest run of this state that the store has; 0: none */
};
struct overlap_edge {
    int32_t from, token, to, next; /* next: another edge of the state `from` */
};

struct overlap {
    struct overlap_state *states;
    size_t n_states, states_capacity;
    struct overlap_edge *edges;
    size_t n_edges, edges_capacity;
    int32_t *table; /* [mask + 1]: edges by state and token; NONE: free */
    uint64_t mask;
    int32_t *at; /* [n]: the state of each token of the texts */
    int64_t n;
    size_t at_capacity;
    int64_t *begin; /* [texts + 1]: first token of each text */
    int64_t texts;
    size_t begin_capacity;
    int64_t *excluded;
    int64_t n_excluded;
    size_t excluded_capacity;
};

/* ---- edges ------------------------------------------------------------------------------------------------------ */

static int32_t *edge_cell(const struct overlap *o, int32_t from, int32_t token) {
    uint64_t key = ((uint64_t)(uint32_t)from << 32 | (uint32_t)token) * 0x9E3779B97F4A7C15u;
    uint64_t i = (key ^ key >> 32) & o->mask;
    while (o->table[i] != NONE && (o->edges[o->table[i]].from != from || o->edges[o->table[i]].token != token))
        i = (i + 1) & o->mask;
    return &o->table[i];
}

/* Returns NONE if there is no such edge. */
static int32_t edge_of(const struct overlap *o, int32_t from, int32_t token) {
    return *edge_cell(o, from, token);
}

static enum status table_grow(struct overlap *o) {
    uint64_t size = o->table ? 2 * (o->mask + 1) : 1024;
    int32_t *old = o->table, *grown;
    TRY(memory_allocate(&grown, size));
    memset(grown, -1, size * sizeof *grown);
    o->table = grown;
    o->mask = size - 1;
    for (size_t e = 0; e < o->n_edges; e++)
        *edge_cell(o, o->edges[e].from, o->edges[e].token) = (int32_t)e;
    memory_free(old);
    return STATUS_OK;
}

static enum status edge_add(struct overlap *o, int32_t from, int32_t token, int32_t to) {
    if (2 * (o->n_edges + 1) > o->mask + 1) TRY(table_grow(o));
    TRY(memory_grow(&o->edges, &o->edges_capacity, o->n_edges + 1));
    o->edges[o->n_edges] = (struct overlap_edge){from, token, to, o->states[from].first_edge};
    *edge_cell(o, from, token) = o->states[from].first_edge = (int32_t)o->n_edges;
    o->n_edges++;
    return STATUS_OK;
}

/* ---- the automaton ----------------------------------------------------------------------------------------------- */

static enum status state_add(struct overlap *o, int32_t *out, int32_t length, int32_t link) {
    TRY(memory_grow(&o->states, &o->states_capacity, o->n_states + 1));
    *out = (int32_t)o->n_states++;
    o->states[*out] = (struct overlap_state){.length = length, .link = link, .first_edge = NONE};
    return STATUS_OK;
}

/* Splits state `of`: its runs that are at most one longer than those of `from` get a new state. */
static enum status state_split(struct overlap *o, int32_t *out, int32_t of, int32_t from, int32_t token) {
    TRY(state_add(o, out, o->states[from].length + 1, o->states[of].link));
    for (int32_t e = o->states[of].first_edge; e != NONE; e = o->edges[e].next)
        TRY(edge_add(o, *out, o->edges[e].token, o->edges[e].to));
    for (int32_t p = from, e; p != NONE; p = o->states[p].link) {
        e = edge_of(o, p, token);
        if (e == NONE || o->edges[e].to != of) break;
        o->edges[e].to = *out;
    }
    o->states[of].link = *out;
    return STATUS_OK;
}

/* Adds the state of the runs that end with `token` after those of *last. */
static enum status automaton_push(struct overlap *o, int32_t *last, int32_t token) {
    int32_t from = *last, e = edge_of(o, from, token), made, target;
    if (e != NONE) { /* another text has this run */
        target = o->edges[e].to;
        if (o->states[target].length != o->states[from].length + 1) TRY(state_split(o, &target, target, from, token));
        *last = target;
        return STATUS_OK;
    }
    TRY(state_add(o, &made, o->states[from].length + 1, ROOT));
    while (from != NONE && (e = edge_of(o, from, token)) == NONE) {
        TRY(edge_add(o, from, token, made));
        from = o->states[from].link;
    }
    if (from != NONE) {
        target = o->edges[e].to;
        if (o->states[target].length != o->states[from].length + 1) TRY(state_split(o, &target, target, from, token));
        o->states[made].link = target;
    }
    *last = made;
    return STATUS_OK;
}

enum status overlap_create(struct overlap **out) {
    struct overlap *o;
    int32_t root;
    TRY(memory_allocate_zero(&o, 1));
    enum status s;
    TRY_GOTO(s, table_grow(o), out);
    TRY_GOTO(s, state_add(o, &root, 0, NONE), out);
    TRY_GOTO(s, memory_grow(&o->begin, &o->begin_capacity, 1), out);
    o->begin[0] = 0;
    *out = o;
out:
    if (s != STATUS_OK) overlap_free(o);
    return s;
}

void overlap_free(struct overlap *o) {
    if (!o) return;
    memory_free(o->states);
    memory_free(o->edges);
    memory_free(o->table);
    memory_free(o->at);
    memory_free(o->begin);
    memory_free(o->excluded);
    memory_free(o);
}

enum status overlap_add(struct overlap *o, int64_t *first, const int32_t *ids, int64_t n) {
    int32_t last = ROOT;
    if (n > TOKENS_MAX - o->n)
        return fail(STATUS_UNSUPPORTED, "overlap with the store: more than %d tokens of text", TOKENS_MAX);
    TRY(memory_grow(&o->at, &o->at_capacity, (size_t)(o->n + n)));
    TRY(memory_grow(&o->begin, &o->begin_capacity, (size_t)o->texts + 2));
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0)
            last = ROOT;
        else
            TRY(automaton_push(o, &last, ids[i]));
        o->at[o->n + i] = last;
    }
    if (first) *first = o->n;
    o->n += n;
    o->begin[++o->texts] = o->n;
    return STATUS_OK;
}

enum status overlap_exclude(struct overlap *o, int64_t document) {
    TRY(memory_grow(&o->excluded, &o->excluded_capacity, (size_t)o->n_excluded + 1));
    o->excluded[o->n_excluded++] = document;
    return STATUS_OK;
}

/* ---- the store --------------------------------------------------------------------------------------------------- */

struct overlap_run {
    int32_t state, length;
};

static void run_push(struct overlap *o, struct overlap_run *r, int32_t token) {
    int32_t e;
    while ((e = edge_of(o, r->state, token)) == NONE && r->state != ROOT) {
        r->state = o->states[r->state].link;
        r->length = o->states[r->state].length;
    }
    if (e == NONE) return;
    r->state = o->edges[e].to;
    r->length++;
    struct overlap_state *s = &o->states[r->state];
    if (r->length > s->reached) s->reached = r->length;
}

static bool is_excluded(const struct overlap *o, int64_t document) {
    for (int64_t i = 0; i < o->n_excluded; i++)
        if (o->excluded[i] == document) return true;
    return false;
}

static enum status scan_chunks(struct overlap *o, struct store_view *view, int32_t *ids, const struct store_info *info,
                               const struct progress *progress) {
    struct overlap_run run = {0};
    int64_t document = -1;
    bool excluded = false;
    for (int64_t chunk = 0; chunk < info->chunks; chunk++) {
        struct store_chunk c;
        if (chunk % 4096 == 0) {
            if (progress_stop_requested(progress)) return fail(STATUS_INTERRUPTED, "stopped by a signal");
            progress_step(progress, "overlap with the store", "chunks", chunk, info->chunks);
        }
        enum status s = store_view_chunk(view, &c, ids, chunk);
        if (s == STATUS_NOT_FOUND) continue; /* the document's shard was dropped */
        TRY(s);
        if (c.document != document) {
            run = (struct overlap_run){0};
            document = c.document;
            excluded = is_excluded(o, document);
        }
        for (int i = 0; i < c.n_tokens && !excluded; i++)
            run_push(o, &run, ids[i]);
    }
    return STATUS_OK;
}

/* Sorts the states by length, the shortest first, by a counting sort. */
static enum status sort_states(const struct overlap *o, int32_t *order) {
    int32_t longest = 0;
    int64_t *count;
    for (size_t i = 0; i < o->n_states; i++)
        longest = o->states[i].length > longest ? o->states[i].length : longest;
    TRY(memory_allocate_zero(&count, (size_t)longest + 2));
    for (size_t i = 0; i < o->n_states; i++)
        count[o->states[i].length + 1]++;
    for (int32_t l = 0; l < longest; l++)
        count[l + 1] += count[l];
    for (size_t i = 0; i < o->n_states; i++)
        order[count[o->states[i].length]++] = (int32_t)i;
    memory_free(count);
    return STATUS_OK;
}

/* First from long to short: if a run was reached, so were its suffixes. Then from short to long: a state that was not
 * reached takes the value of its link. */
static enum status follow_links(struct overlap *o) {
    int32_t *order;
    TRY(memory_allocate(&order, o->n_states));
    enum status s = sort_states(o, order);
    for (size_t i = o->n_states; s == STATUS_OK && i-- > 1;) {
        const struct overlap_state *state = &o->states[order[i]];
        if (state->reached > 0 && state->link != ROOT) o->states[state->link].reached = o->states[state->link].length;
    }
    for (size_t i = 1; s == STATUS_OK && i < o->n_states; i++) {
        struct overlap_state *state = &o->states[order[i]];
        if (state->reached == 0) state->reached = o->states[state->link].reached;
    }
    memory_free(order);
    return s;
}

enum status overlap_find(struct overlap *o, struct store_view *view, const struct progress *progress) {
    struct store_info info;
    int32_t *ids;
    store_view_info(view, &info);
    TRY(memory_allocate(&ids, (size_t)info.fingerprint.chunk_tokens));
    enum status s = scan_chunks(o, view, ids, &info, progress);
    memory_free(ids);
    return s == STATUS_OK ? follow_links(o) : s;
}

/* ---- results ------------------------------------------------------------------------------------------------------
 */

int64_t overlap_tokens(const struct overlap *o) {
    return o->n;
}

int32_t overlap_ending(const struct overlap *o, int64_t token) {
    return o->states[o->at[token]].reached;
}

/* A token is in a shared run of at least L tokens if and only if it is one of L adjacent tokens of such a run. */
void overlap_reach(const struct overlap *o, uint8_t *reach, int64_t first, int64_t n, const int *lengths, int levels) {
    memset(reach, 0, (size_t)n);
    for (int level = 0; level < levels; level++)
        for (int64_t i = lengths[level] - 1, marked = 0; i < n; i++) { /* tokens before `marked` are finished */
            if (overlap_ending(o, first + i) < lengths[level]) continue;
            int64_t at = i + 1 - lengths[level];
            for (at = at > marked ? at : marked; at <= i; at++)
                reach[at] = (uint8_t)(level + 1);
            marked = i + 1;
        }
}

struct overlap_text overlap_text(const struct overlap *o, int64_t text) {
    int64_t begin = o->begin[text], end = o->begin[text + 1], covered = begin;
    struct overlap_text t = {.tokens = end - begin};
    for (int64_t i = begin; i < end; i++) {
        int64_t run = overlap_ending(o, i);
        if (run > t.longest) t.longest = run;
        if (o->states[o->at[i]].length >= OVERLAP_GRAM) t.grams++;
        if (run < OVERLAP_GRAM) continue;
        t.shared++;
        int64_t from = i + 1 - run > covered ? i + 1 - run : covered;
        t.covered += i + 1 - from;
        covered = i + 1;
    }
    return t;
}
