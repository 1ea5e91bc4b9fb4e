#!/usr/bin/env python3
"""Writes tests/golden/data/lm_base_landmark.safetensors: a model with Landmark Attention in PyTorch, float64.

Written from the equations of Mohtashami and Jaggi 2023 and docs/model.md, section 10.2: the grouped softmax of each row
as a dense matrix, gradients by autograd. Needs torch, numpy and safetensors; run by hand:

    python3 tests/golden/make/landmark_attention.py tests/golden/data/lm_base_landmark.safetensors
"""

import sys

import torch

from base_lm import EPS, HEADS, HIDDEN, VOCABULARY, layer, make_weights, write_case

LAYERS, WINDOW = 2, 17
BLOCK, TOPK, LENGTH, SEQUENCES, LANDMARK = 6, 8, 48, 2, VOCABULARY - 1


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
    d, out = HIDDEN // HEADS, []
    for h in range(HEADS):
        c, slope = slice(h * d, h * d + d), 2.0 ** (-8.0 * (h + 1) / HEADS)
        out.append(torch.stack([attend_row(q[i, c], k[:, c], v[:, c], i, slope) for i in range(len(q))]))
    return torch.cat(out, -1)


def with_landmarks(ids):
    blocks = ids.view(-1, BLOCK)
    return torch.cat([blocks, torch.full((len(blocks), 1), LANDMARK)], 1).flatten()


def main(path):
    torch.manual_seed(6)
    w = make_weights(LAYERS)
    ids = torch.randint(1, LANDMARK, (SEQUENCES, LENGTH))
    tokens = torch.arange(LENGTH // BLOCK * (BLOCK + 1)) % (BLOCK + 1) != BLOCK
    write_case(path, "lm_base_landmark", "Landmark Attention: eight blocks, forward and gradients, float64 PyTorch",
               w, ids, LAYERS, lambda i, x: layer(w, i, x, attend), with_landmarks, tokens, slide_window=WINDOW,
               rms_norm_eps=EPS, chunk_id=LANDMARK, landmark_block=BLOCK, landmark_topk=TOPK)


if __name__ == "__main__":
    main(sys.argv[1])
