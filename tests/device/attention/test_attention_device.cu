/* test_attention_device.cu -- grouped cross-attention, sliding-window attention and chunk attention on a GPU against
 * double loops: forward, kept sums, gradients; bf16 and float32; the kernels on tensor cores and the reference kernels.
 *
 * All three have the same oracle: a query row reads groups of keys, with a softmax for each. In double it is the truth
 * (its forward is checked against tests/ref, its gradients against finite differences). In float, rounded to bf16 where
 * a program that works operation by operation would store bf16, it shows the expected error. Tolerance as in twins.h:
 * |twin - truth| <= 2 * worst |naive - truth| + 1e-6 (more where the naive loops cancel to the last bit, see
 * cancelled()). Outputs are NaN before a call, in wider matrices whose other elements must not change; rows of slots
 * that are not live hold NaN. Backward runs twice and must give the same bits. */
#include "tests/device/attention/attention_guarded.cuh"
extern "C" {
#include "tests/ref/ref.h"
}
#include <functional>

struct group {
    std::vector<int64_t> keys;
    std::vector<double> bias;
    double weight;
    int64_t entry; /* of dweight and, with the row, of lse */
    bool null_key;
};
struct problem {
    int64_t n, key_rows, entries;
    int heads, dim;
    std::function<std::vector<group>(int64_t row, int head)> groups;
};
template <typename R> struct answers { std::vector<R> o, part, lse, dq, dk, dv, dweight; };

template <typename R, bool ROUND> static R stored(R x) {
    return ROUND ? (R)as_bf16((float)x) : x;
}

/* R double: truth. R float: naive; ROUND: with bf16 stored after each operation. */
template <typename R, bool ROUND>
static answers<R> solve(const problem &p, const std::vector<float> &q, const std::vector<float> &k,
                        const std::vector<float> &v, const std::vector<float> &dout, int64_t per_place) {
    int64_t d = (int64_t)p.heads * p.dim;
    R scale = (R)(1.0 / sqrt((double)p.dim));
    answers<R> a;
    a.o.assign(p.n * d, 0);
    a.part.assign(per_place * p.n * d, 0);
    a.lse.assign(per_place * p.n * p.heads, -INFINITY);
    a.dq.assign(p.n * d, 0);
    a.dk.assign(p.key_rows * d, 0);
    a.dv.assign(p.key_rows * d, 0);
    a.dweight.assign(p.entries, 0);
    for (int64_t r = 0; r < p.n; r++)
        for (int h = 0; h < p.heads; h++) {
            std::vector<R> out(p.dim, 0), dq(p.dim, 0);
            const float *x = &q[r * d + h * p.dim], *g = &dout[r * d + h * p.dim];
            for (const group &s : p.groups(r, h)) {
                size_t count = s.keys.size();
                std::vector<R> score(count), dp(count);
                std::vector<R> o(p.dim, 0);
                R top = s.null_key ? 0 : -INFINITY, sum, delta = 0;
                for (size_t j = 0; j < count; j++) {
                    R dot = 0;
                    for (int t = 0; t < p.dim; t++)
                        dot += (R)x[t] * (R)k[s.keys[j] * d + h * p.dim + t];
                    score[j] = stored<R, ROUND>(dot * scale + (R)s.bias[j]);
                    top = score[j] > top ? score[j] : top;
                }
                sum = s.null_key ? (R)exp(-top) : 0;
                for (size_t j = 0; j < count; j++)
                    sum += (R)exp(score[j] - top);
                /* Backward reads the kept lse, whose rounding is part of the contract, and computes the scores again,
                 * in another order of summation, like another kernel. */
                std::vector<R> again(count);
                R lse = top + (R)log(sum);
                for (size_t j = 0; j < count; j++) {
                    R dot = 0;
                    for (int t = p.dim - 1; t >= 0; t--)
                        dot += (R)x[t] * (R)k[s.keys[j] * d + h * p.dim + t];
                    again[j] = stored<R, ROUND>((R)exp(stored<R, ROUND>(dot * scale + (R)s.bias[j]) - lse));
                }
                for (size_t j = 0; j < count; j++) {
                    score[j] = stored<R, ROUND>((R)exp(score[j] - top) / sum);
                    R dot = 0;
                    for (int t = 0; t < p.dim; t++) {
                        R value = (R)v[s.keys[j] * d + h * p.dim + t];
                        o[t] += score[j] * value;
                        dot += (R)g[t] * value;
                    }
                    dp[j] = stored<R, ROUND>(dot);
                }
                int64_t k_of = s.entry < 0 ? 0 : s.entry % per_place;
                a.lse[(k_of * p.n + r) * p.heads + h] = lse;
                for (int t = 0; t < p.dim; t++) {
                    o[t] = stored<R, ROUND>(o[t]);
                    a.part[(k_of * p.n + r) * d + h * p.dim + t] = o[t];
                    out[t] += (R)s.weight * o[t];
                }
                for (size_t j = 0; j < count; j++)
                    delta += again[j] * dp[j];
                if (s.entry >= 0) a.dweight[s.entry] += delta;
                for (size_t j = 0; j < count; j++) {
                    R ds = stored<R, ROUND>(again[j] * (dp[j] - delta) * (R)s.weight);
                    for (int t = 0; t < p.dim; t++) {
                        int64_t at = s.keys[j] * d + h * p.dim + t;
                        dq[t] += ds * scale * (R)k[at];
                        a.dk[at] += ds * scale * (R)x[t];
                        a.dv[at] += (R)s.weight * again[j] * (R)g[t];
                    }
                }
            }
            for (int t = 0; t < p.dim; t++) {
                a.o[r * d + h * p.dim + t] = stored<R, ROUND>(out[t]);
                a.dq[r * d + h * p.dim + t] = stored<R, ROUND>(dq[t]);
            }
        }
    return a;
}

