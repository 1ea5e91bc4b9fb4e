#!/usr/bin/env python3
"""Compares grouped cross-attention of this repository with PyTorch's on one GPU, in one process and on the same tensors.

  gca_peer.py LIBRARY [HEADS...] [--json FILE]

LIBRARY: what tests/device/bench/gca_library.sh builds. HEADS: heads of 64 columns, 12 and 16 if none are given.

Peers: K and V of the retrieved chunks gathered by index_select, then either scaled_dot_product_attention with each
chunk's own softmax and a weighted sum ("sdpa"), or the same written out in products and a softmax and compiled
("compiled"); backward by autograd, which adds gathered gradients up in the pool. Their gather is part of the time; the
time without it is also given. Errors are root mean squares relative to float64, on a smaller case.
"""
import ctypes
import os
import statistics
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from result import Result  # noqa: E402

S, DIM, K = 64, 64, 8
BF16 = torch.bfloat16


def pointer(x):
    return ctypes.c_void_p(0 if x is None else x.data_ptr())


class Case:
    """`sequences` of `chunks` chunks of 64 positions; each reads K chunks of its own sequence."""

    def __init__(self, sequences, chunks, heads):
        g = torch.Generator(device="cuda").manual_seed(1)
        self.blocks, self.heads, self.d = sequences * chunks, heads, heads * DIM
        n = self.blocks * S
        random = (torch.randn(n, self.d, device="cuda", generator=g).to(BF16) for _ in range(4))
        self.q, self.k, self.v, self.dout = random
        for x in (self.k, self.v):
            x.view(self.blocks, S, self.d)[:, -1] = 0                    # the null key
        own = torch.rand(self.blocks, chunks, device="cuda", generator=g).topk(K, dim=1).indices
        first = torch.arange(self.blocks, device="cuda") // chunks * chunks
        self.slot = (own + first[:, None]).to(torch.int32).contiguous()
        self.weight = torch.softmax(torch.randn(self.blocks, K, device="cuda", generator=g), -1)
        self.row_begin = torch.arange(self.blocks + 1, device="cuda") * S


class Ours:
    def __init__(self, library, case):
        self.library, self.c = library, case
        n = case.blocks * S
        self.o, self.dq, self.dk, self.dv = (torch.zeros_like(case.q) for _ in range(4))
        self.lse = torch.empty(K * case.heads, n, device="cuda")
        self.dweight = torch.empty(case.blocks, K, device="cuda")
        self.begin = torch.empty(case.blocks + 1, device="cuda", dtype=torch.int32)
        self.position = torch.empty(case.blocks * K, device="cuda", dtype=torch.int32)
        self.sizes = [ctypes.c_int64(case.blocks)] + [ctypes.c_int(x) for x in (case.blocks, K, case.heads, DIM)]

    def forward(self, keep=False):
        c = self.c
        tensors = (self.o, self.lse if keep else None, c.q, c.k, c.v, c.row_begin, c.slot, c.weight)
        self.library.gca_library_forward(*map(pointer, tensors), *self.sizes)
        return self.o

    def backward(self):
        c = self.c
        tensors = (self.dq, self.dk, self.dv, self.dweight, c.dout, self.lse, c.q, c.k, c.v, c.row_begin, c.slot,
                   c.weight, self.begin, self.position)
        self.library.gca_library_backward(*map(pointer, tensors), *self.sizes)


def heads_first(x, blocks, heads):
    return x.view(blocks, S, heads, DIM).transpose(1, 2)


def gather(c, x, slot):
    return heads_first(x, c.blocks, c.heads).index_select(0, slot).view(c.blocks, K, c.heads, S, DIM)


def sdpa(c, q, k, v, weight):
    """k, v: [blocks, K, heads, S, DIM], gathered."""
    wide = heads_first(q, c.blocks, c.heads)[:, None].expand(c.blocks, K, c.heads, S, DIM)
    o = F.scaled_dot_product_attention(wide.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1))
    o = o.view(c.blocks, K, c.heads, S, DIM)
    return torch.einsum("bkhsd,bk->bshd", o, weight.to(o.dtype)).reshape(c.blocks * S, c.d)


def written_out(c, q, k, v, weight):
    p = torch.softmax((heads_first(q, c.blocks, c.heads)[:, None] @ k.transpose(3, 4)).float() * DIM ** -0.5, -1)
    o = ((p * weight[:, :, None, None, None]).to(v.dtype) @ v).sum(1)
    return o.transpose(1, 2).reshape(c.blocks * S, c.d)


