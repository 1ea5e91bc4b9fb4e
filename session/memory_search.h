/* memory_search.h -- finds chunks of an engine's store for a token memory: opens a searcher of the configured kind, and
 * makes the vectors of its queries.
 *
 * A search by words needs only the store's tokens. A search by landmarks (also HYBRID) needs landmarks of this model.
 * The query vector of a Base LM is made of the key states that the text's last MEMORY_STATES ids had when the model
 * read them: their mean, less the centre, with length 1 (indexer/landmarks/state_landmarks.h). It costs no pass. Where
 * these states are not known (keys of another layer, an oracle's query) it is the landmark of the last chunk of ids,
 * which is read alone. HYBRID ranks by BM25 plus STATE_LANDMARKS_COSINE times the cosine of query and landmark, whose
 * sketch it does not read. Other models make the vector as for their own retrieval (session/text_query.h), and HYBRID
 * merges by reciprocal ranks. For one thread at a time per engine. */
#pragma once
#include "decoder/memory_config.h"
#include "indexer/retrieve/memory_source.h"
#include "session/engine.h"

struct memory_search;
struct memory_search_config {
    struct engine *engine;               /* with a store; borrowed, as `searcher` is */
    struct searcher *searcher;           /* of that store and of `kind`; NULL: opens one */
    enum memory_searcher kind;
    const char *store;                   /* its path, for messages */
};
/* STATUS_UNSUPPORTED: the store has no lexical index, or the model reads no landmarks. STATUS_MISMATCH: the landmarks
 * are another model's. The engine reports when landmarks are copied to a GPU. */
enum status memory_search_open(struct memory_search **out, const struct memory_search_config *config);
void memory_search_close(struct memory_search *s);        /* call before the engine is closed; NULL is fine */
/* Returns the finder for memory_source_config, valid until memory_search_close. s NULL: it finds nothing. */
struct memory_finder memory_search_finder(struct memory_search *s);
/* Whether the queries of a running text are made of its key states: those of the memory are the last layer's, and the
 * searcher ranks by landmarks of a Base LM. */
bool memory_search_reads_states(const struct engine *e, const struct memory_config *c, struct memory_finder finder);
/* Returns the configuration of a memory's chunks: `c` of the engine's model and store, found by `finder`. */
struct memory_source_config memory_search_source(const struct engine *e, const struct memory_config *c,
                                                 struct memory_finder finder);
/* Describes a search for k chunks; zeroed if s is NULL. */
struct searcher_description memory_search_describe(const struct memory_search *s, int k);
/* Returns the kind of a searcher that was opened for another purpose. */
enum memory_searcher memory_search_kind(const struct searcher *s);