static std::vector<float> random_vector(int64_t n, float scale) {
    std::vector<float> v(n);
    for (float &x : v)
        x = as_bf16(scale * random_normal());
    return v;
}

struct slot_keys { int k, slot_rows, live; bool null_key; }; /* a query's k slots; the first `live` rows are keys */
static problem chunk_problem(int64_t n, int64_t key_rows, int heads, int dim, const std::vector<int64_t> &row_begin,
                             const std::vector<int32_t> &slot, const std::vector<float> &weight, const slot_keys &of) {
    const int k = of.k;
    problem p = {n, key_rows, (int64_t)slot.size(), heads, dim, {}};
    p.groups = [=](int64_t row, int) {
        std::vector<group> all;
        for (size_t b = 0; b + 1 < row_begin.size(); b++)
            for (int i = 0; i < k && row >= row_begin[b] && row < row_begin[b + 1]; i++) {
                int32_t s = slot[b * k + i];
                if (s < 0) continue;
                group g = {{}, std::vector<double>(of.live, 0.0), weight[b * k + i], (int64_t)b * k + i, of.null_key};
                for (int j = 0; j < of.live; j++)
                    g.keys.push_back((int64_t)s * of.slot_rows + j);
                all.push_back(g);
            }
        return all;
    };
    return p;
}

struct gca_shape {
    const char *name;
    enum dtype type, gradients;
    int64_t first;
    std::vector<int> lengths;
    int64_t rest; /* rows after the last block */
    int k, heads, dim, live, slot_rows;
    bool null_key;
    float scale;
};
enum { SLOTS = 7 };

static void check_oracle(const problem &p, const answers<double> &a, const std::vector<float> &q,
                         const std::vector<float> &k, const std::vector<float> &v, const std::vector<float> &dout,
                         int64_t per_place) {
    /* Finite differences of sum(o * dout), a few elements of each input. The step is exact in float. */
    const float step = 1.0f / 256;
    const std::vector<float> *inputs[3] = {&q, &k, &v};
    const std::vector<double> *gradients[3] = {&a.dq, &a.dk, &a.dv};
    for (int which = 0; which < 3; which++)
        for (int sample = 0; sample < 6; sample++) {
            size_t at = (size_t)(random_uniform() * (double)inputs[which]->size());
            double value[2];
            if (!isfinite((*inputs[which])[at])) continue;
            for (int side = 0; side < 2; side++) {
                std::vector<float> moved[3] = {q, k, v};
                moved[which][at] += side ? step : -step;
                std::vector<double> o = solve<double, false>(p, moved[0], moved[1], moved[2], dout, per_place).o;
                value[side] = 0.0;
                for (size_t i = 0; i < o.size(); i++)
                    value[side] += o[i] * dout[i];
            }
            double numeric = (value[1] - value[0]) / (2.0 * step), analytic = (*gradients[which])[at];
            checks++;
            if (!(fabs(numeric - analytic) <= 2e-3 * (fabs(analytic) + 1.0)))
                printf("FAILED %s: the oracle's gradient %d is %g, differences say %g\n", place_name, which, analytic,
                       numeric),
                    failures++;
        }
}

