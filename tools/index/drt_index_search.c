/* drt_index_search.c -- drt-index search: the chunks that the model would retrieve after a text, or after a chunk of
 * the store. */
#include "tools/index/drt_index_search.h"
#include "kernels/search/topk.h"
#include "session/corpus_search.h"
#include "tools/index/drt_index_landmarks.h"
#include "tools/shared/args.h"
#include "tools/shared/exclude.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/search_options.h"
#include <string.h>

static const char device_default[] = "cpu";

/* Returns the exit code of contradicting options; -1: they are valid. */
static int index_search_check(struct search_options *o) {
    bool own = o->from_document >= 0 || o->from_chunk >= 0;
    if (!o->store) return drt_index_usage("search", "--store STORE is missing");
    if (o->kind && !o->encoder) return drt_index_usage("search", "--encoder-kind needs --encoder DIR");
    const bool lexical = o->searcher && strcmp(o->searcher, "lexical") == 0;
    if (lexical && (o->exact || o->nprobe))
        return drt_index_usage("search", "--searcher lexical scans no landmarks: leave out --exact and --nprobe");
    if (o->exact && o->nprobe) return drt_index_usage("search", "--exact scans every landmark: leave out --nprobe");
    if (o->queries && (o->text || own || o->exclude))
        return drt_index_usage("search", "--queries FILE has all queries: leave out TEXT, --from-... and --exclude");
    if (o->queries_format && !o->queries) return drt_index_usage("search", "--queries-format needs --queries FILE");
    if (!o->text && o->from_chunk < 0 && !o->queries)
        return drt_index_usage("search", "TEXT, --from-chunk ID or --queries FILE is missing");
    if (o->from_document >= 0 && o->from_chunk >= 0)
        return drt_index_usage("search", "--from-chunk already names the document: leave out --from-document");
    if (!exclude_parse(&o->rule, o->exclude ? o->exclude : own ? "doc" : "none"))
        return drt_index_usage("search", "--exclude is doc, window=N or none");
    if (o->rule == EXCLUDE_DOCUMENT && !own)
        return drt_index_usage("search", "--exclude doc: which one? give --from-document ID or --from-chunk ID");
    if (o->rule >= 0 && o->from_chunk < 0)
        return drt_index_usage("search",
                               "--exclude window=N needs --from-chunk ID, the chunk that the window is around");
    if (workers_wanted(&o->workers) && lexical)
        return drt_index_usage("search", "--searcher lexical searches in this process: leave out the workers");
    if (workers_wanted(&o->workers) && strcmp(o->where.device, "cpu") != 0)
        return drt_index_usage("search", "workers search on CPUs: leave out --device");
    if (o->devices && (workers_wanted(&o->workers) || lexical))
        return drt_index_usage("search", "--devices share landmarks: leave out workers and --searcher lexical");
    if (o->devices && o->where.device == device_default) o->where.device = "cuda";
    if (devices_choose(&o->where, o->devices) != STATUS_OK) return drt_index_usage("search", status_message());
    return workers_options_check(&o->workers);
}

enum status drt_index_search_excluded(struct search *s, struct store_range *out) {
    const struct search_options *o = s->o;
    struct store_chunk c = {.document = o->from_document};
    struct store_document d;
    *out = (struct store_range){0};
    if (o->rule == EXCLUDE_NOTHING) return STATUS_OK;
    if (o->from_chunk >= 0) TRY(store_view_chunk(s->store.view, &c, s->ids, o->from_chunk));
    TRY(store_view_document(s->store.view, &d, c.document));
    *out = exclude_range(o->rule, &d, c.in_document);
    return STATUS_OK;
}

