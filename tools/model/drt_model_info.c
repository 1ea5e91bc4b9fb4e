/* drt_model_info.c -- drt-model info: facts about a model folder, as text and as JSON. */
#include "tools/model/drt_model_info.h"
#include "session/model_folder.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/streams.h"

#include <string.h>

const char *const part_names[PARTS] = {"embedding", "lower", "upper", "encoder", "gca", "memory", "sketch", "norm"};
static const char *const PART_HELP[PARTS] = {"token embedding, also the head",
                                             "decoder layers below the first retrieval",
                                             "decoder layers above it",
                                             "chunk encoder",
                                             "cross-attention, its K and V projections, retrieval norms",
                                             "projection, temperature and gate of the token memory",
                                             "idf of each id, for the sketch in a landmark",
                                             "final norm"};

static enum part part_of(const char *name) {
    if (strstr(name, "embed_tokens")) return PART_EMBEDDING;
    if (strstr(name, ".gca.") || strstr(name, "chunk_k_proj") || strstr(name, "chunk_v_proj") || strstr(name, ".lmk_"))
        return PART_GCA;
    if (strncmp(name, "memory.", 7) == 0) return PART_MEMORY;
    if (strncmp(name, "landmark_sketch.", 16) == 0) return PART_SKETCH;
    if (strstr(name, "encoder.") || strstr(name, "enc_prenorm")) return PART_ENCODER;
    if (strstr(name, "lower_layers.") || strstr(name, "language_model.model.layers.")) return PART_LOWER;
    if (strstr(name, "upper_layers.")) return PART_UPPER;
    return PART_NORM;
}

static enum status facts_open(struct facts *f, const char *path) {
    char weights[FILE_PATH_MAX], tokenizer[FILE_PATH_MAX];
    if (path)
        snprintf(f->path, sizeof f->path, "%s", path);
    else
        TRY(model_folder_default(f->path));
    TRY(model_folder_check(f->path, false));
    TRY(model_config_load(&f->config, f->path));
    TRY(file_join(weights, f->path, "model.safetensors"));
    TRY(file_size(&f->bytes, weights));
    TRY(safetensors_open(&f->file, weights));
    TRY(params_load(&f->params, &f->config, f->file));
    TRY(file_join(tokenizer, f->path, "tokenizer.json"));
    if (file_exists(tokenizer)) {
        TRY(tokenizer_open(&f->tokenizer, tokenizer));
        tokenizer_fingerprint(f->tokenizer, f->tokenizer_hash);
    }
    if (!f->config.base_lm) params_landmark_fingerprint(f->params, f->landmark);
    for (int i = 0; i < params_count(f->params); i++) {
        const struct param *p = params_at(f->params, i);
        f->parts[part_of(p->name)] += p->rows * p->cols;
    }
    return STATUS_OK;
}

static void facts_close(struct facts *f) {
    params_free(f->params);
    safetensors_close(f->file);
    tokenizer_free(f->tokenizer);
}

static const char *model_info_variant(const struct model_config *c) {
    if (c->recurrent_layer) return "Block-Recurrent Transformer: sliding window and a recurrent state, no retrieval";
    if (c->landmark_block) return "Landmark Attention: blocks read by their landmarks' scores, no retrieval";
    if (c->base_lm) return "Base LM: sliding window only, no retrieval";
    return c->encoder_input == ENCODER_INPUT_TOKENS
               ? "encoder-decoder DRT: the encoder reads tokens, a store can serve it"
               : "decoder DRT: the encoder reads hidden states of its own text";
}
const char *facts_hex(char out[33], const uint8_t bytes[16]) {
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return out;
}

/* Writes 25477632 as 25,477,632. */
static const char *model_info_grouped(char out[32], int64_t value) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)value), at = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    return out;
}

static void print_id(const struct facts *f, const char *what, int32_t id) {
    if (id < 0) return;
    const char *spelling = f->tokenizer ? tokenizer_token(f->tokenizer, id) : NULL;
    streams_printf(stdout, "  %s %d%s%s%s", what, id, spelling ? " '" : "", spelling ? spelling : "",
                   spelling ? "'" : "");
}