static void test_gca(const gca_shape &s) {
    place_name = s.name;
    std::vector<int64_t> row_begin = {s.first};
    for (int length : s.lengths)
        row_begin.push_back(row_begin.back() + length);
    int blocks = (int)s.lengths.size();
    int64_t n = row_begin.back() + s.rest, d = (int64_t)s.heads * s.dim, key_rows = (int64_t)SLOTS * s.slot_rows;
    std::vector<int32_t> slot(blocks * s.k);
    std::vector<float> weight(blocks * s.k);
    for (int i = 0; i < blocks * s.k; i++) {
        slot[i] = i % 5 == 4 || (blocks > 2 && i / s.k == 1) ? -1 : (int32_t)(random_uniform() * (double)SLOTS);
        weight[i] = slot[i] < 0 || i % 7 == 2 ? 0.0f : (float)random_uniform();
    }
    std::vector<float> q = random_vector(n * d, s.scale), k = random_vector(key_rows * d, s.scale),
                       v = random_vector(key_rows * d, 1.0f), dout = random_vector(n * d, 1.0f);
    for (int64_t r = 0; r < key_rows; r++) /* rows that are not live */
        for (int64_t c = 0; c < d && r % s.slot_rows >= s.live; c++)
            k[r * d + c] = v[r * d + c] = NAN;
    const slot_keys keys = {s.k, s.slot_rows, s.live, s.null_key};
    problem p = chunk_problem(n, key_rows, s.heads, s.dim, row_begin, slot, weight, keys);
    answers<double> truth = solve<double, false>(p, q, k, v, dout, s.k);
    answers<float> naive =
        s.type == DTYPE_F32 ? solve<float, false>(p, q, k, v, dout, s.k) : solve<float, true>(p, q, k, v, dout, s.k);
    if (n * d * s.k < 20000) check_oracle(p, truth, q, k, v, dout, s.k);
    {
        std::vector<double> o(n * d), part(s.k * n * d), lse(s.k * n * s.heads);
        struct ref_gca ref = {n,          s.heads,          s.dim,       s.slot_rows,  s.live, blocks, s.k,
                              s.null_key, row_begin.data(), slot.data(), weight.data()};
        ref_gca(o.data(), part.data(), lse.data(), q.data(), k.data(), v.data(), ref);
        double apart = 0.0;
        for (int64_t i = 0; i < n * d; i++)
            apart = fmax(apart, fabs(o[i] - truth.o[i]));
        checks++;
        if (!(apart < 1e-9)) printf("FAILED %s: the oracle is %g from tests/ref\n", place_name, apart), failures++;
    }
    std::vector<std::vector<int>> readers(SLOTS);
    std::vector<int32_t> begin = {0}, entry;
    for (int i = 0; i < blocks * s.k; i++)
        if (slot[i] >= 0) readers[slot[i]].push_back(i);
    for (auto &list : readers) {
        entry.insert(entry.end(), list.begin(), list.end());
        begin.push_back((int32_t)entry.size());
    }
    struct gca_inverse inverse = {upload(begin), upload(entry), SLOTS};
    struct gca_blocks of = {upload(row_begin), upload(slot), upload(weight), blocks, s.k}, by_lse = of;
    by_lse.weight = NULL;
    guarded gq = guarded_make(s.type, n, d, &q), gk = guarded_make(s.type, key_rows, d, &k),
            gv = guarded_make(s.type, key_rows, d, &v), gdout = guarded_make(s.type, n, d, &dout),
            o = guarded_make(s.type, n, d, NULL), kept = guarded_make(s.type, n, d, NULL),
            lse = guarded_make(DTYPE_F32, s.k * s.heads, n, NULL), part = guarded_make(s.type, s.k * n, d, NULL),
            part_lse = guarded_make(DTYPE_F32, s.k * n, s.heads, NULL), combined = guarded_make(s.type, n, d, NULL),
            cca = guarded_make(s.type, n, d, NULL), in_place = guarded_make(s.type, n, d, &q);
    struct gca_pool pool = {gk.m, gv.m, s.slot_rows, s.live, s.null_key};
    gca_cuda.forward(NULL, o.m, gq.m, pool, of, s.heads);
    gca_cuda.forward(NULL, in_place.m, in_place.m, pool, of, s.heads);
    gca_cuda.forward_keep(NULL, kept.m, lse.m, gq.m, pool, of, s.heads);
    gca_cuda.partial(NULL, part.m, part_lse.m, gq.m, pool, of, s.heads);
    gca_cuda.combine(NULL, combined.m, part.m, part_lse.m, of, s.heads);
    gca_cuda.combine(NULL, cca.m, part.m, part_lse.m, by_lse, s.heads);
    compare("forward", guarded_read(o), naive.o, truth.o);
    compare("forward in place", guarded_read(in_place), naive.o, truth.o);
    compare("forward_keep", guarded_read(kept), naive.o, truth.o);
    std::vector<float> planes = guarded_read(lse), by_row(planes.size()); /* row head*K + k -> row k*n + r */
    for (int64_t i = 0; i < (int64_t)planes.size(); i++)
        by_row[(i / n % s.k * n + i % n) * s.heads + i / n / s.k] = planes[i];
    compare("lse", by_row, naive.lse, truth.lse);
    compare("partial", guarded_read(part), naive.part, truth.part);
    compare("partial's lse", guarded_read(part_lse), naive.lse, truth.lse);
    compare("combine", guarded_read(combined), naive.o, truth.o);
    {
        std::vector<double> by(n * d, 0.0);
        std::vector<float> by_naive(n * d, 0.0f);
        for (int64_t r = 0; r < n; r++)
            for (int64_t c = 0; c < d; c++) {
                double top = -INFINITY, sum = 0.0, x = 0.0;
                float y = 0.0f, sum_naive = 0.0f;
                for (int i = 0; i < s.k; i++)
                    top = fmax(top, truth.lse[(i * n + r) * s.heads + c / s.dim]);
                for (int i = 0; i < s.k && isfinite(top); i++) {
                    double f = exp(truth.lse[(i * n + r) * s.heads + c / s.dim] - top);
                    float g = expf(naive.lse[(i * n + r) * s.heads + c / s.dim] - (float)top);
                    sum += f, x += f * truth.part[(i * n + r) * d + c];
                    sum_naive += g, y += g * naive.part[(i * n + r) * d + c];
                }
                by[r * d + c] = sum > 0.0 ? x / sum : 0.0;
                by_naive[r * d + c] = sum_naive > 0.0f ? y / sum_naive : 0.0f;
                if (s.type == DTYPE_BF16) by_naive[r * d + c] = as_bf16(by_naive[r * d + c]);
            }
        compare("combine by lse", guarded_read(cca), by_naive, by);
    }

    std::vector<float> old = random_vector(key_rows * d, 1.0f), first[4];
    for (int64_t r = 0; r < key_rows; r++)
        for (int64_t c = 0; c < d; c++) {
            int64_t i = r * d + c;
            if (r % s.slot_rows >= s.live) truth.dk[i] = truth.dv[i] = naive.dk[i] = naive.dv[i] = 0;
            truth.dk[i] += old[i], truth.dv[i] += old[i], naive.dk[i] += old[i], naive.dv[i] += old[i];
            if (s.gradients == DTYPE_BF16) naive.dk[i] = as_bf16(naive.dk[i]), naive.dv[i] = as_bf16(naive.dv[i]);
        }
    for (int repeat = 0; repeat < 2; repeat++) {
        guarded dq = guarded_make(s.type, n, d, NULL), dk = guarded_make(s.gradients, key_rows, d, &old),
                dv = guarded_make(s.gradients, key_rows, d, &old), dw = guarded_make(DTYPE_F32, 1, blocks * s.k, NULL);
        struct gca_gradients to = {dq.m, dk.m, dv.m, (float *)dw.m.data};
        gca_cuda.backward(NULL, &to, gdout.m, gq.m, pool, of, inverse, lse.m);
        std::vector<float> now[4] = {guarded_read(dq), guarded_read(dk), guarded_read(dv), guarded_read(dw)};
        const char *names[4] = {"dq", "dkeys", "dvalues", "dweight"};
        if (repeat == 0) {
            compare(names[0], now[0], naive.dq, truth.dq);
            compare(names[1], now[1], naive.dk, truth.dk);
            compare(names[2], now[2], naive.dv, truth.dv);
            compare(names[3], now[3], naive.dweight, truth.dweight);
        }
        for (int i = 0; i < 4; i++) {
            if (repeat) same_bits(names[i], now[i], first[i]);
            first[i] = now[i];
        }
        guarded_drop(dq), guarded_drop(dk), guarded_drop(dv), guarded_drop(dw);
    }
    for (guarded *g : {&gq, &gk, &gv, &gdout, &o, &kept, &lse, &part, &part_lse, &combined, &cca, &in_place})
        guarded_drop(*g);
}

