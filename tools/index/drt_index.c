/* drt_index.c -- drt-index: builds, searches and maintains chunk stores. Subcommands are in drt_index_<name>.c. */
#include "tools/index/drt_index.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include "tools/shared/commands.h"
#include "tools/shared/log.h"
#include <string.h>

static const struct command commands[] = {
    {"build", "make a store from a corpus", drt_index_build},
    {"join", "make one store of parts that were built separately", drt_index_join},
    {"index", "make the index of a store, in one process or in many", drt_index_index},
    {"add", "add documents to a store", drt_index_add},
    {"update", "replace the documents of a store that have changed", drt_index_update},
    {"search", "find the chunks that the model would retrieve after a text", drt_index_search},
    {"get", "print a chunk or a document by its id", drt_index_get},
    {"stats", "show the contents of a store in numbers", drt_index_stats},
    {"verify", "check for missing, truncated or damaged files", drt_index_verify},
    {"repair", "rebuild derived files: indexes, landmarks, hashes", drt_index_repair},
    {"delete", "delete documents by number or source", drt_index_delete},
    {"compact", "make a new store of the remaining documents", drt_index_compact},
    {"freeze", "make a snapshot for readers on many hosts", drt_index_freeze},
    {"drop", "remove shards whose tokens are lost", drt_index_drop},
    {"recall", "measure the index against exact search", drt_index_recall},
    {"export", "print chunks, positions and landmarks as JSON lines", drt_index_export},
    {"keys", "compute the keys of a store's tokens for a token memory", drt_index_keys},
    {"lexical", "make or remove the index of a store's chunks by their tokens", drt_index_lexical},
    {"worker", "search a slice of a store for other processes", drt_index_worker},
    {"doctor", "show the linked libraries and the machine's limits, with advice", drt_index_doctor},
};

static const struct command_program program = {
    .name = "drt-index",
    .about = "Builds, searches and maintains chunk stores for retrieval language models. A store is one folder. It\n"
             "has a corpus divided into chunks, a vector (landmark) for each chunk, and an index for search by\n"
             "landmarks and one for search by words (BM25); a store may lack either. One process may write to a\n"
             "store while any number of processes read it.\n",
    .examples = "Examples:\n"
                "  drt-index build corpus/ more.jsonl.zst --out store\n"
                "  drt-index search \"how are page tables locked\" --store store\n"
                "  drt-index verify --store store --deep\n\n",
    .commands = commands,
    .n_commands = ARRAY_LEN(commands)};

int drt_index_exit(enum status status) {
    if (status == STATUS_OK && *log_json()) {
        log_begin(LOG_INFO, "done");
        log_end();
    }
    if (status == STATUS_OK) return 0;
    fflush(stdout);
    log_failure("drt-index", status);
    return 1;
}

int drt_index_usage(const char *command, const char *what) {
    char from[64];
    snprintf(from, sizeof from, "drt-index %s", command);
    log_line(LOG_ERROR, "usage", from, "%s (see drt-index %s --help)", what, command);
    return 2;
}

uint64_t drt_index_max_ram(void) {
    uint64_t part = memory_usable() / 4 * 3, most = UINT64_C(4) << 30;
    return part < most ? part : most;
}

void drt_index_numbers(struct json_writer *w, const struct json_number *numbers, size_t n) {
    for (size_t i = 0; i < n; i++) {
        json_write_key(w, numbers[i].key);
        json_write_int(w, numbers[i].value);
    }
}

const char *drt_index_hex(char out[33], const uint8_t bytes[16]) {
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return out;
}

enum status opened_store_open(struct opened_store *out, const char *dir) {
    memset(out, 0, sizeof *out);
    TRY(store_open(&out->store, dir));
    enum status status = store_view_open(&out->view, out->store);
    if (status == STATUS_OK)
        store_view_info(out->view, &out->info);
    else
        opened_store_close(out);
    return status;
}

void opened_store_close(struct opened_store *s) {
    store_view_close(s->view);
    store_close(s->store);
    memset(s, 0, sizeof *s);
}

int main(int argc, char **argv) {
    return commands_main(&program, argc, argv);
}