static void print_config(const struct facts *f) {
    const struct model_config *c = &f->config;
    streams_printf(stdout, "model        %s\n", f->path);
    printf("variant      %s\n", model_info_variant(c));
    printf("sizes        hidden %d, %d heads of %d, ffn %d, vocabulary %d\n", c->hidden, c->heads, c->head_dim, c->ffn,
           c->vocab_size);
    printf("layers       %d lower", c->lower_layers);
    for (int g = 0; g < c->groups; g++)
        printf(g ? " + %d" : ", upper %d", c->group_layers[g]);
    if (c->groups)
        printf(" (%d retrieval group%s), encoder %d", c->groups, c->groups == 1 ? "" : "s", c->encoder_layers);
    printf(", window %d\n", c->window);
    if (c->memory_layer)
        printf("memory       keys of layer %d, %d numbers%s\n", c->memory_layer,
               model_config_key_size(c, c->memory_layer), c->memory_size ? " by a projection" : "");
    if (c->landmark_sketch)
        printf("sketch       %d of the %d numbers of a landmark, from a chunk's words\n", c->landmark_sketch,
               model_config_landmark_size(c));
    if (!c->base_lm)
        printf("chunk        %d tokens and a landmark, top %d%s%s\n", c->chunk, c->topk,
               c->retrieval_proj ? ", retrieval projections" : "", c->softmax_off_by_one ? ", softmax off by one" : "");
    printf("special ids");
    print_id(f, "landmark", c->landmark_id);
    print_id(f, "pad", c->pad_id);
    print_id(f, "mask", c->mask_id);
    print_id(f, "eos", c->eos_id);
    printf("\n");
    if (c->unread[0]) streams_printf(stdout, "not read     %s (keys of config.json)\n", c->unread);
}

static void print_text(const struct facts *f) {
    char text[64], line[33];
    print_config(f);
    printf("weights      %s bytes, %s\n", model_info_grouped(text, (int64_t)f->bytes),
           safetensors_dtype_name(safetensors_at(f->file, 0)->dtype));
    printf("parameters   %s in %d tensors\n", model_info_grouped(text, params_elements(f->params)),
           params_count(f->params));
    for (int i = 0; i < PARTS; i++)
        if (f->parts[i])
            printf("  %-10s %14s  %s\n", part_names[i], model_info_grouped(text, f->parts[i]), PART_HELP[i]);
    if (f->tokenizer)
        printf("tokenizer    %d ids, fingerprint %s\n", tokenizer_vocab_size(f->tokenizer),
               facts_hex(line, f->tokenizer_hash));
    else
        printf("tokenizer    none: put a tokenizer.json into the folder before using the model with text\n");
    if (!f->config.base_lm) printf("fingerprint  %s (what makes a landmark)\n", facts_hex(line, f->landmark));
    printf("tensors\n");
    for (int i = 0; i < params_count(f->params); i++) {
        const struct param *p = params_at(f->params, i);
        const struct tensor_view *t = safetensors_find(f->file, p->name);
        if (p->rows == 1)
            snprintf(text, sizeof text, "[%lld]", (long long)p->cols);
        else
            snprintf(text, sizeof text, "[%lld, %lld]", (long long)p->rows, (long long)p->cols);
        streams_printf(stdout, "  %-56s %-4s %s\n", p->name, t ? safetensors_dtype_name(t->dtype) : "?", text);
    }
}

int model_info(int argc, char **argv, const char **operands) {
    bool json = false;
    const struct arg_option options[] = {
        OPTION_JSON(json, "print one JSON object instead of text"),
    };
    const struct arg_program program = {.name = "drt-model info",
                                        .synopsis = "[MODEL] [--json]",
                                        .about = "Prints what a model folder holds: variant, sizes, parameters by "
                                                 "part, fingerprint, tokenizer and all tensors. "
                                                 "Without MODEL: the bundled model.",
                                        .examples = "  drt-model info\n  drt-model info models/pg19 --json\n",
                                        .options = options,
                                        .n_options = ARRAY_LEN(options),
                                        .max_operands = 1};
    int n_operands = 0;
    int code = args_parse(&program, argc, argv, operands, &n_operands);
    if (code >= 0) return code;
    struct facts f = {0};
    enum status status = facts_open(&f, n_operands ? operands[0] : NULL);
    if (status == STATUS_OK) {
        if (json)
            facts_print_json(&f);
        else
            print_text(&f);
    }
    facts_close(&f);
    return status == STATUS_OK ? 0 : model_failed();
}
