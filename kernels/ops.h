/* ops.h -- the table of ops a device carries: one pointer per family, one header per family. */
#pragma once
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/chunk_attention.h"
#include "kernels/cluster.h"
#include "kernels/elementwise.h"
#include "kernels/embed.h"
#include "kernels/gca.h"
#include "kernels/loss.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/probe.h"
#include "kernels/rope.h"
#include "kernels/token_memory.h"
#include "kernels/topk.h"

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
    const struct cluster_ops *cluster;
    const struct probe_ops *probe;
    const struct token_memory_ops *token_memory;
};
extern const struct ops ops_cpu;
