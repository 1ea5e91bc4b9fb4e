/* ops_cuda_internal.h -- the CUDA twins' tables, each exported by its own .cu. */
#pragma once
#include "kernels/ops.h"

extern const struct matmul_ops matmul_cuda;
extern const struct norm_ops norm_cuda;
extern const struct rope_ops rope_cuda;
extern const struct attention_ops attention_cuda;
extern const struct chunk_attention_ops chunk_attention_cuda;
extern const struct gca_ops gca_cuda;
extern const struct elementwise_ops elementwise_cuda;
extern const struct embed_ops embed_cuda;
extern const struct loss_ops loss_cuda;
extern const struct topk_ops topk_cuda;
extern const struct adamw_ops adamw_cuda;
extern const struct kmeans_assign_ops kmeans_assign_cuda;
extern const struct ivf_scan_ops ivf_scan_cuda;
extern const struct lexical_scan_ops lexical_scan_cuda;
extern const struct hybrid_ops hybrid_cuda;
extern const struct candidates_ops candidates_cuda;
extern const struct token_memory_ops token_memory_cuda;
extern const struct next_token_ops next_token_cuda;
extern const struct packed_keys_ops packed_keys_cuda;
extern const struct pick_ops pick_cuda;
extern const struct bert_ops bert_cuda;
extern const struct state_gate_ops state_gate_cuda;
extern const struct landmark_attention_ops landmark_attention_cuda;
