#!/usr/bin/env python3
"""Writes tests/golden/data/lm_base_recurrent.safetensors: a Block-Recurrent Transformer in PyTorch, float64.

Written from the equations of Hutchins et al. 2022 and docs/model.md, section 10.1: loops over sequences and blocks, a
dense mask for the window, gradients by autograd. Needs torch, numpy and safetensors; run by hand:

    python3 tests/golden/make/block_recurrent.py tests/golden/data/lm_base_recurrent.safetensors
"""

import json
import sys

import torch
from safetensors.torch import save_file

V, D, F, HEADS, LAYERS, WINDOW = 53, 16, 24, 2, 3, 13
RECURRENT, STATES, BLOCK, LENGTH, SEQUENCES = 2, 5, 12, 48, 2
EPS = 1e-5


def rms(x, w):
    return x * w / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS)


def heads(x):
    return x.view(x.shape[0], HEADS, -1).transpose(0, 1)


def attend(q, k, v, bias=None):
    q, k, v = heads(q), heads(k), heads(v)
    score = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    if bias is not None:
        score = score + bias
    return (score.softmax(-1) @ v).transpose(0, 1).reshape(q.shape[1], -1)


def window_bias(n):
    distance = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    slope = torch.tensor([2.0 ** (-8.0 * (m + 1) / HEADS) for m in range(HEADS)], dtype=torch.float64)
    bias = -slope[:, None, None] * distance
    return bias.masked_fill((distance < 0) | (distance > WINDOW), -torch.inf)


def layer(w, name, x, recurrent):
    z = rms(x, w[name + "input_layernorm.weight"])
    q, k, v = (z @ w[name + f"self_attn.{c}_proj.weight"].T for c in "qkv")
    h = x + attend(q, k, v, window_bias(len(x))) @ w[name + "self_attn.o_proj.weight"].T
    if recurrent:
        def part(what):
            return w[name + f"recurrent.{what}.weight"]

        state, read = part("initial_state"), []
        gate = torch.sigmoid(part("gate"))
        for at in range(0, len(x), BLOCK):
            rows = slice(at, at + BLOCK)
            s = rms(state, part("state_norm")) + part("state_ids")
            sk, sv = s @ part("state_k_proj").T, s @ part("state_v_proj").T
            read.append(attend(z[rows] @ part("q_proj").T, sk, sv))
            own = attend(s @ part("state_q_self_proj").T, sk, sv)
            tokens = attend(s @ part("state_q_token_proj").T, k[rows], v[rows])
            update = torch.cat([own, tokens], -1) @ part("state_o_proj").T
            state = gate * state + (1 - gate) * update
        h = h + torch.cat(read) @ part("o_proj").T
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
        if i + 1 == RECURRENT:
            name += "recurrent."
            for c in ("q", "o", "state_q_self", "state_q_token", "state_k", "state_v"):
                shapes[name + c + "_proj.weight"] = (D, D)
            shapes |= {name + "state_o_proj.weight": (D, 2 * D), name + "initial_state.weight": (STATES, D),
                       name + "state_ids.weight": (STATES, D), name + "state_norm.weight": (D,),
                       name + "gate.weight": (D,)}
    shapes[model + "norm.weight"] = (D,)
    weights = {}
    for name, shape in shapes.items():
        x = torch.randn(shape, dtype=torch.float64) * (0.3 if len(shape) == 2 else 0.2)
        x = x + (1.0 if len(shape) == 1 else 0.0)
        weights[name] = x.float().double().requires_grad_()  # numbers that float32 holds
    return weights


def main(path):
    torch.manual_seed(5)
    w = make_weights()
    ids = torch.randint(1, V, (SEQUENCES, LENGTH))
    lower, logits, nll = [], [], torch.zeros(SEQUENCES, LENGTH, dtype=torch.float64)
    embed = w["language_model.model.embed_tokens.weight"]
    final = []
    for n in range(SEQUENCES):
        x = embed[ids[n]]
        for i in range(LAYERS):
            x = layer(w, f"language_model.model.layers.{i}.", x, i + 1 == RECURRENT)
        lower.append(x)
        final.append(rms(x, w["language_model.model.norm.weight"]))
        logits.append(final[-1] @ embed.T)
        nll[n, :-1] = torch.nn.functional.cross_entropy(logits[-1][:-1], ids[n, 1:], reduction="none")
    loss = nll.sum() / (SEQUENCES * (LENGTH - 1))
    loss.backward()
    config = {"vocab_size": V, "hidden_size": D, "intermediate_size": F, "num_attention_heads": HEADS,
              "decoder_layers": [LAYERS], "encoder_layers": 0, "slide_window": WINDOW, "rms_norm_eps": EPS,
              "recurrent_layer": RECURRENT, "recurrent_states": STATES, "recurrent_block": BLOCK}
    out = {name: x.detach() for name, x in w.items()} | {"grad." + name: x.grad for name, x in w.items()}
    out |= {"out.lower": torch.stack(lower), "out.final": torch.stack(final), "out.logits": torch.stack(logits),
            "out.nll": nll, "out.loss": loss.reshape(1)}
    out = {name: x.detach().float().contiguous() for name, x in out.items()}
    out["in.ids"] = ids.int()
    about = "Block-Recurrent Transformer: four blocks, forward and gradients, float64 PyTorch"
    save_file(out, path, {"case": "lm_base_recurrent", "about": about, "config": json.dumps(config)})


if __name__ == "__main__":
    main(sys.argv[1])
