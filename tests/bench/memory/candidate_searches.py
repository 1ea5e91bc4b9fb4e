"""What candidate_order.py measures: a store with exact BM25, the Base LM, texts, what a memory of found chunks gives,
and searches by words, by sketches of them and by states."""
import json
import math
import struct
import time

import numpy as np
import torch
import torch.nn.functional as F

DOMAINS = "books dialogue math techdocs wiki".split()
# SPAN: entries of a chunk and the next one; NEXT: tokens of a search that is trained on
VOCAB, CHUNK, WORDS, SPAN, NEXT = 16384, 63, 128, 126, 64
DIM, HEADS, LAYERS, WINDOW = 384, 6, 12, 512
SKIP, EVERY, TAUS = 256, 64, (8.0, 16.0, 23.0, 32.0, 45.0, 64.0)
STATES, STATE_WEIGHT, PAIR_WEIGHT = 16, 120.0, 0.5          # of `hybrid`: BM25 + weight * cosine of the last states
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HALF = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
START = time.time()


def say(*what):
    print(f"[{time.time() - START:6.1f}]", *what, flush=True)


def documents(path):
    ids = np.fromfile(path, dtype=np.uint16)
    ends = np.where(ids == 0)[0]
    return [ids[b:e].astype(np.int64) for b, e in zip(np.concatenate([[0], ends[:-1] + 1]), ends)]


def saturated(f):
    """s(f) of store/lexical/lexical.h"""
    f = torch.where(f > 2, torch.full_like(f, 4.0), f)
    return f * 2.2 / (f + 1.2)


def distinct(x, pad):
    """Rows of ids: sorted, a repeated id becomes `pad`; and s(f) of those that stay."""
    x = x.sort(1).values
    first = torch.ones_like(x, dtype=torch.bool)
    first[:, 1:] = x[:, 1:] != x[:, :-1]
    at = torch.arange(x.shape[1], device=x.device).expand_as(x)
    later = torch.where(first, at, x.shape[1]).flip(1).cummin(1).values.flip(1)
    later = torch.cat([later[:, 1:], torch.full_like(later[:, :1], x.shape[1])], 1)
    keep = first & (x != pad)
    return torch.where(keep, x, pad), torch.where(keep, saturated((later - at).float()), 0.0).half()


def idf_of(n, df):
    return torch.log(1 + (n - df.double() + 0.5) / (df.double() + 0.5)).float()


