"""What the golden cases of a Base LM share, in PyTorch, float64: weights, layers, losses and the file.

Written from docs/model.md, sections 2, 6 and 14. block_recurrent.py and landmark_attention.py add their attention.
"""

import json

import torch
from safetensors.torch import save_file

VOCABULARY, HIDDEN, FFN, HEADS, EPS = 53, 16, 24, 2, 1e-5
MODEL = "language_model.model."


def make_weights(layers, extra=lambda i: {}):
    """extra(i): further shapes of layer i. Random numbers are drawn in the order of the names."""
    shapes = {MODEL + "embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for i in range(layers):
        name = f"{MODEL}layers.{i}."
        for c in "qkvo":
            shapes[name + f"self_attn.{c}_proj.weight"] = (HIDDEN, HIDDEN)
        shapes |= {name + "mlp.gate_proj.weight": (FFN, HIDDEN), name + "mlp.up_proj.weight": (FFN, HIDDEN),
                   name + "mlp.down_proj.weight": (HIDDEN, FFN), name + "input_layernorm.weight": (HIDDEN,),
                   name + "post_attention_layernorm.weight": (HIDDEN,)}
        shapes |= {name + part: shape for part, shape in extra(i).items()}
    shapes[MODEL + "norm.weight"] = (HIDDEN,)
    weights = {}
    for name, shape in shapes.items():
        x = torch.randn(shape, dtype=torch.float64) * (0.3 if len(shape) == 2 else 0.2)
        x = x + (1.0 if len(shape) == 1 else 0.0)
        weights[name] = x.float().double().requires_grad_()  # numbers that float32 can represent
    return weights


def rms(x, w):
    return x * w / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS)


def layer(w, i, x, attend, beside=None):
    """attend(q, k, v): attention of all heads. beside(z, k, v): what else the normed input z adds to x."""
    name = f"{MODEL}layers.{i}."
    z = rms(x, w[name + "input_layernorm.weight"])
    q, k, v = (z @ w[name + f"self_attn.{c}_proj.weight"].T for c in "qkv")
    h = x + attend(q, k, v) @ w[name + "self_attn.o_proj.weight"].T
    if beside is not None:
        h = h + beside(z, k, v)
    z = rms(h, w[name + "post_attention_layernorm.weight"])
    a, b = z @ w[name + "mlp.gate_proj.weight"].T, z @ w[name + "mlp.up_proj.weight"].T
    return h + (torch.nn.functional.silu(a) * b) @ w[name + "mlp.down_proj.weight"].T


def write_case(path, case, about, w, ids, layers, run, positions=lambda x: x, tokens=slice(None), **config):
    """Runs run(i, x) for each layer i over positions(ids) of each sequence, and writes results and gradients.

    tokens: the positions that predict; the others are landmarks. config: the model's keys besides the sizes.
    """
    embed, lower, final, logits = w[MODEL + "embed_tokens.weight"], [], [], []
    nll = torch.zeros(ids.shape, dtype=torch.float64)
    for n in range(len(ids)):
        x = embed[positions(ids[n])]
        for i in range(layers):
            x = run(i, x)
        lower.append(x)
        final.append(rms(x, w[MODEL + "norm.weight"]))
        logits.append(final[-1][tokens] @ embed.T)
        nll[n, :-1] = torch.nn.functional.cross_entropy(logits[-1][:-1], ids[n, 1:], reduction="none")
    loss = nll.sum() / (ids.shape[0] * (ids.shape[1] - 1))
    loss.backward()
    out = {name: x.detach() for name, x in w.items()} | {"grad." + name: x.grad for name, x in w.items()}
    out |= {"out.lower": torch.stack(lower), "out.final": torch.stack(final), "out.logits": torch.stack(logits),
            "out.nll": nll, "out.loss": loss.reshape(1)}
    out = {name: x.detach().float().contiguous() for name, x in out.items()}
    out["in.ids"] = ids.int()
    config = {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": FFN, "num_attention_heads": HEADS,
              "decoder_layers": [layers], "encoder_layers": 0} | config
    save_file(out, path, {"case": case, "about": about, "config": json.dumps(config)})
