#!/usr/bin/env python3
"""Measures searches by landmarks alone, as found and in a trained order, against a search by words and landmarks.

  candidate_order.py TOKENS MODEL [--sketch N] [--pair W] [--alone] [--candidates N] [--steps N] [--windows N]

TOKENS: a folder with files of 16-bit ids, as drt-tokenizer encode writes them (each document ends with id 0):
train-X.u16, which is the store, valid-X.u16, and queries-X.u16, text that is not in the store; X: books, dialogue,
math, techdocs, wiki. Domains without queries-X.u16 take documents of the store, which then do not find themselves.
MODEL: the folder of base-28m.

The memory, its temperature and its gate are those of docs/token-memory.md in PyTorch: keys are the inputs of the last
MLP, stored with a window of 512, span 0,1. Each row is a search; its change is the mean over domains of the change in
log-perplexity, with an interval by bootstrap over documents. The gate is fitted on one half of the documents and
applied to the other. The figures are in docs/research/token-memory.md, "A trained order of candidates".
"""
import argparse
import math
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from candidate_searches import (  # noqa: E402
    CHUNK, DEVICE, DIM, NEXT, SPAN, TAUS, WORDS, BaseLM, Keys, Rows, Search, Sketch, Store, Texts, fit_gates,
    query_windows, read, saturated, say, valid_windows)

# ---- the order ----

FEATURES = 34


