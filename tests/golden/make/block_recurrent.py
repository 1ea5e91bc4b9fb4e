#!/usr/bin/env python3
"""Writes tests/golden/data/lm_base_recurrent.safetensors: a Block-Recurrent Transformer in PyTorch, float64.

Written from the equations of Hutchins et al. 2022 and docs/model.md, section 10.1: loops over sequences and blocks, a
dense mask for the window, gradients by autograd. Needs torch, numpy and safetensors; run by hand:

    python3 tests/golden/make/block_recurrent.py tests/golden/data/lm_base_recurrent.safetensors
"""

import sys

import torch

from base_lm import EPS, HEADS, HIDDEN, MODEL, VOCABULARY, layer, make_weights, rms, write_case

LAYERS, WINDOW = 3, 13
RECURRENT, STATES, BLOCK, LENGTH, SEQUENCES = 2, 5, 12, 48, 2


def heads(x):
    return x.view(x.shape[0], HEADS, -1).transpose(0, 1)


def attend(q, k, v, bias=None):
    q, k, v = heads(q), heads(k), heads(v)
    score = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    if bias is not None:
        score = score + bias
    return (score.softmax(-1) @ v).transpose(0, 1).reshape(q.shape[1], -1)


def attend_window(q, k, v):
    distance = torch.arange(len(q))[:, None] - torch.arange(len(q))[None, :]
    slope = torch.tensor([2.0 ** (-8.0 * (m + 1) / HEADS) for m in range(HEADS)], dtype=torch.float64)
    bias = -slope[:, None, None] * distance
    return attend(q, k, v, bias.masked_fill((distance < 0) | (distance > WINDOW), -torch.inf))


def read_states(w, z, k, v):
    """What the tokens read of the states, which are updated after each block."""
    def part(what):
        return w[f"{MODEL}layers.{RECURRENT - 1}.recurrent.{what}.weight"]

    state, read = part("initial_state"), []
    gate = torch.sigmoid(part("gate"))
    for at in range(0, len(z), BLOCK):
        rows = slice(at, at + BLOCK)
        s = rms(state, part("state_norm")) + part("state_ids")
        sk, sv = s @ part("state_k_proj").T, s @ part("state_v_proj").T
        read.append(attend(z[rows] @ part("q_proj").T, sk, sv))
        own = attend(s @ part("state_q_self_proj").T, sk, sv)
        tokens = attend(s @ part("state_q_token_proj").T, k[rows], v[rows])
        update = torch.cat([own, tokens], -1) @ part("state_o_proj").T
        state = gate * state + (1 - gate) * update
    return torch.cat(read) @ part("o_proj").T


def recurrent_shapes(i):
    if i + 1 != RECURRENT:
        return {}
    square = ("q", "o", "state_q_self", "state_q_token", "state_k", "state_v")
    shapes = {c + "_proj": (HIDDEN, HIDDEN) for c in square}
    shapes |= {"state_o_proj": (HIDDEN, 2 * HIDDEN), "initial_state": (STATES, HIDDEN), "state_ids": (STATES, HIDDEN),
               "state_norm": (HIDDEN,), "gate": (HIDDEN,)}
    return {f"recurrent.{name}.weight": shape for name, shape in shapes.items()}


def main(path):
    torch.manual_seed(5)
    w = make_weights(LAYERS, recurrent_shapes)
    ids = torch.randint(1, VOCABULARY, (SEQUENCES, LENGTH))

    def run(i, x):
        return layer(w, i, x, attend_window, (lambda *a: read_states(w, *a)) if i + 1 == RECURRENT else None)

    write_case(path, "lm_base_recurrent", "Block-Recurrent Transformer: four blocks, forward and gradients, float64 PyTorch",
               w, ids, LAYERS, run, slide_window=WINDOW, rms_norm_eps=EPS, recurrent_layer=RECURRENT,
               recurrent_states=STATES, recurrent_block=BLOCK)


if __name__ == "__main__":
    main(sys.argv[1])