struct window_shape {
    const char *name;
    enum dtype type;
    int64_t sequences, length, first, ring; /* ring 0: forward_sequences and backward */
    int heads, dim, window;
    float scale;
};

static problem window_problem(const window_shape &s) {
    int64_t n = s.sequences * s.length, ring = s.ring ? s.ring : s.length;
    problem p = {n, s.ring ? s.ring : n, 0, s.heads, s.dim, {}};
    p.groups = [=](int64_t row, int head) {
        int64_t position = s.first + row % s.length, low = position > s.window ? position - s.window : 0;
        group g = {{}, {}, 1.0, -1, false};
        for (int64_t j = low; j <= position; j++) {
            g.keys.push_back((s.ring ? 0 : row / s.length * s.length) + j % ring);
            g.bias.push_back(-exp2(-8.0 * (head + 1) / s.heads) * (double)(position - j));
        }
        return std::vector<group>{g};
    };
    return p;
}

/* A row that reads one key: its softmax is 1 for any score, so dS = P (dP - delta) is 0. The naive loops get exactly 0,
 * because both terms are the same sum in one order. A kernel computes them in two orders (v . dout by tensor cores, o .
 * dout by a few lanes): two sums of `dim` products, each within dim * 2^-24 of the sum of their sizes. The remaining
 * difference is multiplied by k (dq) or q (dk). */
