/* ops_cpu.c -- the CPU's table of ops. */
#include "kernels/ops.h"

const struct ops ops_cpu = {
    .matmul = &matmul_cpu,
    .norm = &norm_cpu,
    .rope = &rope_cpu,
    .attention = &attention_cpu,
    .chunk_attention = &chunk_attention_cpu,
    .gca = &gca_cpu,
    .elementwise = &elementwise_cpu,
    .embed = &embed_cpu,
    .loss = &loss_cpu,
    .topk = &topk_cpu,
    .adamw = &adamw_cpu,
    .kmeans_assign = &kmeans_assign_cpu,
    .ivf_scan = &ivf_scan_cpu,
    .lexical_scan = &lexical_scan_cpu,
    .hybrid = &hybrid_cpu,
    .candidates = &candidates_cpu,
    .token_memory = &token_memory_cpu,
    .next_token = &next_token_cpu,
    .packed_keys = &packed_keys_cpu,
    .pick = &pick_cpu,
    .bert = &bert_cpu,
    .state_gate = &state_gate_cpu,
    .landmark_attention = &landmark_attention_cpu,
};