int drt_index_search(int argc, char **argv, const char **operands) {
    struct search_options o = {.where = {.device = device_default, .dtype = "auto", .report = report_stderr},
                               .k = 8,
                               .from_document = -1,
                               .from_chunk = -1};
    const struct arg_option options[] = {
        OPTION_STORE(o.store),
        {"model", ARG_PATH, &o.model, "DIR",
         "the model folder that the store was built with (default: the bundled drt-28m)", 0, 0},
        OPTIONS_OF_ENCODER(o),
        {"queries", ARG_PATH, &o.queries, "FILE|-",
         "many queries, searched in batches: a text a line, .jsonl (a string \"text\" or \"query\"), or vectors as the "
         "model makes them: .npy (float32 or float16, [n, dim]), .fbin; -: standard input",
         0, 0},
        {"queries-format", ARG_CHOICE, &o.queries_format, "auto|txt|jsonl|npy|fbin",
         "format of --queries; auto: by the name's ending (default: auto)", 0, 0},
        {"k", ARG_INT, &o.k, "N", "hits to print", 1, TOPK_MAX},
        {"searcher", ARG_CHOICE, &o.searcher, CORPUS_SEARCH_KINDS,
         "landmark: by landmarks; lexical: by BM25 over the query's last 128 tokens and their pairs; hybrid: both, "
         "merged by reciprocal rank (default: landmark; of a store without landmarks: lexical)",
         0, 0},
        OPTION_EXACT(o.exact),
        {"nprobe", ARG_INT, &o.nprobe, "N", "IVF lists to scan; 0: the index's default", 0, 1e9},
        {"from-document", ARG_INT, &o.from_document, "ID",
         "TEXT was taken from this document of the store (see --exclude)", 0, 1e18},
        {"from-chunk", ARG_INT, &o.from_chunk, "ID",
         "TEXT ends in this chunk of the store; without TEXT: the query is that chunk's own", 0, 1e18},
        {"exclude", ARG_STRING, &o.exclude, "doc|window=N|none",
         "chunks of the query's own document that must not be found: all of them, those at most N away from "
         "--from-chunk, or none (default: doc, if --from-document or --from-chunk names the document)",
         0, 0},
        {"workers", ARG_STRING, &o.workers.link.addresses, "N|HOST:PORT,...",
         "search by N processes of this host, each a slice of the store; or by drt-index worker --listen processes, "
         "one for each slice, in order; the hits are the same",
         0, 0},
        {"worker", ARG_STRINGS, &o.workers.commands, "COMMAND",
         "a command that starts a worker, such as ssh HOST drt-index worker ..., which ends with the search; repeat it "
         "for each slice, in order",
         0, 0},
        OPTIONS_OF_WORKER_LINK(o.workers.link),
        {"device", ARG_CHOICE, &o.where.device, "auto|cpu|cuda",
         "where the query is computed and --exact, --nprobe or words search; a GPU copies what it searches", 0, 0},
        OPTION_DEVICES(o.devices, DEVICES_SEARCH),
        OPTION_DTYPE(o.where.dtype),
        OPTION_THREADS(o.threads),
        OPTION_JSON(o.json,
                    "one JSON object a line: a hit; with --queries a query, as its number (from 0) and its hits"),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index search",
        .synopsis = "TEXT|--from-chunk ID|--queries FILE --store STORE [options]",
        .about =
            "Prints the chunks that the model would retrieve after TEXT. The query is that of generation: the decoder "
            "reads TEXT, and its normed state at the landmark after the last chunk is the query vector. Only the last "
            "whole chunks of TEXT are used, at most 8. A TEXT shorter than one chunk is repeated until it fills one; a "
            "passage of a few chunks gives much better results than a single question. Scores are query . landmark / "
            "sqrt(dimensions), computed exactly; they may be negative. With --searcher lexical or hybrid that searcher "
            "determines the order, and the scores are the same.",
        .examples = "  drt-index search \"The treaty was signed in\" --store store --k 3\n"
                    "  drt-index search \"RCU grace period\" --store store --searcher hybrid\n"
                    "  drt-index search --from-chunk 1234 --exclude window=4 --store store\n"
                    "  drt-index search --queries questions.jsonl --store store --json > hits.jsonl\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .max_operands = 1};
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    o.text = n > 0 ? operands[0] : NULL;
    code = index_search_check(&o);
    if (code >= 0) return code;
    if (!o.queries) return drt_index_exit(drt_index_search_run(&o));
    struct progress_line *line = NULL;
    enum status s = progress_line_start(&line, "drt-index");
    if (s == STATUS_OK) s = drt_index_queries_run(&o, progress_line_progress(line));
    progress_line_end(line);
    return drt_index_exit(s);
}