static double cancelled(const window_shape &s, const std::vector<float> &q, const std::vector<float> &k,
                        const std::vector<float> &v, const std::vector<float> &dout) {
    double sizes = 0.0, factor = 0.0;
    for (size_t at = 0; at < q.size(); at += (size_t)s.dim) {
        double size = 0.0;
        for (int t = 0; t < s.dim; t++) {
            size += fabs((double)v[at + t] * dout[at + t]);
            factor = fmax(factor, fmax(fabs(q[at + t]), fabs(k[at + t])));
        }
        sizes = fmax(sizes, size);
    }
    return 2.0 * s.dim * ldexp(1.0, -24) * sizes * factor / sqrt((double)s.dim);
}

static void test_window(const window_shape &s) {
    place_name = s.name;
    int64_t n = s.sequences * s.length, d = (int64_t)s.heads * s.dim, key_rows = s.ring ? s.ring : n;
    std::vector<float> q = random_vector(n * d, s.scale), k = random_vector(key_rows * d, s.scale),
                       v = random_vector(key_rows * d, 1.0f), dout = random_vector(n * d, 1.0f);
    problem p = window_problem(s);
    answers<double> truth = solve<double, false>(p, q, k, v, dout, 1);
    answers<float> naive =
        s.type == DTYPE_F32 ? solve<float, false>(p, q, k, v, dout, 1) : solve<float, true>(p, q, k, v, dout, 1);
    guarded gq = guarded_make(s.type, n, d, &q), gk = guarded_make(s.type, key_rows, d, &k),
            gv = guarded_make(s.type, key_rows, d, &v), gdout = guarded_make(s.type, n, d, &dout),
            o = guarded_make(s.type, n, d, NULL), lse = guarded_make(DTYPE_F32, n, s.heads, NULL);
    if (s.ring) {
        attention_cuda.forward(NULL, o.m, gq.m, gk.m, gv.m, s.first, s.heads, s.window);
        compare("forward", guarded_read(o), naive.o, truth.o);
        attention_cuda.forward(NULL, gq.m, gq.m, gk.m, gv.m, s.first, s.heads, s.window);
        compare("forward in place", guarded_read(gq), naive.o, truth.o);
    } else {
        struct attention_sequences in = {gq.m, gk.m, gv.m, s.length, s.heads, s.window};
        attention_cuda.forward_sequences(NULL, o.m, lse.m, &in);
        compare("forward_sequences", guarded_read(o), naive.o, truth.o);
        compare("lse", guarded_read(lse), naive.lse, truth.lse);
        if (n * d < 20000) check_oracle(p, truth, q, k, v, dout, 1);
        for (size_t i = 0; s.type == DTYPE_BF16 && i < naive.dk.size(); i++)
            naive.dk[i] = as_bf16(naive.dk[i]), naive.dv[i] = as_bf16(naive.dv[i]);
        std::vector<float> first[3];
        for (int repeat = 0; repeat < 2; repeat++) {
            guarded dq = guarded_make(s.type, n, d, NULL), dk = guarded_make(s.type, n, d, NULL),
                    dv = guarded_make(s.type, n, d, NULL);
            attention_cuda.backward_sequences(NULL, dq.m, dk.m, dv.m, gdout.m, o.m, lse.m, &in);
            std::vector<float> now[3] = {guarded_read(dq), guarded_read(dk), guarded_read(dv)};
            if (repeat == 0) {
                double least = s.window == 0 ? cancelled(s, q, k, v, dout) : 1e-6;
                compare("dq", now[0], naive.dq, truth.dq, least);
                compare("dk", now[1], naive.dk, truth.dk, least);
                compare("dv", now[2], naive.dv, truth.dv);
            }
            for (int i = 0; i < 3; i++) {
                if (repeat) same_bits("gradients", now[i], first[i]);
                first[i] = now[i];
            }
            guarded_drop(dq), guarded_drop(dk), guarded_drop(dv);
        }
    }
    for (guarded *g : {&gq, &gk, &gv, &gdout, &o, &lse}) guarded_drop(*g);
}

/* The last chunk alone has the bits that it has among others, and so has a result that overwrites q. */
static void test_chunk_alone(const std::vector<float> &all, guarded q, struct mat k, struct mat v, int heads,
                             int positions) {
    const int64_t first = q.m.rows - positions;
    guarded o = guarded_make(q.m.type, positions, q.m.cols, NULL);
    const auto last = [&](struct mat m) {
        m.data = (char *)m.data + first * m.stride * (m.type == DTYPE_F32 ? 4 : 2), m.rows = positions;
        return m;
    };
    chunk_attention_cuda.forward(NULL, o.m, last(q.m), last(k), last(v), heads, positions);
    same_bits("alone", guarded_read(o), std::vector<float>(all.begin() + first * q.m.cols, all.end()));
    chunk_attention_cuda.forward(NULL, q.m, q.m, k, v, heads, positions);
    same_bits("over q", guarded_read(q), all);
    guarded_drop(o);
}