class Store:
    """Chunks of the texts, with the tables of exact BM25: tokens [N, 63] and pairs [N, 62] with s(f)."""

    def __init__(self, folder, part):
        text = [documents(f"{folder}/train-{d}.u16") for d in DOMAINS]
        text = [d[:max(1, len(d) // part)] for d in text]
        self.of_domain = [len(d) for d in text]
        text = [d for of in text for d in of]
        length = torch.tensor([len(d) for d in text])
        chunks = -(-length // CHUNK)
        self.end_of = chunks.cumsum(0).to(DEVICE)            # of the documents, in chunks
        self.begin_of = self.end_of - chunks.to(DEVICE)
        inside = torch.arange(int(chunks.sum())) - (chunks.cumsum(0) - chunks).repeat_interleave(chunks)
        begin = ((length + 1).cumsum(0) - length - 1).repeat_interleave(chunks) + inside * CHUNK
        self.length = torch.minimum(length.repeat_interleave(chunks) - inside * CHUNK, torch.tensor(CHUNK)).to(DEVICE)
        self.begin = begin.to(DEVICE)
        self.document = torch.arange(len(length)).repeat_interleave(chunks).to(DEVICE)
        self.n, self.tokens = len(begin), int((length + 1).sum())
        text = [np.append(d, 0) for d in text] + [np.zeros(2 * WINDOW)]
        self.ids = torch.from_numpy(np.concatenate(text).astype(np.int32)).to(DEVICE)
        self.last = (self.begin + self.length)[self.end_of - 1]      # of each document: the end of its ids
        self._tables()

    def _tables(self):
        columns = [[] for _ in range(4)]
        for a in range(0, self.n, 1 << 17):
            z = slice(a, a + (1 << 17))
            ok = torch.arange(CHUNK, device=DEVICE) < self.length[z, None]
            x = self.ids[self.begin[z, None] + torch.arange(CHUNK, device=DEVICE)]
            pairs = torch.where(ok[:, 1:], x[:, :-1] * VOCAB + x[:, 1:], -1)
            for to, of in zip(columns, distinct(torch.where(ok, x, VOCAB), VOCAB) + distinct(pairs, -1)):
                to.append(of)
        self.token, self.token_s, pairs, self.pair_s = (torch.cat(c) for c in columns)
        self.idf = torch.cat([idf_of(self.n, torch.bincount(self.token.flatten(), minlength=VOCAB + 1)[:VOCAB]),
                              torch.zeros(1, device=DEVICE)])
        keys, at, count = torch.unique(pairs.flatten(), return_inverse=True, return_counts=True)
        none = int(keys[0] == -1)
        self.pair_key = keys[none:].contiguous()
        self.pairs = len(self.pair_key)
        self.pair = at.to(torch.int32).view(pairs.shape) - none
        self.pair[self.pair < 0] = self.pairs
        self.pair_df = count[none:]
        self.pair_idf = torch.cat([idf_of(self.n, self.pair_df), torch.zeros(1, device=DEVICE)])

    def find_pairs(self, first, second):
        """Numbers of pairs of ids, `pairs` for those that no chunk has or that have a negative id."""
        key = torch.where((first >= 0) & (second >= 0), first * VOCAB + second, -1).to(self.pair_key.dtype)
        i = torch.searchsorted(self.pair_key, key.contiguous()).clamp(max=self.pairs - 1)
        return torch.where(self.pair_key[i] == key, i, self.pairs)

    def bm25(self, words):
        """[n, chunks] of the texts words [n, 128], oldest first."""
        token, _ = distinct(words.to(torch.int32), VOCAB)
        pair, _ = distinct((words[:, :-1] * VOCAB + words[:, 1:]).to(torch.int32), -1)
        pair = torch.where(pair >= 0, self.find_pairs(pair // VOCAB, pair % VOCAB), self.pairs)
        n = torch.arange(len(words), device=DEVICE)[:, None]
        by_token = torch.zeros(VOCAB + 1, len(words), device=DEVICE)
        by_token[token.long(), n.expand_as(token)] = self.idf[token.long()]
        used = torch.unique(pair)
        used = used[used < self.pairs]
        row_of = torch.zeros(self.pairs + 1, dtype=torch.int32, device=DEVICE)
        row_of[used] = torch.arange(1, len(used) + 1, dtype=torch.int32, device=DEVICE)
        by_pair = torch.zeros(len(used) + 1, len(words), device=DEVICE)
        by_pair[row_of[pair].long(), n.expand_as(pair)] = PAIR_WEIGHT * self.pair_idf[pair]
        by_token[VOCAB], by_pair[0] = 0, 0
        out = []
        for a in range(0, self.n, 1 << 18):
            z = slice(a, a + (1 << 18))
            sums = F.embedding_bag(self.token[z], by_token, mode="sum", per_sample_weights=self.token_s[z].float())
            sums += F.embedding_bag(row_of[self.pair[z].long()], by_pair, mode="sum",
                                    per_sample_weights=self.pair_s[z].float())
            out.append(sums)
        return torch.cat(out).T.contiguous()

    def passages(self, chunks):
        """Positions of the 126 entries of each chunk and the next one, and which are after the document's end."""
        i = self.begin[chunks][..., None] + torch.arange(SPAN, device=DEVICE)
        return i, i >= self.last[self.document[chunks]][..., None]

    def neighbours(self, chunks, step):
        """The next chunks, or those before, and whether they are of the same document."""
        other = (chunks + step).clamp(0, self.n - 1)
        return other, (self.document[other] == self.document[chunks]) & (other != chunks)


class BaseLM:
    def __init__(self, folder):
        with open(folder + "/model.safetensors", "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            raw = f.read()
        types = {"BF16": torch.bfloat16, "F32": torch.float32, "F16": torch.float16}
        self.w = {}
        for name, t in header.items():
            if name == "__metadata__":
                continue
            b, e = t["data_offsets"]
            numbers = torch.frombuffer(bytearray(raw[b:e]), dtype=types[t["dtype"]])
            self.w[name] = numbers.view(t["shape"]).to(DEVICE, HALF)
        self.embedding = self.w["language_model.model.embed_tokens.weight"]
        self.bias = {}

    def mask(self, n):
        if n not in self.bias:
            slope = torch.tensor([2 ** (-8 * (i + 1) / HEADS) for i in range(HEADS)], device=DEVICE)
            back = torch.arange(n, device=DEVICE)[:, None] - torch.arange(n, device=DEVICE)
            bias = (-slope[:, None, None] * back).masked_fill((back < 0) | (back > WINDOW), float("-inf"))
            self.bias[n] = bias[None].to(HALF)
        return self.bias[n]

    @torch.no_grad()
    def __call__(self, ids, final=True):
        """Inputs of the last MLP, and the final states."""
        prefix, (b, n) = "language_model.model.", ids.shape
        x, bias = self.embedding[ids], self.mask(n).expand(b, -1, -1, -1)

        def norm(x, name):
            return F.rms_norm(x, (DIM,), self.w[name], 1e-5)
        for i in range(LAYERS):
            p = f"{prefix}layers.{i}."
            y = norm(x, p + "input_layernorm.weight")
            q, k, v = (F.linear(y, self.w[f"{p}self_attn.{c}_proj.weight"]).view(b, n, HEADS, -1).transpose(1, 2)
                       for c in "qkv")
            a = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(b, n, DIM)
            x = x + F.linear(a, self.w[p + "self_attn.o_proj.weight"])
            y = norm(x, p + "post_attention_layernorm.weight")
            if i == LAYERS - 1 and not final:
                return y, None
            gate = F.silu(F.linear(y, self.w[p + "mlp.gate_proj.weight"]))
            up = F.linear(y, self.w[p + "mlp.up_proj.weight"])
            x = x + F.linear(gate * up, self.w[p + "mlp.down_proj.weight"])
        return y, norm(x, prefix + "norm.weight")


class Keys:
    """Of the store's tokens: keys with their squared norms, and the landmarks, which are mean states of unit length.
    alone: landmarks of chunks that are read without text before them, less the product's centre (state_landmarks.h)."""

    @torch.no_grad()
    def __init__(self, store, model, random=False, alone=False):
        n = -(-store.tokens // WINDOW)
        if random:                                           # for a quick run of the script itself
            self.key = torch.randn(n * WINDOW + SPAN + 1, DIM, device=DEVICE, dtype=HALF)
        else:
            self.key = torch.zeros(n * WINDOW + SPAN + 1, DIM, device=DEVICE, dtype=HALF)
            for a in range(0, n, 96):
                x = store.ids[a * WINDOW:min(a + 96, n) * WINDOW].view(-1, WINDOW).long()
                self.key[a * WINDOW:a * WINDOW + x.numel()] = model(x, False)[0].reshape(-1, DIM)
        self.square = torch.cat([k.float().pow(2).sum(-1) for k in self.key.split(1 << 20)])
        mean, at = [], torch.arange(CHUNK, device=DEVICE)
        step = 768 if alone else 1 << 14
        for a in range(0, store.n, step):
            length = store.length[a:a + step, None]
            i = (store.begin[a:a + step, None] + at).clamp(max=len(self.key) - 1)
            state = model(torch.where(at < length, store.ids[i], 0).long(), False)[0] if alone else self.key[i]
            mean.append(torch.bmm(((at < length) / length).to(HALF)[:, None], state)[:, 0].float())
        mean = torch.cat(mean)
        self.centre, self.spread = mean.mean(0), mean.std(0)
        if alone:
            spread_ids = (torch.arange(16 * CHUNK, device=DEVICE) * VOCAB // (16 * CHUNK)).view(CHUNK, 16).T
            self.centre = model(spread_ids.contiguous(), False)[0].float().mean((0, 1))
            self.spread = torch.ones_like(self.centre)
        self.landmark = self.unit(mean).to(HALF if DEVICE.type == "cpu" else torch.float16)

    def unit(self, mean):
        return F.normalize((mean - self.centre) / self.spread, dim=-1)


class Texts:
    """Windows of text with the model's results for their scored tokens, whose number in each is a multiple of 64.
    windows: (half, domain, document, ids, first scored, end, document of the store or -1)"""

    @torch.no_grad()
    def __init__(self, windows, model):
        length, count = [len(w[3]) for w in windows], [w[5] - w[4] for w in windows]
        base = np.cumsum([0] + length[:-1])
        first = np.cumsum([0] + count[:-1])
        self.ids = torch.from_numpy(np.concatenate([w[3] for w in windows]).astype(np.int32)).to(DEVICE)
        self.state = torch.empty(sum(length), DIM, dtype=HALF, device=DEVICE)
        self.n = sum(count)
        self.log_p, self.entropy, self.largest = (torch.empty(self.n, device=DEVICE) for _ in range(3))
        order = sorted(range(len(windows)), key=lambda i: length[i])
        for a in range(0, len(order), 8):
            group = order[a:a + 8]
            x = torch.zeros(len(group), -(-max(length[i] for i in group) // 8) * 8, dtype=torch.long)
            for r, i in enumerate(group):
                x[r, :length[i]] = torch.from_numpy(windows[i][3].astype(np.int64))
            x = x.to(DEVICE)
            state, final = model(x)
            for r, i in enumerate(group):
                b, e = windows[i][4:6]
                self.state[base[i]:base[i] + length[i]] = state[r, :length[i]]
                logs = torch.log_softmax((final[r, b - 1:e - 1] @ model.embedding.T).float(), -1)
                z = slice(first[i], first[i] + e - b)
                self.log_p[z] = logs.gather(1, x[r, b:e, None])[:, 0]
                self.largest[z] = logs.max(-1).values
                self.entropy[z] = -(logs.exp() * logs).sum(-1)
        at = [np.arange(w[4], w[5]) + b for w, b in zip(windows, base)]
        self.at = torch.from_numpy(np.concatenate(at)).to(DEVICE)
        columns = (torch.tensor([w[c] for w in windows], device=DEVICE) for c in (0, 1, 2, 6))
        half, domain, document, stored = columns
        of = torch.arange(len(windows), device=DEVICE).repeat_interleave(torch.tensor(count, device=DEVICE))
        self.half, self.domain, self.stored = half[of], domain[of], stored[of]
        self.document = torch.unique(document[of], return_inverse=True)[1]
        self.next, self.query = self.ids[self.at].long(), self.state[self.at - 1]
        self.square = self.query.float().pow(2).sum(-1)

    def words(self, at):
        return self.ids[at[:, None] - WORDS + torch.arange(WORDS, device=DEVICE)].long()

    def mean_state(self, at, n):
        back = torch.arange(n, device=DEVICE) - n
        return torch.cat([self.state[p[:, None] + back].float().mean(1) for p in at.split(512)])


def windows_of(text, half, domain, number, stored, length, most):
    """The windows of a document, with up to `most` scored tokens in all."""
    out = []
    for a in range(0, len(text), length):
        w = text[a:a + length]
        scored = min(len(w) - SKIP - 1, most) // EVERY * EVERY
        if scored > 0:
            out.append((half, domain, domain * 100000 + number, w, SKIP, SKIP + scored, stored))
            most -= scored
    return out


def valid_windows(folder, most=8192, document_tokens=4096, length=2048):
    """Up to `most` scored tokens of each domain and half."""
    out = []
    for domain, name in enumerate(DOMAINS):
        left = [most, most]
        for number, text in enumerate(documents(f"{folder}/valid-{name}.u16")):
            new = windows_of(text[:document_tokens], number % 2, domain, number, -1, length, left[number % 2])
            left[number % 2] -= sum(w[5] - w[4] for w in new)
            out += new
    return out


def query_windows(folder, store, most, length=1088):
    """One window of each text that is not in the store, or of documents of the store: to train on, and held out."""
    out, first, random = ([], []), 0, np.random.default_rng(5)
    for domain, name in enumerate(DOMAINS):
        try:
            text = [(i, d, -1) for i, d in enumerate(documents(f"{folder}/queries-{name}.u16"))]
        except FileNotFoundError:
            begin, end = store.begin[store.begin_of].tolist(), store.last.tolist()
            numbers = range(first, first + store.of_domain[domain])
            text = [(i, store.ids[begin[i]:end[i]].cpu().numpy(), i) for i in numbers]
        first += store.of_domain[domain]
        text = [t for t in text if len(t[1]) >= SKIP + EVERY + 1]
        random.shuffle(text)
        for i, (number, ids, stored) in enumerate(text[:most]):
            out[i % 6 == 5].extend(windows_of(ids[:length], number % 2, domain, number, stored, length, length))
    return out


# ---- what a memory of the found chunks gives ----


@torch.no_grad()
def read(texts, store, keys, every, chunks, scores):
    """For each scored token: nearest distance, of each temperature p of the token, lse and squares; then the best, the
    last and the mean score of the chunks [searches, K]."""
    out, n = [], texts.n // every
    query, square, right = texts.query.view(n, every, DIM), texts.square.view(n, every), texts.next.view(n, every)
    batch = 32 if every == 64 else 64
    for a in range(0, n, batch):
        c = chunks[a:a + batch].long()
        b = len(c)
        i, _ = store.passages(c)
        i = i.view(b, -1)
        past = (i + 1 >= store.last[store.document[c]].repeat_interleave(SPAN, 1))[:, None]
        d = square[a:a + batch, :, None] + keys.square[i][:, None]
        d = d - 2 * torch.bmm(query[a:a + batch].float(), keys.key[i].float().transpose(1, 2))
        d = d.clamp(min=0).masked_fill(past, 1e9)
        hit = store.ids[i + 1][:, None] == right[a:a + batch, :, None]
        columns = [d.min(-1).values]
        for tau in TAUS:
            lse = torch.logsumexp(-d / tau, -1)
            w = torch.exp(-d / tau - lse[..., None])
            columns += [(w * hit).sum(-1), lse, w.pow(2).sum(-1)]
        v = scores[a:a + batch].float()
        columns += [x[:, None].expand(b, every) for x in (v[:, 0], v[:, -1], v.mean(1))]
        out.append(torch.stack(columns, -1).view(b * every, -1))
    return torch.cat(out)


def fit_gates(texts, found, tau, fit, gates=4, steps=150, penalty=4.0):
    """`gates` small networks, fitted on the tokens `fit`: the weight of the memory for each token, [gates, tokens]."""
    columns = [found[:, c] for c in (0, 2 + 3 * tau, 3 + 3 * tau, -3, -2, -1)]
    x = torch.stack([texts.entropy, texts.largest] + columns, 1)
    x = ((x - x[fit].mean(0)) / (x[fit].std(0) + 1e-6)).clamp(-5, 5)
    weight = 1 / (5 * torch.bincount(texts.domain[fit], minlength=5).float())
    weight = weight[texts.domain[fit]]
    g = torch.Generator(device=DEVICE).manual_seed(3)
    w1 = torch.randn(gates, x.shape[1], 16, generator=g, device=DEVICE) / math.sqrt(x.shape[1])
    b1 = torch.zeros(gates, 1, 16, device=DEVICE)
    w2 = torch.randn(gates, 16, 1, generator=g, device=DEVICE) * 0.1
    b2 = torch.full((gates, 1, 1), -2.0, device=DEVICE)
    parameters = [p.requires_grad_() for p in (w1, b1, w2, b2)]
    optimizer = torch.optim.Adam(parameters, lr=0.1)
    lm, p, inputs = texts.log_p[fit].exp(), found[fit, 1 + 3 * tau], x[fit]

    def gate(x):
        return torch.sigmoid((torch.tanh(x[None] @ w1 + b1) @ w2 + b2)[..., 0])
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / steps)
        h = gate(inputs)
        loss = -(torch.log((1 - h) * lm + h * p + 1e-12) * weight).sum(1).sum()
        loss = loss + penalty / len(inputs) * (w1.pow(2).sum() + w2.pow(2).sum())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return torch.cat([gate(y) for y in x.split(1 << 19)], 1)


class Rows:
    """The table of one set of texts."""

    def __init__(self, texts, taus=TAUS):
        self.texts, self.taus, self.log_p = texts, [TAUS.index(t) for t in taus], {}

    def mixed(self, found):
        """log p of each token, with temperature and gate of the other half of the documents."""
        t, out = self.texts, torch.empty(self.texts.n, device=DEVICE)
        for half in (0, 1):
            fit = t.half == half
            n = torch.bincount(t.domain[fit], minlength=5).float()
            weight = (1 / (5 * n))[t.domain[fit]]
            lm = t.log_p[fit].exp()
            loss = [min(-(torch.log((1 - g) * lm + g * found[fit, 1 + 3 * i]) * weight).sum().item()
                        for g in (0.03, 0.06, 0.1, 0.15, 0.2)) for i in self.taus]
            tau = self.taus[int(np.argmin(loss))]
            g = fit_gates(t, found, tau, fit)
            p = torch.log((1 - g) * t.log_p.exp() + g * found[:, 1 + 3 * tau] + 1e-12).mean(0)
            out[~fit] = p[~fit]
        return out

    def change(self, log_p, against):
        """In per cent: the mean over domains, and the interval of 2,000 draws of documents."""
        t, per, draws = self.texts, [], 0
        n = int(t.document.max()) + 1
        sums = torch.zeros(n, device=DEVICE, dtype=torch.double).index_add_(0, t.document, (against - log_p).double())
        tokens = torch.bincount(t.document, minlength=n).double()
        domain = torch.zeros(n, dtype=torch.long, device=DEVICE)
        domain[t.document] = t.domain
        g = torch.Generator(device=DEVICE).manual_seed(5)
        for d in domain.unique():
            of = torch.where(domain == d)[0]
            per.append((sums[of].sum() / tokens[of].sum()).item())
            drawn = of[torch.randint(0, len(of), (2000, len(of)), generator=g, device=DEVICE)]
            draws = draws + sums[drawn].sum(1) / tokens[drawn].sum(1)
        ends = (draws / len(per)).quantile(torch.tensor([0.025, 0.975], device=DEVICE, dtype=torch.double)).tolist()
        return [100 * (math.exp(x) - 1) for x in [sum(per) / len(per)] + ends]

    def add(self, name, found, reference):
        self.log_p[name] = p = self.mixed(found)
        text = "{:+.2f} % ({:+.2f} .. {:+.2f})".format(*self.change(p, self.texts.log_p))
        if reference in self.log_p and reference != name:
            change = self.change(p, self.log_p[reference])
            text += ", against {} {:+.2f} ({:+.2f} .. {:+.2f})".format(reference, *change)
        say(f"{name}: {text}")


# ---- searches ----


def hide_own(store, scores, stored):
    for i in torch.where(stored >= 0)[0].tolist():
        scores[i, store.begin_of[stored[i]]:store.end_of[stored[i]]] = -6e4
    return scores


class Search:
    """Finds the chunks for positions of texts by BM25 (words) or a sketch of it, and by the mean of the last states."""

    def __init__(self, store, keys, words=False, sketch=None, states=STATES, weight=STATE_WEIGHT):
        self.store, self.keys, self.words, self.sketch = store, keys, words, sketch
        self.states, self.weight = states, weight

    @torch.no_grad()
    def __call__(self, texts, at, stored, k, batch=64):
        chunks, scores = [], []
        for a in range(0, len(at), batch):
            p = at[a:a + batch]
            s = 0
            if self.words:
                s = self.store.bm25(texts.words(p))
            if self.sketch:
                s = self.sketch.query(texts.words(p)).to(self.sketch.landmark.dtype) @ self.sketch.landmark.T
            if self.weight:
                q = self.keys.unit(texts.mean_state(p, self.states)).to(self.keys.landmark.dtype)
                s = s + self.weight * (q @ self.keys.landmark.T).float()
            best = hide_own(self.store, s.float(), stored[a:a + batch]).topk(min(k, self.store.n), 1)
            chunks.append(best.indices)
            scores.append(best.values)
        return torch.cat(chunks), torch.cat(scores)


class Sketch:
    """Vectors of tokens and of pairs, whose products are BM25 and noise: random signs, and a coordinate of its own for
    each of the most frequent tokens, as many as make the noise least."""

    def __init__(self, store, n, pair=0.125):
        self.store, self.pair = store, pair
        g = torch.Generator(device=DEVICE).manual_seed(1)
        signs = [torch.randint(0, 2, (VOCAB, n), generator=g, device=DEVICE).float() * 2 - 1 for _ in range(3)]
        tokens, first, second = signs
        own = self._own(n)
        self.rest = n - len(own)
        tokens[:, :len(own)], first[:, :len(own)], second[:, :len(own)] = 0, 0, 0
        tokens[own] = 0
        tokens /= math.sqrt(self.rest)
        tokens[own, torch.arange(len(own), device=DEVICE)] = 1
        self.token = torch.cat([tokens * store.idf[:VOCAB, None].sqrt(), torch.zeros(1, n, device=DEVICE)]).to(HALF)
        self.first, self.second = first.to(HALF), second.to(HALF)
        step = max(1024, 4096 * 1024 // n)
        rows = [self._sum(store.token[z], store.token_s[z], store.pair[z], store.pair_s[z])
                for z in (slice(a, a + step) for a in range(0, store.n, step))]
        self.landmark = torch.cat(rows).to(torch.float16 if DEVICE.type == "cuda" else torch.float32)

    def _own(self, n):
        """The tokens that have a coordinate of their own, so that the noise in the other coordinates is least."""
        s = self.store
        p = torch.bincount(s.token.flatten(), minlength=VOCAB + 1)[:VOCAB].double() / s.n
        energy, order = (p * s.idf[:VOCAB].double()).sort(descending=True)
        of_query = ((1 - (1 - p) ** 2) * s.idf[:VOCAB].double())[order]
        pairs = s.pair_df.double() / s.n
        query_pairs = self.pair * ((1 - (1 - pairs) ** 2) * s.pair_idf[:-1].double()).sum()
        chunk_pairs = self.pair * (pairs * s.pair_idf[:-1].double()).sum()
        none = torch.zeros(1, dtype=torch.double, device=DEVICE)
        query = of_query.sum() - torch.cat([none, of_query.cumsum(0)]) + query_pairs
        chunk = energy.sum() - torch.cat([none, energy.cumsum(0)]) + chunk_pairs
        i = torch.arange(0, n - n // 8, device=DEVICE)
        return order[:int((query[i] * chunk[i] / (n - i)).sqrt().argmin())]

    def _sum(self, token, token_weight, pair, pair_weight):
        x = torch.bmm(token_weight.to(HALF)[:, None], F.embedding(token.long(), self.token))[:, 0].float()
        key = self.store.pair_key[pair.long().clamp(max=self.store.pairs - 1)]
        w = pair_weight.to(HALF) * (self.store.pair_idf[pair.long()].sqrt() * math.sqrt(self.pair / self.rest)).to(HALF)
        vectors = F.embedding(key // VOCAB, self.first) * F.embedding(key % VOCAB, self.second)
        return x + torch.bmm(w[:, None], vectors)[:, 0].float()

    def query(self, words):
        token, _ = distinct(words.to(torch.int32), VOCAB)
        pair, _ = distinct((words[:, :-1] * VOCAB + words[:, 1:]).to(torch.int32), -1)
        pair = torch.where(pair >= 0, self.store.find_pairs(pair // VOCAB, pair % VOCAB), self.store.pairs)
        return self._sum(token, (token < VOCAB).float(), pair, (pair < self.store.pairs).float())
