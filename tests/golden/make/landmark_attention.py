#!/usr/bin/env python3
"""Writes tests/golden/data/lm_base_landmark.safetensors: a model with Landmark Attention in PyTorch, float64.

Written from the equations of Mohtashami and Jaggi 2023 and docs/model.md, section 10.2: the grouped softmax of each row
as a dense matrix, gradients by autograd. Needs torch, numpy and safetensors; run by hand:

    python3 tests/golden/make/landmark_attention.py tests/golden/data/lm_base_landmark.safetensors
"""

import json
import sys

import torch
from safetensors.torch import save_file

V, D, F, HEADS, LAYERS, WINDOW = 53, 16, 24, 2, 2, 17
BLOCK, TOPK, LENGTH, SEQUENCES, LANDMARK = 6, 8, 48, 2, V - 1
EPS = 1e-5


def rms(x, w):
    return x * w / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS)


def grouped_softmax(score, group):
    """One softmax for each group of a row; group < 0: weight 0."""
    weight = torch.zeros_like(score)
    for g in group.unique():
        if g >= 0:
            inside = group == g
            weight = weight + torch.where(inside, score, -torch.inf).softmax(-1).nan_to_num(0.0) * inside
    return weight


def attend_row(q, k, v, i, slope):
    """Position i of one head: group 0 has its own block and earlier landmarks, group 1 + c the tokens of block c."""
    size, begin = BLOCK + 1, i // (BLOCK + 1) * (BLOCK + 1)
    j = torch.arange(i + 1)
    landmark, own = j % size == BLOCK, j >= begin
    group = torch.where(own | landmark, 0, 1 + j // size)
    group = torch.where(own & landmark, -1, group)
    far = torch.where(landmark, (i - j).clamp(max=WINDOW), j // size * size + BLOCK - j)
    score = k[: i + 1] @ q / len(q) ** 0.5 - slope * torch.where(own, i - j, far)
    weight = grouped_softmax(score, group)
    of_landmark = weight[(j // size * size + BLOCK).clamp(max=i)]
    weight = torch.where(group > 0, weight * of_landmark, torch.where(landmark, 0.0, weight))
    return weight @ v[: i + 1]


def attend(q, k, v):
    d, out = D // HEADS, []
    for h in range(HEADS):
        c, slope = slice(h * d, h * d + d), 2.0 ** (-8.0 * (h + 1) / HEADS)
        out.append(torch.stack([attend_row(q[i, c], k[:, c], v[:, c], i, slope) for i in range(len(q))]))
    return torch.cat(out, -1)


def layer(w, name, x):
    z = rms(x, w[name + "input_layernorm.weight"])
    q, k, v = (z @ w[name + f"self_attn.{c}_proj.weight"].T for c in "qkv")
    h = x + attend(q, k, v) @ w[name + "self_attn.o_proj.weight"].T
    z = rms(h, w[name + "post_attention_layernorm.weight"])
    a, b = z @ w[name + "mlp.gate_proj.weight"].T, z @ w[name + "mlp.up_proj.weight"].T
    return h + (torch.nn.functional.silu(a) * b) @ w[name + "mlp.down_proj.weight"].T


def make_weights():
    shapes, model = {"language_model.model.embed_tokens.weight": (V, D)}, "language_model.model."
    for i in range(LAYERS):
        name = f"{model}layers.{i}."
        for c in "qkvo":
            shapes[name + f"self_attn.{c}_proj.weight"] = (D, D)
        shapes |= {name + "mlp.gate_proj.weight": (F, D), name + "mlp.up_proj.weight": (F, D),
                   name + "mlp.down_proj.weight": (D, F), name + "input_layernorm.weight": (D,),
                   name + "post_attention_layernorm.weight": (D,)}
    shapes[model + "norm.weight"] = (D,)
    weights = {}
    for name, shape in shapes.items():
        x = torch.randn(shape, dtype=torch.float64) * (0.3 if len(shape) == 2 else 0.2)
        x = x + (1.0 if len(shape) == 1 else 0.0)
        weights[name] = x.float().double().requires_grad_()  # numbers that float32 holds
    return weights


def with_landmarks(ids):
    blocks = ids.view(-1, BLOCK)
    return torch.cat([blocks, torch.full((len(blocks), 1), LANDMARK)], 1).flatten()


def main(path):
    torch.manual_seed(6)
    w = make_weights()
    ids = torch.randint(1, LANDMARK, (SEQUENCES, LENGTH))
    real = torch.arange(LENGTH // BLOCK * (BLOCK + 1)) % (BLOCK + 1) != BLOCK
    embed, lower, final, logits = w["language_model.model.embed_tokens.weight"], [], [], []
    nll = torch.zeros(SEQUENCES, LENGTH, dtype=torch.float64)
    for n in range(SEQUENCES):
        x = embed[with_landmarks(ids[n])]
        for i in range(LAYERS):
            x = layer(w, f"language_model.model.layers.{i}.", x)
        lower.append(x)
        final.append(rms(x, w["language_model.model.norm.weight"]))
        logits.append(final[-1][real] @ embed.T)
        nll[n, :-1] = torch.nn.functional.cross_entropy(logits[-1][:-1], ids[n, 1:], reduction="none")
    loss = nll.sum() / (SEQUENCES * (LENGTH - 1))
    loss.backward()
    config = {"vocab_size": V, "hidden_size": D, "intermediate_size": F, "num_attention_heads": HEADS,
              "decoder_layers": [LAYERS], "encoder_layers": 0, "slide_window": WINDOW, "rms_norm_eps": EPS,
              "chunk_id": LANDMARK, "landmark_block": BLOCK, "landmark_topk": TOPK}
    out = {name: x.detach() for name, x in w.items()} | {"grad." + name: x.grad for name, x in w.items()}
    out |= {"out.lower": torch.stack(lower), "out.final": torch.stack(final), "out.logits": torch.stack(logits),
            "out.nll": nll, "out.loss": loss.reshape(1)}
    out = {name: x.detach().float().contiguous() for name, x in out.items()}
    out["in.ids"] = ids.int()
    about = "Landmark Attention: eight blocks, forward and gradients, float64 PyTorch"
    save_file(out, path, {"case": "lm_base_landmark", "about": about, "config": json.dumps(config)})


if __name__ == "__main__":
    main(sys.argv[1])