static void test_chunks(const char *name, enum dtype type, int chunks, int positions, int heads, int dim) {
    place_name = name;
    int64_t n = (int64_t)chunks * positions, d = (int64_t)heads * dim;
    std::vector<float> q = random_vector(n * d, 1.0f), k = random_vector(n * d, 1.0f), v = random_vector(n * d, 1.0f),
                       dout = random_vector(n * d, 1.0f);
    std::vector<int64_t> row_begin;
    std::vector<int32_t> slot;
    for (int c = 0; c <= chunks; c++)
        row_begin.push_back((int64_t)c * positions);
    for (int c = 0; c < chunks; c++)
        slot.push_back(c);
    const slot_keys keys = {1, positions, positions, false};
    problem p = chunk_problem(n, n, heads, dim, row_begin, slot, std::vector<float>(chunks, 1.0f), keys);
    answers<double> truth = solve<double, false>(p, q, k, v, dout, 1);
    answers<float> naive =
        type == DTYPE_F32 ? solve<float, false>(p, q, k, v, dout, 1) : solve<float, true>(p, q, k, v, dout, 1);
    for (size_t i = 0; type == DTYPE_BF16 && i < naive.dk.size(); i++)
        naive.dk[i] = as_bf16(naive.dk[i]), naive.dv[i] = as_bf16(naive.dv[i]);
    guarded gq = guarded_make(type, n, d, &q), gk = guarded_make(type, n, d, &k), gv = guarded_make(type, n, d, &v),
            gdout = guarded_make(type, n, d, &dout), o = guarded_make(type, n, d, NULL),
            kept = guarded_make(type, n, d, NULL), lse = guarded_make(DTYPE_F32, n, heads, NULL),
            dq = guarded_make(type, n, d, NULL), dk = guarded_make(type, n, d, NULL),
            dv = guarded_make(type, n, d, NULL);
    chunk_attention_cuda.forward_keep(NULL, kept.m, lse.m, gq.m, gk.m, gv.m, heads, positions);
    struct chunk_attention_kept operands = {kept.m, lse.m, gq.m, gk.m, gv.m, heads, positions};
    chunk_attention_cuda.backward(NULL, dq.m, dk.m, dv.m, gdout.m, &operands);
    chunk_attention_cuda.forward(NULL, o.m, gq.m, gk.m, gv.m, heads, positions);
    compare("forward", guarded_read(o), naive.o, truth.o);
    test_chunk_alone(guarded_read(o), gq, gk.m, gv.m, heads, positions);
    compare("forward_keep", guarded_read(kept), naive.o, truth.o);
    compare("lse", guarded_read(lse), naive.lse, truth.lse);
    compare("dq", guarded_read(dq), naive.dq, truth.dq);
    compare("dk", guarded_read(dk), naive.dk, truth.dk);
    compare("dv", guarded_read(dv), naive.dv, truth.dv);
    for (guarded *g : {&gq, &gk, &gv, &gdout, &o, &kept, &lse, &dq, &dk, &dv}) guarded_drop(*g);
}