def milliseconds(work, repeats=15):
    """All times, sorted."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)


def gradients(c, attend, cast):
    """Output and gradients, the gather included, all in the type `cast`."""
    q, k, v, weight = (x.detach().to(cast).requires_grad_() for x in (c.q, c.k, c.v, c.weight))
    slot = c.slot.long().flatten()
    o = attend(c, q, gather(c, k, slot), gather(c, v, slot), weight)
    o.backward(c.dout.to(cast))
    live = torch.ones(S, 1, device="cuda", dtype=cast)
    live[-1] = 0                                                         # the null key takes no gradient
    dk, dv = ((x.grad.view(c.blocks, S, c.d) * live).view(-1, c.d) for x in (k, v))
    return {"o": o.detach(), "dq": q.grad, "dk": dk, "dv": dv, "dweight": weight.grad}


def parity(library, heads):
    c = Case(1, 32, heads)
    truth, peer = gradients(c, written_out, torch.float64), gradients(c, sdpa, BF16)
    ours = Ours(library, c)
    ours.forward(keep=True)
    ours.backward()
    torch.cuda.synchronize()
    mine = {"o": ours.o, "dq": ours.dq, "dk": ours.dk, "dv": ours.dv, "dweight": ours.dweight}
    good = True
    for name, right in truth.items():
        error, other = (float((x[name].double() - right).norm() / right.norm()) for x in (mine, peer))
        good = good and error <= 2 * other + 1e-6
        print(f"error {name}: ours {error:.2e}, sdpa {other:.2e}")
    return good


def times(library, heads, result):
    c = Case(4, 256, heads)
    operations = 4.0 * c.blocks * S * K * S * c.d
    ours = Ours(library, c)
    forward = milliseconds(ours.forward)
    ours.forward(keep=True)
    row = {"ours": (forward, milliseconds(ours.backward), None, None)}
    slot = c.slot.long().flatten()
    for name, attend in (("sdpa", sdpa), ("compiled", torch.compile(written_out, dynamic=False))):
        q, k, v, weight = (x.detach().requires_grad_() for x in (c.q, c.k, c.v, c.weight))
        gk, gv = (gather(c, x, slot).detach().contiguous().requires_grad_() for x in (k, v))

        def forward():
            return attend(c, q, gather(c, k, slot), gather(c, v, slot), weight)

        with torch.no_grad():
            alone, whole = milliseconds(lambda: attend(c, q, gk, gv, weight)), milliseconds(forward)
        o, without = forward(), attend(c, q, gk, gv, weight)
        back = milliseconds(lambda: torch.autograd.grad(o, (q, k, v, weight), c.dout, retain_graph=True), 7)
        back_alone = milliseconds(
            lambda: torch.autograd.grad(without, (q, gk, gv, weight), c.dout, retain_graph=True), 7)
        row[name] = (whole, back, alone, back_alone)
        del o, without
    record(result, heads, row)
    print(f"{heads} heads of 64, 4 x 16K positions, K {K}")
    medians = {name: [times and statistics.median(times) for times in all_times] for name, all_times in row.items()}
    for name, (forward_ms, back_ms, alone, back_alone) in medians.items():
        our_forward, our_back = medians["ours"][:2]
        line = (f"  {name:9} forward {forward_ms:7.3f} ms {operations / forward_ms / 1e9:6.0f} TFLOP/s, "
                f"backward {back_ms:7.3f} ms {2.5 * operations / back_ms / 1e9:6.0f} TFLOP/s")
        if alone is not None:
            line += (f"; without the gather {alone:.3f} and {back_alone:.3f} ms; ours is "
                     f"{forward_ms / our_forward:.2f} and {back_ms / our_back:.2f} times as fast "
                     f"({alone / our_forward:.2f} and {back_alone / our_back:.2f})")
        print(line)


def record(result, heads, row):
    """This repository's kernel against the compiled peer, then the time of each peer."""
    for which, label in enumerate(("forward", "backward")):
        ours = statistics.median(row["ours"][which])
        result.figure(f"d {heads * DIM}, {label}, ours", "ms", row["ours"][which], peer="PyTorch compiled",
                      ratio=statistics.median(row["compiled"][which]) / ours)
        for name in ("compiled", "sdpa"):
            for at, gather in ((which, ""), (which + 2, ", no gather")):
                result.figure(f"d {heads * DIM}, {label}, PyTorch {name}{gather}", "ms", row[name][at])


def main():
    result = Result("gca_peer", gpu=torch.cuda.get_device_name())
    library = ctypes.CDLL(sys.argv[1])
    good = True
    for heads in [int(x) for x in sys.argv[2:]] or [12, 16]:
        good = parity(library, heads) and good
        times(library, heads, result)
    result.write()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
