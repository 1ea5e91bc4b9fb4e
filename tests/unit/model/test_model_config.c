/* test_model_config.c -- valid configs are read completely; errors name bad values with file and remedy. */
#include "model/model_config.h"
#include "tests/test.h"

static const char good[] =
    "{\"vocab_size\": 272, \"hidden_size\": 64, \"intermediate_size\": 160, \"num_attention_heads\": 2,"
    "\"decoder_layers\": [2, 3, 1], \"encoder_layers\": 2, \"enc_chunk_size\": 63, \"chunk_topk\": 8,"
    "\"slide_window\": 512, \"chunk_id\": 271, \"pad_id\": 264, \"rms_norm_eps\": 1e-5,"
    "\"encoder_input\": \"tokens\", \"torch_dtype\": \"float32\", \"dead\": {\"a\": [1, {}]}}";

static struct model_config parse(const char *text) {
    struct model_config c;
    CHECK_OK(model_config_parse(&c, "config.json", text, strlen(text)));
    return c;
}

/* `good` with one replaced piece. */
static char *changed(const char *from, const char *to) {
    static char text[2048];
    const char *at = strstr(good, from);
    CHECK(at != NULL);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    return text;
}

static void accepted(void) {
    struct model_config c = parse(good);
    CHECK_EQ(c.vocab_size, 272);
    CHECK_EQ(c.hidden, 64);
    CHECK_EQ(c.ffn, 160);
    CHECK_EQ(c.heads, 2);
    CHECK_EQ(c.head_dim, 32);
    CHECK_EQ(c.lower_layers, 2);
    CHECK_EQ(c.groups, 2);
    CHECK_EQ(c.group_layers[0], 3);
    CHECK_EQ(c.group_layers[1], 1);
    CHECK_EQ(model_config_layers(&c), 6);
    CHECK_EQ(model_config_positions(&c), 64);
    CHECK_EQ(c.encoder_layers, 2);
    CHECK_EQ(c.topk, 8);
    CHECK_EQ(c.window, 512);
    CHECK_EQ(c.landmark_id, 271);
    CHECK_EQ(c.pad_id, 264);
    CHECK_EQ(c.mask_id, -1);
    CHECK_EQ(c.eos_id, -1);
    CHECK(c.rms_eps == 1e-5f && c.rope_theta == 10000.0f);
    CHECK_EQ(c.encoder_input, ENCODER_INPUT_TOKENS);
    CHECK(c.softmax_off_by_one && !c.retrieval_proj && !c.base_lm);
    c = parse(changed("\"enc_chunk_size\": 63", "\"enc_chunk_size\": 64"));
    CHECK(!c.softmax_off_by_one);
    CHECK_EQ(model_config_positions(&c), 65);
    CHECK(parse(changed("{\"vocab", "{\"softmax_off_by_one\": false, \"vocab")).softmax_off_by_one == false);
    CHECK(parse(changed("{\"vocab", "{\"retrieval_proj\": true, \"eos_id\": 0, \"vocab")).retrieval_proj);
    CHECK_EQ(parse(changed("\"tokens\"", "\"hidden\"")).encoder_input, ENCODER_INPUT_HIDDEN);
    c = parse("{\"vocab_size\":272,\"hidden_size\":96,\"intermediate_size\":160,\"num_attention_heads\":3,\"decoder_"
              "layers\":[3],"
              "\"encoder_layers\":0,\"slide_window\":512,\"rms_norm_eps\":1e-05}");
    CHECK(c.base_lm);
    CHECK_EQ(c.groups, 0);
    CHECK_EQ(model_config_layers(&c), 3);
    CHECK_EQ(c.landmark_sketch, 0);
    CHECK_EQ(model_config_landmark_size(&c), 96);
    c = parse("{\"vocab_size\":272,\"hidden_size\":96,\"intermediate_size\":160,\"num_attention_heads\":3,\"decoder_"
              "layers\":[3],\"pad_id\":0,\"eos_id\":0,\"slide_window\":512,\"rms_norm_eps\":1e-05}");
    CHECK_EQ(c.eos_id, 0); /* the end can be generated */
    CHECK_EQ(c.pad_id, -1);
}