static void test_all() {
    const enum dtype B = DTYPE_BF16, F = DTYPE_F32;
    const gca_shape gca[] = {
        {"gca: one row", B, B, 0, {1}, 0, 1, 1, 64, 63, 64, true, 1},
        {"gca: decode", B, F, 0, {2}, 0, 8, 3, 64, 63, 64, true, 1},
        {"gca: few rows", B, F, 2, {9}, 3, 9, 2, 64, 63, 64, true, 1},
        {"gca: few rows, head of 128", B, F, 0, {37}, 1, 5, 2, 128, 50, 64, false, 1},
        {"gca: few rows, short slots", B, F, 0, {16}, 0, 20, 2, 64, 20, 20, true, 3},
        {"gca: a row of each of many blocks", B, F, 1, {1, 0, 1, 2, 1}, 1, 8, 2, 64, 63, 64, true, 1},
        {"gca: one tile", B, F, 0, {64}, 0, 3, 1, 64, 64, 64, false, 1},
        {"gca: product shape", B, F, 5, {64, 64, 20, 64}, 2, 8, 2, 64, 63, 64, true, 1},
        {"gca: product shape, bf16 gradients", B, B, 0, {64, 64, 64, 7}, 0, 8, 3, 64, 63, 64, true, 1},
        {"gca: 64 keys and the null key", B, F, 0, {64, 65}, 1, 3, 2, 64, 64, 64, true, 1},
        {"gca: long and empty blocks", B, F, 0, {3, 0, 17, 200}, 0, 3, 2, 64, 64, 64, false, 1},
        {"gca: few live rows", B, F, 1, {40, 9}, 7, 1, 1, 64, 5, 9, false, 1},
        {"gca: large scores", B, F, 0, {64, 2}, 0, 4, 2, 64, 63, 64, true, 6},
        {"gca: many entries", B, F, 0, {64}, 0, 61, 1, 64, 63, 64, true, 1},
        {"gca: head of 128", B, F, 3, {64, 64, 30}, 0, 5, 2, 128, 63, 64, true, 1},
        {"gca: head of 32", B, F, 0, {64, 9}, 0, 2, 2, 32, 63, 64, true, 1},
        {"gca: long slots", B, F, 0, {30}, 0, 2, 2, 64, 150, 150, true, 1},
        {"gca: float32", F, F, 5, {64, 64, 20}, 2, 8, 2, 64, 63, 64, true, 1},
        {"gca: float32, head of 18", F, F, 0, {3, 0, 17, 100}, 0, 3, 2, 18, 64, 64, false, 1},
        {"gca: float32, head of 160", F, F, 0, {20}, 0, 2, 2, 160, 33, 40, false, 1},
        {"gca: float32, large scores", F, F, 0, {64, 2}, 0, 4, 2, 64, 63, 64, true, 15},
        {"gca: no blocks", B, F, 4, {}, 40, 2, 1, 64, 3, 3, false, 1},
    };
    for (const gca_shape &s : gca)
        test_gca(s);
    device_scratch_limit = 1 << 14; /* the scratch suffices for one head at a time, or three of four */
    test_gca({"gca: some heads at a time", B, F, 5, {64, 64, 20, 64}, 2, 8, 5, 64, 63, 64, true, 1});
    test_gca({"gca: some heads at a time, bf16 gradients", B, B, 0, {64, 7}, 0, 8, 4, 64, 63, 64, true, 1});
    test_gca({"gca: some heads at a time, float32", F, F, 5, {64, 64, 20}, 2, 8, 3, 20, 63, 64, true, 1});
    device_scratch_limit = 1 << 30;
    test_gca({"gca: more heads and entries than shared memory", F, F, 0, {2}, 0, 40, 400, 2, 4, 4, true, 1});
    const window_shape windows[] = {
        {"window: product shape", B, 1, 700, 0, 0, 2, 64, 512, 1},
        {"window: short sequences", B, 3, 100, 0, 0, 3, 64, 70, 1},
        {"window: whole tiles", B, 2, 256, 0, 0, 1, 64, 64, 1},
        {"window: itself only", B, 1, 130, 0, 0, 1, 64, 0, 1},
        {"window: large scores", B, 1, 200, 0, 0, 2, 64, 100, 5},
        {"window: head of 128", B, 2, 150, 0, 0, 2, 128, 90, 1},
        {"window: head of 32", B, 1, 90, 0, 0, 2, 32, 40, 1},
        {"window: float32", F, 2, 100, 0, 0, 3, 64, 70, 1},
        {"window: float32, head of 20", F, 1, 90, 0, 0, 3, 20, 31, 1},
        {"window: float32, head of 144", F, 1, 40, 0, 0, 1, 144, 31, 1},
        {"ring: decode", B, 1, 1, 700, 600, 3, 64, 512, 1},
        {"ring: decode, head of 128", B, 1, 1, 300, 400, 2, 128, 290, 1},
        {"ring: first row", B, 1, 1, 0, 64, 2, 64, 50, 1},
        {"ring: itself only", B, 1, 3, 70, 64, 2, 64, 0, 1},
        {"ring: long window", B, 1, 1, 1500, 1600, 1, 64, 1400, 1},
        {"ring: some rows over its end", B, 1, 23, 590, 600, 2, 64, 512, 1},
        {"ring: few rows, head of 128", B, 1, 50, 187, 240, 2, 128, 100, 1},
        {"ring: few rows over its end", B, 1, 5, 187, 190, 2, 64, 100, 1},
        {"ring: rows over its end", B, 1, 40, 170, 190, 2, 64, 100, 1},
        {"ring: tiles over its end", B, 1, 100, 128, 320, 2, 64, 130, 1},
        {"ring: over its end, from anywhere", B, 1, 200, 150, 320, 2, 64, 100, 1},
        {"ring: past its end, from anywhere", B, 1, 150, 490, 320, 2, 64, 100, 1},
        {"ring: over its second end", B, 1, 160, 490, 320, 2, 64, 100, 1},
        {"ring: the window over its end", B, 1, 170, 330, 320, 2, 64, 100, 1},
        {"ring: a row too many, head of 128", B, 1, 129, 383, 256, 1, 128, 64, 1},
        {"ring: first rows", B, 1, 200, 0, 320, 2, 64, 100, 1},
        {"ring: middle rows", B, 1, 77, 30, 320, 2, 64, 100, 1},
        {"ring: float32", F, 1, 40, 170, 190, 2, 64, 100, 1},
    };
    for (const window_shape &s : windows)
        test_window(s);
    test_chunks("chunks: product shape", B, 9, 64, 3, 64);
    test_chunks("chunks: short", B, 9, 20, 2, 64);
    test_chunks("chunks: head of 128", B, 3, 64, 2, 128);
    test_chunks("chunks: long", B, 2, 100, 2, 64);
    test_chunks("chunks: one more than a tile", B, 4, 65, 3, 64);
    test_chunks("chunks: nine tiles, the last of one row", B, 2, 513, 2, 64);
    test_chunks("chunks: long, head of 128", B, 3, 130, 2, 128);
    test_chunks("chunks: head of 32", B, 9, 64, 3, 32);
    test_chunks("chunks: head of 32, one row", B, 5, 1, 2, 32);
    test_chunks("chunks: head of 32, short", B, 9, 20, 12, 32);
    test_chunks("chunks: head of 32, long", B, 3, 200, 2, 32);
    test_chunks("chunks: float32", F, 3, 64, 2, 64);
    test_chunks("chunks: float32, head of 18", F, 3, 20, 2, 18);
    for (enum dtype gradient : {B, F}) /* more entries read one slot than a group fetches at once */
        test_gca({"gca: long lists", B, gradient, 0, std::vector<int>(150, 1), 0, 8, 1, 64, 63, 64, true, 1});
    test_gca({"gca: blocks without rows", B, F, 1, {0, 0, 0, 33, 0}, 0, 2, 1, 64, 63, 64, true, 1});
    device_processors_seen = 1; /* a persistent block has many tiles, one after the other */
    for (const gca_shape &s : gca)
        if (s.type == B && s.dim == 64) test_gca(s);
    const gca_shape persistent[] = {
        {"gca: many tiles", B, B, 3, {64, 64, 64, 20, 64, 64, 0, 7, 64, 64, 64, 1}, 5, 8, 4, 64, 63, 64, true, 1},
        {"gca: many tiles of one slot", B, F, 0, std::vector<int>(40, 64), 0, 1, 2, 64, 64, 64, true, 1},
        {"gca: many tiles, no null key", B, B, 0, {64, 64, 30, 200, 64, 0, 130, 64}, 9, 5, 3, 64, 50, 64, false, 1},
    };
    for (const gca_shape &s : persistent)
        test_gca(s);
    device_processors_seen = 0;
    const window_shape amid[] = {
        {"ring: tiles over its end, from amid a tile", B, 1, 100, 250, 256, 2, 64, 130, 1},
        {"ring: often over its end, from a tile's last row", B, 1, 200, 5055, 384, 2, 64, 130, 1},
        {"ring: amid a tile over its end, head of 128", B, 1, 90, 333, 192, 1, 128, 100, 1},
    };
    for (const window_shape &s : amid)
        test_window(s);
}

