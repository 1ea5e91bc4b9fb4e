/* fuzz_memory_config.c -- any bytes as memory.json: refused, or numbers inside their ranges whose gate gives weights.
 */
#include "decoder/memory_config.h"
#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct memory_config c;
    if (memory_config_parse(&c, "fuzz", data, size) != STATUS_OK) return 0;
    if (c.k < 1 || c.every < 1 || c.key_layer < 1 || c.before < 0 || c.after < 0) abort();
    const struct memory_lm_evidence lm = {2, -1};
    const struct memory_evidence of[MEMORY_SIDES] = {{.entries = 10,
                                                      .nearest = 20,
                                                      .lse = -3,
                                                      .squares = 0.5F,
                                                      .top = -1,
                                                      .of_top = -2,
                                                      .lm_of_top = -3,
                                                      .token = 4}};
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        double g[1 + MEMORY_SIDES];
        if (!c.mixture[kind].given) continue;
        memory_gate_weights(g, &c.mixture[kind].gate, &lm, of);
        if (g[2] != 0) abort(); /* a memory without entries */
    }
    return 0;
}