#define BASE                                                                                                           \
    "{\"vocab_size\":272,\"hidden_size\":96,\"intermediate_size\":160,\"num_attention_heads\":3,\"decoder_layers\":["  \
    "3],"                                                                                                              \
    "\"chunk_id\":271,\"slide_window\":512,\"rms_norm_eps\":1e-05,"

static void sketch(void) {
    static const int sizes[] = {0, 8, 384, 65536};
    static const struct {
        const char *rest, *says;
    } cases[] = {
        {"\"landmark_sketch\": 7}", "config.json: landmark_sketch is 7: must be 0 or from 8 to 65536"},
        {"\"landmark_sketch\": -8}", "landmark_sketch is -8"},
        {"\"landmark_sketch\": 65537}", "landmark_sketch is 65537"},
        {"\"landmark_sketch\": 8, \"recurrent_layer\": 1, \"recurrent_states\": 8, \"recurrent_block\": 32}",
         "landmark_sketch is 8, with recurrent_layer: such a model makes no landmarks of a store"},
        {"\"landmark_sketch\": 8, \"landmark_block\": 32, \"landmark_topk\": 2}",
         "landmark_sketch is 8, with landmark_block"},
    };
    char text[1024];
    struct model_config c;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        snprintf(text, sizeof text, "%s\"landmark_sketch\": %d, \"memory_layer\": 2}", BASE, sizes[i]);
        c = parse(text);
        CHECK_EQ(c.landmark_sketch, sizes[i]);
        CHECK_EQ(model_config_landmark_size(&c), 96 + sizes[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(text, sizeof text, "%s%s", BASE, cases[i].rest);
        CHECK_FAILS(model_config_parse(&c, "config.json", text, strlen(text)), STATUS_INVALID, cases[i].says);
    }
    const char *drt = changed("{\"vocab", "{\"landmark_sketch\": 8, \"vocab");
    CHECK_FAILS(model_config_parse(&c, "config.json", drt, strlen(drt)), STATUS_INVALID,
                "landmark_sketch is 8: the model must be a Base LM");
}

/* The names of unread keys are kept, as many as fit. */
static void unread(void) {
    static char text[8192];
    CHECK_STR(parse(good).unread, "torch_dtype, dead");
    CHECK_STR(parse(changed(", \"torch_dtype\": \"float32\", \"dead\": {\"a\": [1, {}]}", "")).unread, "");
    for (int length = 1; length < 300; length++) {
        size_t n = (size_t)snprintf(text, sizeof text, "{\"%0*d\": 0, \"b\": 0, \"c\": 0, %s", length, 7, good + 1);
        struct model_config c;
        CHECK_OK(model_config_parse(&c, "config.json", text, n));
        size_t whole = (size_t)length + strlen(", b, c, torch_dtype, dead");
        CHECK_EQ(strlen(c.unread), whole < MODEL_UNREAD_MAX ? whole : MODEL_UNREAD_MAX - 1);
        CHECK_STR(c.unread + strlen(c.unread) - 3, whole < MODEL_UNREAD_MAX ? "ead" : "...");
    }
}

static void refused(void) {
    static const struct {
        const char *from, *to;
        enum status code;
        const char *says;
    } cases[] = {
        {"\"vocab_size\": 272, ", "", STATUS_INVALID, "config.json: vocab_size is missing"},
        {"\"vocab_size\": 272", "\"vocab_size\": 0", STATUS_INVALID, "vocab_size is 0"},
        {"\"vocab_size\": 272", "\"vocab_size\": 99999999999", STATUS_INVALID, "vocab_size is 99999999999"},
        {"\"vocab_size\": 272", "\"vocab_size\": \"272\"", STATUS_INVALID, "config.json"},
        {"\"hidden_size\": 64", "\"hidden_size\": 65", STATUS_INVALID,
         "hidden_size 65 is not a multiple of num_attention_heads 2"},
        {"\"hidden_size\": 64", "\"hidden_size\": 66", STATUS_UNSUPPORTED, "a head has 33 numbers"},
        {"\"slide_window\": 512, ", "", STATUS_INVALID, "slide_window is missing"},
        {"[2, 3, 1]", "[2, 0]", STATUS_INVALID, "decoder_layers holds 0"},
        {"[2, 3, 1]", "[]", STATUS_INVALID, "decoder_layers is missing"},
        {"[2, 3, 1]", "7", STATUS_INVALID, "decoder_layers"},
        {"[2, 3, 1]", "[2]", STATUS_INVALID, "no retrieval group"},
        {"[2, 3, 1]", "[1,1,1,1,1,1,1,1,1,1]", STATUS_UNSUPPORTED, "more than 8 groups"},
        {"\"encoder_layers\": 2", "\"encoder_layers\": 0", STATUS_INVALID, "encoder_layers must be at least 1"},
        {"\"enc_chunk_size\": 63", "\"enc_chunk_size\": 100", STATUS_UNSUPPORTED,
         "enc_chunk_size is 100: must be 63 or 64"},
        {"\"chunk_topk\": 8", "\"chunk_topk\": 0", STATUS_INVALID, "chunk_topk must be at least 1"},
        {"\"chunk_id\": 271", "\"chunk_id\": 272", STATUS_INVALID, "chunk_id is 272: the vocabulary has 272 ids"},
        {"\"chunk_id\": 271, ", "", STATUS_INVALID, "chunk_id is missing"},
        {"\"pad_id\": 264, ", "", STATUS_INVALID, "pad_id is missing"},
        {"\"pad_id\": 264, ", "\"pad_id\": 271, ", STATUS_INVALID, "chunk_id and pad_id are both 271"},
        {"\"pad_id\": 264, ", "\"pad_id\": 264, \"eos_id\": 264, ", STATUS_INVALID, "eos_id and pad_id are both 264"},
        {"\"pad_id\": 264, ", "\"pad_id\": 264, \"mask_id\": 271, ", STATUS_INVALID,
         "chunk_id and mask_id are both 271"},
        {"\"rms_norm_eps\": 1e-5", "\"rms_norm_eps\": -1", STATUS_INVALID, "rms_norm_eps is -1"},
        {"\"rms_norm_eps\": 1e-5,", "", STATUS_INVALID, "rms_norm_eps is missing"},
        {"\"tokens\"", "\"words\"", STATUS_INVALID, "encoder_input"},
        {"{\"vocab", "{\"hidden_act\": \"gelu\", \"vocab", STATUS_UNSUPPORTED, "hidden_act"},
        {"{\"vocab", "{\"attention_bias\": true, \"vocab", STATUS_UNSUPPORTED, "attention_bias"},
        {"{\"vocab", "{\"tie_word_embeddings\": false, \"vocab", STATUS_UNSUPPORTED, "tie_word_embeddings"},
        {"{\"vocab", "{\"enable_alibi\": false, \"vocab", STATUS_UNSUPPORTED, "enable_alibi"},
        {"{\"vocab", "{\"num_key_value_heads\": 1, \"vocab", STATUS_UNSUPPORTED, "num_key_value_heads is 1"},
        {"{\"vocab", "{\"decoder_layers\": [1, 1], \"vocab", STATUS_INVALID, "decoder_layers once"},
        {"}}", "}} x", STATUS_INVALID, "config.json"},
        {"}}", "}", STATUS_INVALID, "config.json"},
    };
    struct model_config c;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *text = changed(cases[i].from, cases[i].to);
        CHECK_FAILS(model_config_parse(&c, "config.json", text, strlen(text)), cases[i].code, cases[i].says);
    }
    CHECK_FAILS(model_config_load(&c, "/nowhere/at/all"), STATUS_NOT_FOUND, "/nowhere/at/all/config.json");
}

int main(void) {
    accepted();
    sketch();
    unread();
    refused();
    return test_done();
}