/* Whole sequences with heads of 64: blocks that have a part of a strip, several, or the end of one and the beginning of
 * another. Other cases have the inputs that they would have without these. */
static void test_whole_windows() {
    const enum dtype B = DTYPE_BF16;
    const window_shape windows[] = {
        {"window: a divided strip", B, 1, 1300, 0, 0, 2, 64, 250, 1},
        {"window: odd numbers of key tiles", B, 2, 1050, 0, 0, 1, 64, 500, 1},
        {"window: longer than the sequences", B, 3, 170, 0, 0, 2, 64, 512, 1},
        {"window: short windows", B, 2, 600, 0, 0, 2, 64, 20, 1},
        {"window: itself only, many rows", B, 2, 600, 0, 0, 1, 64, 0, 1},
    };
    const uint64_t state = random_state;
    for (int processors : {0, 1, 2, 5}) {
        device_processors_seen = processors;
        for (const window_shape &s : windows)
            test_window(s);
    }
    device_processors_seen = 0;
    random_state = state;
}

/* ARCHITECTURE: treats the GPU as one of this architecture, such as 80, for a build with code of that architecture
 * alone, which any later GPU runs. */
int main(int argc, char **argv) {
    if (argc > 1) device_architecture_seen = atoi(argv[1]);
    test_all();
    test_whole_windows();
    printf("attention on this card's kernels: %d checks, %d failed\n", checks, failures);
    device_architecture_seen = 75; /* an unsupported GPU: reference kernels */
    test_all();
    printf("with the reference kernels: %d checks, %d failed\n", checks, failures);
    return failures ? 1 : 0;
}
