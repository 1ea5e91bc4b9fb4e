/* ops.h -- the table of ops a device carries: one pointer per family, one header per family. */
#pragma once
#include "kernels/pointwise/adamw.h"
#include "kernels/attention/attention.h"
#include "kernels/pointwise/bert.h"
#include "kernels/attention/chunk_attention.h"
#include "kernels/search/kmeans_assign.h"
#include "kernels/pointwise/elementwise.h"
#include "kernels/pointwise/embed.h"
#include "kernels/attention/gca.h"
#include "kernels/pointwise/loss.h"
#include "kernels/linear/matmul.h"
#include "kernels/landmark/landmark_attention.h"
#include "kernels/pointwise/norm.h"
#include "kernels/memory/next_token.h"
#include "kernels/memory/packed_keys.h"
#include "kernels/pick/pick.h"
#include "kernels/search/ivf_scan.h"
#include "kernels/lexical/candidates.h"
#include "kernels/lexical/hybrid.h"
#include "kernels/lexical/lexical_scan.h"
#include "kernels/pointwise/rope.h"
#include "kernels/pointwise/state_gate.h"
#include "kernels/search/topk.h"
#include "kernels/memory/token_memory.h"

struct ops {
    const struct matmul_ops *matmul;
    const struct norm_ops *norm;
    const struct rope_ops *rope;
    const struct attention_ops *attention;
    const struct chunk_attention_ops *chunk_attention;
    const struct gca_ops *gca;
    const struct elementwise_ops *elementwise;
    const struct embed_ops *embed;
    const struct loss_ops *loss;
    const struct topk_ops *topk;
    const struct adamw_ops *adamw;
    const struct kmeans_assign_ops *kmeans_assign;
    const struct ivf_scan_ops *ivf_scan;
    const struct lexical_scan_ops *lexical_scan;
    const struct hybrid_ops *hybrid;
    const struct candidates_ops *candidates;
    const struct token_memory_ops *token_memory;
    const struct next_token_ops *next_token;
    const struct packed_keys_ops *packed_keys;
    const struct pick_ops *pick;
    const struct bert_ops *bert;
    const struct state_gate_ops *state_gate;
    const struct landmark_attention_ops *landmark_attention;
};
extern const struct ops ops_cpu;