@torch.no_grad()
def features(store, keys, texts, at, chunks, scores):
    """[searches, candidates, 34]: words, pairs and runs by their distance to the end of the text; products of the
    states of the last 1, 4, 16 and 64 positions; score and rank; candidates of the same document; length."""
    out, back = [], torch.arange(WORDS, device=DEVICE)
    k = chunks.shape[1]
    batch = max(1, min(24, 6 * 1024 // k))

    def ranges(x, *ends):
        return [x[:, :, a:b].sum(2) for a, b in zip((0,) + ends, ends + (x.shape[2],))]
    for a in range(0, len(at), batch):
        p, c = at[a:a + batch], chunks[a:a + batch].long()
        x = texts.ids[p[:, None] - 1 - back].long()                       # the last word first
        i, past = store.passages(c)
        own = torch.arange(SPAN, device=DEVICE) < store.length[c][..., None]
        ids = torch.where(past, -1, store.ids[i].long())
        same = x[:, None, :, None] == ids[:, :, None]                     # [n, candidates, 128, 126]
        newest = ~((x[:, :, None] == x[:, None]) & (back < back[:, None])).any(2)
        idf = store.idf[x]
        f = ranges(saturated((same & own[:, :, None]).sum(3).float()) * (idf * newest)[:, None], 4, 8, 16, 32, 64)
        f += ranges(saturated((same & ~own[:, :, None]).sum(3).float()) * (idf * newest)[:, None], 16, 64)
        pair_idf = store.pair_idf[store.find_pairs(x[:, 1:], x[:, :-1])]
        two = same[:, :, :-1, 1:] & same[:, :, 1:, :-1]
        f += ranges(two.any(3) * pair_idf[:, None], 8, 32)
        three = two[:, :, :-1, 1:] & two[:, :, 1:, :-1]
        f += ranges(three.any(3) * (idf[:, :-2] + idf[:, 1:-1] + idf[:, 2:])[:, None], 16)
        five = three[:, :, :-2, 2:] & three[:, :, 2:, :-2]
        f += ranges(five.any(3).float(), 32)
        f += [same[:, :, 0].any(2) * idf[:, :1], two[:, :, 0].any(2) * pair_idf[:, :1], three[:, :, 0].any(2).float(),
              five[:, :, 0].any(2).float()]
        near = {}
        for step in (0, 1, -1):
            other, there = store.neighbours(c, step) if step else (c, torch.ones_like(c, dtype=torch.bool))
            near[step] = keys.landmark[other].float() * there[..., None]
        for n, steps in ((1, (0,)), (4, (0, 1)), (16, (0, 1, -1)), (64, (0,))):
            state = keys.unit(texts.mean_state(p, n))[:, :, None]
            f += [100 * torch.bmm(near[step], state)[:, :, 0] for step in steps]
        v = scores[a:a + batch].float()
        rank = torch.log1p(torch.arange(k, device=DEVICE).float())[None].expand(len(p), -1)
        alike = (store.document[c][:, :, None] == store.document[c][:, None]).float()
        f += [v, v - v[:, :1], v - v[:, 63:64] if k > 64 else v, rank, torch.log(alike.sum(2)),
              torch.log(alike[:, :, :64].sum(2) + 1), store.length[c].float() / CHUNK]
        out.append(torch.stack(f, 2).half())
    return torch.cat(out)


class Order(torch.nn.Module):
    def __init__(self, x):
        super().__init__()
        sample = x[::7].reshape(-1, FEATURES).float()
        self.mean, self.deviation = sample.mean(0), sample.std(0) + 1e-3
        self.weight = torch.nn.Parameter(torch.zeros(FEATURES, device=DEVICE))
        self.found = torch.nn.Parameter(torch.ones(1, device=DEVICE))

    def forward(self, x, scores):
        return scores * self.found + 10 * (((x.float() - self.mean) / self.deviation).clamp(-6, 6) @ self.weight)

    @torch.no_grad()
    def sort(self, x, chunks, scores):
        best = torch.cat([self(a, b) for a, b in zip(x.split(512), scores.split(512))]).sort(1, descending=True)
        return chunks.gather(1, best.indices), best.values


@torch.no_grad()
def utility(texts, store, keys, chosen, chunks, tau=45.0):
    """Of each candidate and next token: the weight of its entries, and of those that are the token."""
    z, right = (torch.empty(len(chosen), chunks.shape[1], NEXT, dtype=torch.float16, device=DEVICE) for _ in range(2))
    query, next_id = texts.query.view(-1, NEXT, DIM)[chosen], texts.next.view(-1, NEXT)[chosen]
    square = texts.square.view(-1, NEXT)[chosen]
    for a in range(0, len(chosen), 2):
        c = chunks[a:a + 2].long()
        i, _ = store.passages(c)
        i = i.view(len(c), -1)
        past = (i + 1 >= store.last[store.document[c]].repeat_interleave(SPAN, 1))[:, None]
        d = 2 * torch.bmm(query[a:a + 2].float(), keys.key[i].float().transpose(1, 2))
        d = (d - keys.square[i][:, None] - square[a:a + 2, :, None]).masked_fill(past, -1e9)
        d = torch.exp((d - d.amax(2, keepdim=True)) / tau)
        hit = store.ids[i + 1][:, None] == next_id[a:a + 2, :, None]
        shape = (len(c), NEXT, -1, SPAN)
        z[a:a + 2] = d.view(shape).sum(3).transpose(1, 2)
        right[a:a + 2] = (d * hit).view(shape).sum(3).transpose(1, 2)
    return z, right


def train(texts, store, keys, chosen, chunks, scores, gate, steps, ks=(8, 64)):
    """Weights by the reader's loss with a soft choice of the first k candidates."""
    torch.manual_seed(0)
    x = features(store, keys, texts, texts.at[::NEXT][chosen], chunks, scores)
    z, right = utility(texts, store, keys, chosen, chunks)
    lm, gate = (v.view(-1, NEXT)[chosen] for v in (texts.log_p.exp(), gate))
    domain = texts.domain[::NEXT][chosen]
    draw = (1 / torch.bincount(domain, minlength=5).float().clamp(min=1))[domain]
    order = Order(x)
    optimizer = torch.optim.AdamW(order.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=1e-4)
    for step in range(steps):
        done = step / steps
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1, (step + 1) / 40) * (0.5 + 0.5 * math.cos(math.pi * done))
        i = torch.multinomial(draw, 256, replacement=True)
        s, ok, loss = order(x[i], scores[i]), scores[i] > -1e4, 0
        s = s.masked_fill(~ok, -1e4)
        for k in ks:
            kth = s.detach().topk(min(k, s.shape[1]), 1).values[:, -1:]
            a = (torch.sigmoid((s - kth) / (8 - 5 * done)) + 1e-6) * ok
            all_z = torch.bmm(a[:, None], z[i].float())[:, 0] + 1e-9
            p = torch.bmm(a[:, None], right[i].float())[:, 0] / all_z
            loss = loss - torch.log((1 - gate[i]) * lm[i] + gate[i] * p + 1e-7).mean() / len(ks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    say("trained on", len(chosen), "searches of", chunks.shape[1], "candidates, loss", round(loss.item(), 4))
    return order


# ---- the tables ----


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tokens")
    arguments.add_argument("model")
    arguments.add_argument("--sketch", type=int, default=2048, help="dimensions of the sketch; 0: none")
    arguments.add_argument("--pair", type=float, default=0.125, help="weight of pairs in the sketch")
    arguments.add_argument("--alone", action="store_true", help="landmarks of chunks read alone, as drt-index makes them")
    arguments.add_argument("--candidates", type=int, default=224)
    arguments.add_argument("--steps", type=int, default=2400)
    arguments.add_argument("--windows", type=int, default=480, help="texts of each domain to train on and to hold out")
    arguments.add_argument("--part", type=int, default=1, help="1/N of the store and random keys: for a trial")
    o = arguments.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    store = Store(o.tokens, o.part)
    model = BaseLM(o.model)
    keys = Keys(store, model, random=o.part > 1, alone=o.alone)
    say("store:", store.n, "chunks")
    valid = Texts(valid_windows(o.tokens, *((64, 330, 330) if o.part > 1 else ())), model)
    train_windows, held_windows = query_windows(o.tokens, store, o.windows)
    queries, held = Texts(train_windows, model), Texts(held_windows, model)
    say("tokens:", valid.n, "valid,", queries.n, "to train on,", held.n, "held out")
    hybrid = Search(store, keys, words=True)
    searches = {"words": Search(store, keys, words=True, weight=0),
                "words + mean state": Search(store, keys, words=True, states=CHUNK, weight=80.0),
                "words + state": hybrid,
                "state": Search(store, keys)}
    if o.sketch:
        searches[f"sketch {o.sketch} + state"] = Search(store, keys, sketch=Sketch(store, o.sketch, o.pair))
    chosen = torch.arange(0, queries.n // NEXT, max(1, o.candidates // 448), device=DEVICE)
    chunks, scores = hybrid(queries, queries.at[::NEXT], queries.stored[::NEXT], 64)
    every = torch.ones(queries.n, dtype=torch.bool, device=DEVICE)
    gate = fit_gates(queries, read(queries, store, keys, NEXT, chunks, scores), TAUS.index(45.0), every, gates=1)[0]
    sets = ((f"valid, every {e}", valid, Rows(valid, (45.0,)), e) for e in (64, 16))
    sets = [*sets, ("held out, every 64", held, Rows(held, (45.0,)), 64)]
    for name, search in searches.items():
        at, stored = queries.at[::NEXT][chosen], queries.stored[::NEXT][chosen]
        order = None
        if name not in ("words", "words + mean state"):
            order = train(queries, store, keys, chosen, *search(queries, at, stored, o.candidates), gate, o.steps)
        for text, of, rows, e in sets:
            chunks, scores = search(of, of.at[::e], of.stored[::e], max(o.candidates, 64))
            rows.add(f"{text}: {name}", read(of, store, keys, e, chunks[:, :64], scores[:, :64]),
                     f"{text}: words + mean state")
            if order:
                x = features(store, keys, of, of.at[::e], chunks, scores)
                chunks, scores = order.sort(x, chunks, scores)
                rows.add(f"{text}: {name}, trained order", read(of, store, keys, e, chunks[:, :64], scores[:, :64]),
                         f"{text}: words + mean state")


if __name__ == "__main__":
    main()
