/* memory_search.h -- how a token memory finds chunks of an engine's store: the searcher of the kind that its
 * configuration names, and what makes the vectors of its queries.
 *
 * By words the store's tokens are all that matters. By landmarks (also HYBRID) they must be the model's own. The vector
 * of a Base LM is the landmark of the text's last chunk of ids, read with nothing before it as the store's chunks were:
 * the mean key state, less the centre, with length 1 (indexer/build/state_landmarks.h). That of another model is what
 * it queries with itself (session/text_query.h). One thread at a time per engine. */
#pragma once
#include "decoder/memory_config.h"
#include "indexer/retrieve/memory_source.h"
#include "session/engine.h"

struct memory_search;
struct memory_search_config {
    struct engine *engine;               /* with a store; borrowed, as the next */
    struct searcher *searcher;           /* of that store, and of `kind`; NULL: opens one */
    enum memory_searcher kind;
    const char *store;                   /* its path, for messages */
};
/* STATUS_UNSUPPORTED: the store has no lexical index, or the model reads no landmarks. STATUS_MISMATCH: the landmarks
 * are another model's. The engine reports landmarks that are copied to a GPU. */
enum status memory_search_open(struct memory_search **out, const struct memory_search_config *config);
void memory_search_close(struct memory_search *s);        /* before the engine; NULL is fine */
/* For memory_source_config; valid until memory_search_close. s NULL: finds nothing. */
struct memory_finder memory_search_finder(struct memory_search *s);
/* What a search for k chunks does; zeroed where s is NULL. */
struct searcher_description memory_search_describe(const struct memory_search *s, int k);
/* The kind of a searcher that was opened for something else. */
enum memory_searcher memory_search_kind(const struct searcher *s);
