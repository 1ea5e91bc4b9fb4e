/* drt_eval_json.c -- the figures as one JSON object. */
#include "base/formats/json.h"
#include "tools/eval/drt_eval_tokens.h"

#include <math.h>

static void put_int(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}
static void put_text(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    if (value)
        json_write_string(w, value);
    else
        json_write_null(w);
}

static enum status write_modes(struct json_writer *w, const struct eval_result *r, int file) {
    json_write_key(w, "modes");
    json_write_object(w);
    for (int mode = 0; mode < EVAL_MODES; mode++) {
        struct ratio nats = {0}, per_byte = {0};
        if (!r->mode[mode]) continue;
        TRY(eval_figure(&nats, r, file, mode, -1, EVAL_PER_TOKEN));
        TRY(eval_figure(&per_byte, r, file, mode, -1, EVAL_PER_BYTE));
        json_write_key(w, eval_mode_names[mode]);
        json_write_object(w);
        ratio_write(w, "perplexity", "perplexity_interval", eval_map(nats, eval_to_perplexity));
        ratio_write(w, "bits_per_byte", "bits_per_byte_interval", eval_map(per_byte, eval_to_bits));
        json_write_object_end(w);
    }
    json_write_object_end(w);
    return STATUS_OK;
}

static enum status write_pairs(struct json_writer *w, const struct eval_result *r) {
    json_write_key(w, "differences");
    json_write_array(w);
    for (size_t i = 0; i < EVAL_PAIRS; i++) {
        struct ratio nats = {0};
        if (!eval_has_pair(r, i)) continue;
        TRY(eval_figure(&nats, r, -1, eval_pairs[i].a, eval_pairs[i].b, EVAL_PER_TOKEN));
        json_write_object(w);
        put_text(w, "mode", eval_mode_names[eval_pairs[i].a]);
        put_text(w, "against", eval_mode_names[eval_pairs[i].b]);
        ratio_write(w, "difference_percent", "interval", eval_map(nats, eval_to_percent));
        json_write_object_end(w);
    }
    json_write_array_end(w);
    return STATUS_OK;
}

static enum status write_gains(struct json_writer *w, const struct eval_result *r) {
    int reference = eval_reference(r);
    json_write_key(w, "gains");
    json_write_array(w);
    for (int mode = 0; mode < EVAL_MODES; mode++) {
        struct ratio gain;
        if (!r->mode[mode] || reference < 0 || mode == reference) continue;
        TRY(eval_change(&gain, r, mode, reference));
        json_write_object(w);
        put_text(w, "mode", eval_mode_names[mode]);
        put_text(w, "against", eval_mode_names[reference]);
        ratio_write(w, "gain_percent", "interval", eval_map(gain, eval_to_percent));
        json_write_object_end(w);
    }
    json_write_array_end(w);
    return STATUS_OK;
}

static void write_setting(struct json_writer *w, const struct eval_result *r) {
    const struct memory_config *c = r->memory;
    if (!c) return;
    if (r->memory_search.text[0]) json_write_key(w, "memory_searcher"), searcher_describe_json(w, &r->memory_search);
    json_write_key(w, "memory");
    json_write_object(w);
    put_int(w, "k", c->k);
    put_int(w, "every", c->every);
    put_int(w, "order", c->order.candidates);
    put_int(w, "before", c->before);
    put_int(w, "after", c->after);
    put_int(w, "key_layer", c->key_layer);
    put_text(w, "keys", r->memory_keys);
    put_text(w, "config", r->memory_file[0] ? r->memory_file : NULL);
    json_write_object_end(w);
}

/* Writes the sums over the scored tokens of each document. With these, results of several runs over the same
 * texts can be paired. */
static void write_documents(struct json_writer *w, const struct eval_result *r) {
    json_write_key(w, "scored");
    json_write_array(w);
    for (size_t i = 0; i < r->n_documents; i++) {
        const struct eval_document *d = &r->documents[i];
        json_write_object(w);
        put_int(w, "in_file", d->file);
        put_int(w, "number", d->number);
        put_int(w, "scored_tokens", d->tokens);
        put_int(w, "scored_bytes", d->bytes);
        json_write_key(w, "nll");
        json_write_object(w);
        for (int mode = 0; mode < EVAL_MODES; mode++)
            if (r->mode[mode]) json_write_key(w, eval_mode_names[mode]), json_write_double(w, d->nll[mode]);
        json_write_object_end(w);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

enum status eval_print_json(const struct eval_result *r, const struct engine *e, const struct eval_options *o) {
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    put_text(&w, "model", e->model.path);
    put_text(&w, "store", o->store);
    put_text(&w, "encoder", o->encoder);
    put_text(&w, "base", o->base.count > 0 ? o->base.items[0] : NULL);
    json_write_key(&w, "bases");
    json_write_object(&w);
    for (int i = 0; i < o->base.count; i++)
        put_text(&w, eval_mode_names[EVAL_BASE + i], o->base.items[i]);
    json_write_object_end(&w);
    put_int(&w, "context", o->context);
    put_int(&w, "skip", o->skip);
    put_int(&w, "seed", o->seed);
    if (e->searcher) {
        put_text(&w, "searched_by", e->searched_by.text);
        json_write_key(&w, "searcher"), searcher_describe_json(&w, &e->searched_by);
    }
    write_setting(&w, r);
    json_write_key(&w, "exact");
    json_write_bool(&w, o->exact);
    json_write_key(&w, "partial");
    json_write_bool(&w, r->partial);
    put_text(&w, "exclude", o->exclude);
    put_text(&w, "interval_method", "95 %, ratio estimator over documents, Student's t");
    write_documents(&w, r);
    json_write_key(&w, "files");
    json_write_array(&w);
    for (int i = 0; i < r->n_files; i++) {
        json_write_object(&w);
        put_text(&w, "file", r->files[i].path);
        put_int(&w, "documents", r->files[i].documents);
        put_int(&w, "documents_too_short", r->files[i].short_documents);
        put_int(&w, "skipped_lines", r->files[i].skipped_lines);
        put_int(&w, "documents_in_store", r->files[i].stored_documents);
        put_int(&w, "tokens", r->files[i].tokens);
        put_int(&w, "bytes", r->files[i].bytes);
        TRY(write_modes(&w, r, i));
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    TRY(write_modes(&w, r, -1));
    TRY(write_pairs(&w, r));
    TRY(write_gains(&w, r));
    TRY(eval_write_memory(&w, r));
    eval_write_overlap(&w, r);
    json_write_object_end(&w);
    printf("\n");
    return STATUS_OK;
}
