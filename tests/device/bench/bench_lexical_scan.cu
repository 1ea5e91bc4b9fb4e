/* bench_lexical_scan.cu -- BM25 sums over lists of postings, timed by events, against one read of the lists at the rate
 * of a device copy in the same run.
 *
 *   bench_lexical_scan [--chunks M,M,...] [--best K,K,...] [--hybrid K,K,...] [--candidates C,C,...] [--json FILE]
 *
 * M: millions of chunks, 1,20; K: how many a query finds, 64,256; --hybrid: the same for searches by words and
 * landmarks, 8,64,256 (0: none); --candidates: how many found chunks a trained order sorts, 224,1024 (0: none)
 *
 * Chunks have 63 tokens of 50,000, with Zipf's frequencies, in as few segments of equal size as the format allows. A
 * query has 128 tokens, drawn by the same frequencies, and lists of 128 pairs; a list that several queries of a batch
 * read counts once. The hits of one query are compared with those of the CPU twin.
 *
 * A hybrid search has the parts of a token memory's: a query of 16 states, 64 landmarks, four times K chunks by words
 * (64 to 1024), both scores of all of them, the merge. Landmarks are random, of 384 numbers: all of 1M are scanned, and
 * of 20M as many lists of equal size as the index on a GPU visits. Times until hits are in the device's memory, or in
 * this process's, are those of this process, without the plan of the query, which the host makes.
 *
 * Candidates are chunks of a million, of which the best 64 are taken. Their tokens have the same frequencies. */
#include "tests/device/bench/bench_device.cuh"
#include <chrono>
#include <math.h>
#include <random>

enum {
    VOCABULARY = 50000, CHUNK = 63, QUERY = 128, BLOCK = LEXICAL_SCAN_BLOCK, DENSE_SHARE = 8, PAIRS = 400,
    KEYS = VOCABULARY + PAIRS,
    SEGMENT_MAX = 1 << 24, /* chunks: a table has 24 bits for a chunk's number */
};

/* ---- lists ---- */

struct segment {
    int64_t first, chunks;
    std::vector<lexical_scan_list> all; /* by token, then pairs */
    std::vector<bool> dense;
};
struct lists {
    int64_t chunks;
    std::mt19937_64 random;
    std::vector<uint8_t> bytes;
    std::vector<segment> segments;
    std::vector<bool> made; /* by token, then pairs */
};

static void put(std::vector<uint8_t> &to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        to.push_back((uint8_t)(value >> 8 * i));
}

/* Bits one after the other. */
struct bit_writer {
    std::vector<uint8_t> *to;
    uint64_t held;
    int bits;
    void add(uint32_t value, int width) {
        held |= (uint64_t)value << bits;
        for (bits += width; bits >= 8; bits -= 8, held >>= 8)
            to->push_back((uint8_t)held);
    }
    void end() {
        if (bits > 0) to->push_back((uint8_t)held);
        held = 0, bits = 0;
    }
};

/* Appends a block; returns its form. */
static uint32_t encode(std::vector<uint8_t> &to, const uint32_t *steps, const uint8_t *codes, int n) {
    uint32_t any = 0;
    int width = 0, greatest = 0;
    for (int i = 0; i < n; i++) {
        any |= steps[i];
        greatest = std::max(greatest, (int)codes[i]);
    }
    while (any >> width)
        width++;
    bit_writer w = {&to, 0, 0};
    if (n == BLOCK) { /* four lanes with interleaved words */
        uint32_t words[32 * 4] = {};
        for (int i = 0; i < n; i++) {
            int bit = i / 4 * width, word = bit / 32 * 4 + i % 4, shift = bit % 32;
            words[word] |= steps[i] << shift;
            if (shift + width > 32) words[word + 4] |= steps[i] >> (32 - shift);
        }
        for (int i = 0; i < 4 * width; i++)
            w.add(words[i], 32);
    } else {
        for (int i = 0; i < n; i++)
            w.add(steps[i], width);
        w.end();
    }
    for (int least = 1; least <= greatest; least++) {
        for (int i = 0; i < n; i++)
            if (codes[i] >= least - 1) w.add(codes[i] >= least, 1);
        w.end();
    }
    return (uint32_t)width | (uint32_t)greatest << 5;
}

/* Appends the list of given chunks, which count from the segment's first. */
static void append_list(lists *l, segment *to, size_t at, const std::vector<uint32_t> &chunks,
                        const std::vector<uint8_t> &codes) {
    size_t n = chunks.size();
    lexical_scan_list &out = to->all[at];
    out.begin = l->bytes.size(), out.n = (uint32_t)n;
    to->dense[at] = n > BLOCK && (int64_t)n * DENSE_SHARE >= to->chunks;
    if (to->dense[at]) {
        l->bytes.resize(out.begin + (size_t)(to->chunks + 3) / 4);
        for (size_t i = 0; i < n; i++)
            l->bytes[out.begin + chunks[i] / 4] |= (uint8_t)((codes[i] + 1) << chunks[i] % 4 * 2);
        out.bytes = (uint32_t)(l->bytes.size() - out.begin);
        return;
    }
    std::vector<uint8_t> table;
    for (size_t first = 0; first < n; first += BLOCK) {
        uint32_t steps[BLOCK];
        int count = (int)std::min(n - first, (size_t)BLOCK);
        for (int i = 0; i < count; i++)
            steps[i] = chunks[first + i] - (first + i ? chunks[first + i - 1] + 1 : 0);
        out.form = encode(l->bytes, steps, &codes[first], count);
        put(table, chunks[first + count - 1] | out.form << 24, 4);
        put(table, l->bytes.size() - out.begin, 4);
    }
    out.bytes = (uint32_t)(l->bytes.size() - out.begin);
    if (n && n <= BLOCK) out.from = chunks[0], out.until = chunks[n - 1] + 1;
    if (n > BLOCK) l->bytes.insert(l->bytes.end(), table.begin(), table.end());
}

/* The lists of a token or pair that each chunk contains with this probability. */
static void make_lists(lists *l, size_t at, double share) {
    std::uniform_real_distribution<double> uniform(1e-12, 1.0);
    double scale = 1 / log1p(-std::min(share, 0.999)), n = 0;
    for (segment &to : l->segments) {
        std::vector<uint32_t> chunks;
        std::vector<uint8_t> codes;
        for (double next = -1; (next += 1 + floor(log(uniform(l->random)) * scale)) < (double)to.chunks;) {
            double u = uniform(l->random);
            chunks.push_back((uint32_t)next);
            codes.push_back(u < 0.05 ? 2 : u < 0.2);
        }
        if (chunks.empty()) chunks.push_back((uint32_t)(l->random() % (uint64_t)to.chunks)), codes.push_back(0);
        append_list(l, &to, at, chunks, codes);
        n += (double)chunks.size();
    }
    double idf = log(1 + ((double)l->chunks - n + 0.5) / (n + 0.5));
    for (segment &to : l->segments)
        for (int code = 0; code < 3; code++) {
            double f = code < 2 ? code + 1.0 : 4.0;
            to.all[at].weight[code] = (int32_t)(idf * f * 2.2 / (f + 1.2) * (1 << 17));
        }
    l->made[at] = true;
}

/* ---- queries ---- */

/* Ranks have probabilities 1 / (rank * log V): the rank at u is V^u. */
static size_t draw_token(lists *l) {
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    return std::min((size_t)VOCABULARY - 1, (size_t)pow((double)VOCABULARY, uniform(l->random)) - 1);
}
static double token_share(size_t rank) {
    return 1 - pow(1 - std::min(0.06, 1 / ((double)(rank + 1) * log((double)VOCABULARY))), CHUNK);
}

/* The keys of one query; makes the lists that no earlier query has. */
static std::vector<size_t> draw_query(lists *l) {
    std::vector<size_t> query;
    for (int i = 0; i < QUERY; i++) {
        size_t token = draw_token(l), pair = VOCABULARY + l->random() % PAIRS;
        if (!l->made[token]) make_lists(l, token, token_share(token));
        if (!l->made[pair]) /* from one chunk in a million to one in a hundred */
            make_lists(l, pair, pow(10.0, -6 + 4 * (double)(pair - VOCABULARY) / (double)PAIRS));
        query.push_back(token);
        query.push_back(pair);
    }
    std::sort(query.begin(), query.end());
    query.erase(std::unique(query.begin(), query.end()), query.end());
    return query;
}

/* ---- the bench ---- */

template <typename T> static T *copy_of(const std::vector<T> &from) {
    T *to = (T *)take(from.size() * sizeof(T));
    device_upload(dev, to, from.data(), from.size() * sizeof(T));
    return to;
}

struct plan {
    std::vector<lexical_scan_list> all;
    std::vector<lexical_scan_part> parts;
    std::vector<lexical_scan_segment> segments;
    std::vector<lexical_scan_query> queries;
    int64_t windows;
    double bytes, sparse, dense, sparse_postings;
};

static plan plan_queries(const lists *l, const std::vector<std::vector<size_t>> &queries) {
    plan p = {};
    std::vector<bool> counted(l->segments.size() * KEYS);
    for (const segment &s : l->segments) {
        p.segments.push_back({s.first, (int32_t)s.chunks, (int32_t)p.windows});
        p.windows += blocks_for(s.chunks, LEXICAL_SCAN_WINDOW);
    }
    for (const auto &query : queries)
        for (size_t s = 0; s < l->segments.size(); s++) {
            const segment &in = l->segments[s];
            lexical_scan_part part = {(int32_t)p.all.size(), 0, 0};
            for (int dense = 0; dense < 2; dense++)
                for (size_t at : query) {
                    const lexical_scan_list &list = in.all[at];
                    if (in.dense[at] != (bool)dense) continue;
                    p.all.push_back(list);
                    (dense ? part.dense : part.sparse) += 1;
                    if (!dense) p.sparse_postings += list.n;
                    if (counted[s * KEYS + at]) continue;
                    counted[s * KEYS + at] = true;
                    p.bytes += list.bytes + (dense || list.n <= BLOCK ? 0 : (list.n + BLOCK - 1) / BLOCK * 8.0);
                }
            p.parts.push_back(part);
            p.sparse += part.sparse, p.dense += part.dense;
        }
    p.queries.assign(queries.size(), {{0, 0}, 0x1p-17f});
    return p;
}

static lexical_scan scan_of(const plan &p, const uint8_t *postings) {
    lexical_scan s = {};
    s.postings = postings;
    s.segments = p.segments.data(), s.lists = p.all.data(), s.parts = p.parts.data(), s.queries = p.queries.data();
    s.n_segments = (int64_t)p.segments.size(), s.n_queries = (int64_t)p.queries.size();
    s.windows = p.windows;
    return s;
}

static void check_hits(const lists *l, const plan &p, const int64_t *index, const float *score, int k) {
    size_t n = p.queries.size() * (size_t)k;
    std::vector<int64_t> index_host(n), index_right(n);
    std::vector<float> score_host(n), score_right(n);
    lexical_scan s = scan_of(p, l->bytes.data());
    struct device *cpu;
    must(device_open(&cpu, "cpu", 1));
    cpu->ops->lexical_scan->forward(cpu, index_right.data(), score_right.data(), &s, k);
    device_close(cpu);
    device_download(dev, index_host.data(), index, n * sizeof *index);
    device_download(dev, score_host.data(), score, n * sizeof *score);
    printf("  hits: %s\n", index_host == index_right && score_host == score_right ? "those of the CPU" : "WRONG");
}

static void scan(const lists *l, const std::vector<std::vector<size_t>> &queries, const uint8_t *postings, int k) {
    const plan p = plan_queries(l, queries);
    size_t n = queries.size();
    lexical_scan s = scan_of(p, postings);
    s.segments = copy_of(p.segments), s.lists = copy_of(p.all), s.parts = copy_of(p.parts);
    s.queries = copy_of(p.queries);
    int64_t *index = (int64_t *)take(n * (size_t)k * 8);
    float *score = (float *)take(n * (size_t)k * 4);
    char name[80];
    snprintf(name, sizeof name, "lexical_scan %lldM, best %d, %zu quer%s", (long long)l->chunks / 1000000, k, n,
             n == 1 ? "y" : "ies");
    report(
        name, p.bytes, 0, [&] { dev->ops->lexical_scan->forward(dev, index, score, &s, k); }, 21);
    printf("  a query: %.1f sparse lists, %.1f dense, %.2f M sparse postings; %.1f MB of lists in all, %zu segments\n",
           p.sparse / (double)n, p.dense / (double)n, p.sparse_postings / (double)n * 1e-6, p.bytes * 1e-6,
           p.segments.size());
    if (n == 1) check_hits(l, p, index, score, k);
}

/* ---- words and landmarks ---- */

enum { WIDTH = 384, LANDMARKS = 64, STATES = 16, FLAT_MAX = 2 << 20 };

struct landmarks {
    ivf_scan_lists lists;
    int nprobe;
    const int32_t *row_of;
};

/* As indexer/search/list_index.c divides them; up to FLAT_MAX are one list. */
static landmarks make_landmarks(int64_t chunks) {
    int64_t lists = 1;
    while (chunks > FLAT_MAX && lists * 2 <= (int64_t)(8 * sqrt((double)chunks) * 1.4143))
        lists *= 2;
    std::vector<int32_t> begin, id((size_t)chunks), row_of((size_t)chunks);
    for (int64_t l = 0; l <= lists; l++)
        begin.push_back((int32_t)(chunks * l / lists));
    for (int64_t r = 0; r < chunks; r++) {
        id[(size_t)r] = lists > 1 ? (int32_t)(r * 1000003 % chunks) : (int32_t)r;
        row_of[(size_t)id[(size_t)r]] = (int32_t)r;
    }
    landmarks out = {};
    out.nprobe = lists > 1 ? (int)(2 * sqrt((double)lists)) : 1;
    out.lists.centroids = matrix(DTYPE_F16, lists, WIDTH, 1.0f / sqrtf(WIDTH));
    out.lists.rows = matrix(DTYPE_F16, chunks, WIDTH, 1.0f / sqrtf(WIDTH));
    out.lists.begin = copy_of(begin), out.lists.id = copy_of(id);
    if (lists > 1) out.row_of = copy_of(row_of);
    return out;
}

struct hybrid_bench {
    lexical_scan scan;
    landmarks of;
    struct mat ring, query;
    double *centre;
    int64_t *found, *given; /* by words, by landmarks */
    float *found_score, *given_score, *given_bm25;
    int64_t *index; /* [k] */
    float *score;
    int k, depth;
};

static void run_words(const hybrid_bench &b) {
    dev->ops->lexical_scan->forward(dev, b.found, b.found_score, &b.scan, b.k);
}

static void run_hybrid(const hybrid_bench &b, int64_t *index, float *score) {
    const struct ops *ops = dev->ops;
    hybrid_merge m = {b.query, {b.found, b.found_score, b.depth}, {b.given, b.given_bm25, LANDMARKS},
                      b.of.lists.rows, b.of.row_of, b.of.lists.rows.rows, 120.0f * sqrtf(WIDTH)};
    ops->hybrid->query(dev, (float *)b.query.data, b.ring, 5, STATES, b.centre);
    ops->ivf_scan->forward(dev, b.given, b.given_score, b.query, b.of.lists, NULL, b.of.nprobe, LANDMARKS);
    ops->lexical_scan->forward(dev, b.found, b.found_score, &b.scan, b.depth);
    ops->lexical_scan->score(dev, b.given_bm25, &b.scan, b.given, LANDMARKS);
    ops->hybrid->merge(dev, index, score, &m, b.k);
}

template <typename F> static void report_wall(const char *name, F f) {
    std::vector<double> ms;
    for (int i = 0; i < 60; i++) {
        auto begin = std::chrono::steady_clock::now();
        f();
        double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (i >= 9) ms.push_back(seconds * 1e3);
    }
    std::sort(ms.begin(), ms.end());
    size_t n = ms.size();
    printf("%-52s %8.1f us, quartiles %.1f, %.1f\n", name, ms[n / 2] * 1e3, ms[n / 4] * 1e3, ms[3 * n / 4] * 1e3);
    fflush(stdout);
    struct figure figure = {};
    figure.unit = "ms", figure.values = ms.data(), figure.count = (int64_t)n;
    result_figure(&figure, "%s", name);
}

/* BM25 of the hits by words, once more, as of given chunks. */
static void check_given(const hybrid_bench &b) {
    size_t n = (size_t)b.depth;
    float *again = (float *)take(n * 4);
    std::vector<float> right(n), found(n);
    dev->ops->lexical_scan->score(dev, again, &b.scan, b.found, b.depth);
    device_download(dev, right.data(), b.found_score, n * 4);
    device_download(dev, found.data(), again, n * 4);
    for (size_t i = 0; i < n; i++)
        if (right[i] == -INFINITY) right[i] = 0;
    printf("  scores of given chunks: %s\n", right == found ? "those of the scan" : "WRONG");
}

static void hybrid(const lists *l, const std::vector<size_t> &query, const uint8_t *postings, const landmarks &of,
                   int k) {
    const plan p = plan_queries(l, {query});
    hybrid_bench b = {scan_of(p, postings), of};
    b.scan.segments = copy_of(p.segments), b.scan.lists = copy_of(p.all), b.scan.parts = copy_of(p.parts);
    b.scan.queries = copy_of(p.queries);
    b.k = k, b.depth = std::min(std::max(4 * k, 64), (int)LEXICAL_SCAN_K_MAX);
    b.ring = matrix(DTYPE_BF16, 1024, WIDTH, 1.0f), b.query = matrix(DTYPE_F32, 1, WIDTH, 1.0f);
    b.centre = (double *)take(WIDTH * 8);
    b.found = (int64_t *)take(LEXICAL_SCAN_K_MAX * 8), b.found_score = (float *)take(LEXICAL_SCAN_K_MAX * 4);
    b.given = (int64_t *)take(LANDMARKS * 8), b.given_score = (float *)take(LANDMARKS * 4);
    b.given_bm25 = (float *)take(LANDMARKS * 4);
    b.index = (int64_t *)take((size_t)k * 12), b.score = (float *)(b.index + k);
    void *host;
    must(device_allocate_host_bytes(dev, &host, (size_t)k * 12));
    int64_t *mapped = (int64_t *)device_reach(dev, host);
    char name[96];
    auto named = [&](const char *what) {
        snprintf(name, sizeof name, "hybrid %lldM, K %d, %s", (long long)l->chunks / 1000000, k, what);
        return name;
    };
    report(named("words alone, best K"), p.bytes, 0, [&] { run_words(b); }, 41);
    report(named("landmarks, best 64"), 0, 0, [&] {
        dev->ops->ivf_scan->forward(dev, b.given, b.given_score, b.query, of.lists, NULL, of.nprobe, LANDMARKS); }, 41);
    report(named("words, best 4 K"), p.bytes, 0, [&] {
        dev->ops->lexical_scan->forward(dev, b.found, b.found_score, &b.scan, b.depth); }, 41);
    report(named("BM25 of the landmarks' chunks"), 0, 0, [&] {
        dev->ops->lexical_scan->score(dev, b.given_bm25, &b.scan, b.given, LANDMARKS); }, 41);
    report(named("all kernels"), 0, 0, [&] { run_hybrid(b, b.index, b.score); }, 41);
    report_wall(named("words alone, hits in device memory"), [&] { run_words(b); must(device_sync(dev)); });
    report_wall(named("hits in device memory"), [&] { run_hybrid(b, b.index, b.score); must(device_sync(dev)); });
    report_wall(named("hits in host memory"), [&] {
        run_hybrid(b, mapped, (float *)(mapped + k));
        device_fetch(dev, host, mapped, (size_t)k * 12);
        device_fetch_wait(dev);
    });
    check_given(b);
    device_release_host(dev, host);
}

static void chunks_of(int64_t millions, const std::vector<int> &best, const std::vector<int> &merged) {
    lists l = {};
    l.chunks = millions * 1000000;
    l.made.resize(KEYS);
    int64_t each = blocks_for(l.chunks, blocks_for(l.chunks, SEGMENT_MAX));
    for (int64_t first = 0; first < l.chunks; first += each) {
        int64_t chunks = std::min(each, l.chunks - first);
        l.segments.push_back({first, chunks, std::vector<lexical_scan_list>(KEYS), std::vector<bool>(KEYS)});
    }
    std::vector<std::vector<size_t>> queries;
    for (int q = 0; q < 32; q++)
        queries.push_back(draw_query(&l));
    l.bytes.resize(l.bytes.size() + LEXICAL_SCAN_PAD);
    const uint8_t *postings = copy_of(l.bytes);
    for (int k : best) {
        scan(&l, {queries[0]}, postings, k);
        scan(&l, queries, postings, k);
    }
    if (merged[0] > 0) {
        const landmarks of = make_landmarks(l.chunks);
        for (int k : merged)
            hybrid(&l, queries[0], postings, of, k);
    }
    drop();
}

/* ---- a trained order ---- */

enum { CANDIDATE_CHUNKS = 1000000, TAKEN = 64, IN_A_ROW = 8 };

static void candidates_of(int n) {
    lists l = {};
    const int k = std::min(n, (int)TAKEN);
    std::vector<int32_t> value((size_t)CANDIDATE_CHUNKS * CHUNK), first_id(CANDIDATE_CHUNKS), query;
    std::vector<int64_t> chunk, right((size_t)k), found((size_t)k);
    std::vector<float> score, landmark, idf, right_score((size_t)k), found_score((size_t)k);
    std::vector<double> weights;
    for (int i = 0; i < n; i++) {
        chunk.push_back((int64_t)i * 7919 % (CANDIDATE_CHUNKS - 1));
        score.push_back(100.0f / (float)(i + 1)), landmark.push_back(0.0001f * (float)(i % 100));
        first_id[(size_t)chunk.back()] = (int32_t)draw_token(&l);
        for (int j = 0; j < 2 * CHUNK; j++)
            value[(size_t)chunk.back() * CHUNK + (size_t)j] = (int32_t)draw_token(&l);
    }
    for (int i = 0; i < QUERY; i++)
        query.push_back((int32_t)draw_token(&l));
    for (int id = 0; id < VOCABULARY; id++)
        idf.push_back(logf(2.0f + (float)id));
    for (int f = 0; f < CANDIDATE_FEATURES; f++)
        weights.push_back(0.1 * (f % 5));
    const packed_chunks of = {{}, value.data(), CANDIDATE_CHUNKS, CHUNK, first_id.data()};
    packed_chunks of_device = of;
    candidates c = {chunk.data(), score.data(), landmark.data(), n, query.data(), QUERY,
                    {weights.data(), idf.data(), VOCABULARY, sqrtf(WIDTH)}, &of};
    struct device *cpu;
    must(device_open(&cpu, "cpu", 1));
    cpu->ops->candidates->order(cpu, right.data(), right_score.data(), &c, k);
    device_close(cpu);
    of_device.value = copy_of(value), of_device.first_id = copy_of(first_id);
    c.of = &of_device;
    c.chunk = copy_of(chunk), c.score = copy_of(score), c.landmark = copy_of(landmark), c.terms.idf = copy_of(idf);
    int64_t *index = (int64_t *)take((size_t)k * 8);
    float *index_score = (float *)take((size_t)k * 4);
    char name[80];
    snprintf(name, sizeof name, "candidates.order of %d, best %d", n, k);
    report(name, (double)n * (2 * CHUNK * 4 + 16), 0,
           [&] { dev->ops->candidates->order(dev, index, index_score, &c, k); }, 41);
    std::vector<double> each;
    auto row = [&] {
        for (int i = 0; i < IN_A_ROW; i++)
            dev->ops->candidates->order(dev, index, index_score, &c, k);
    };
    (void)seconds(row, 41, &each);
    for (double &ms : each)
        ms /= (int)IN_A_ROW;
    std::sort(each.begin(), each.end());
    printf("  each of %d in a row                         %10.1f us\n", (int)IN_A_ROW, each[each.size() / 2] * 1e3);
    report_figure("  each in a row", each, NULL, 0);
    device_download(dev, found.data(), index, (size_t)k * 8);
    device_download(dev, found_score.data(), index_score, (size_t)k * 4);
    must(device_sync(dev));
    printf("  order: %s\n", found == right && found_score == right_score ? "that of the CPU" : "WRONG");
    drop();
}

static std::vector<int> numbers(const char *text) {
    std::vector<int> out;
    for (char *next = (char *)text; *next; next += *next == ',') {
        char *end;
        out.push_back((int)strtol(next, &end, 10));
        if (end == next) break;
        next = end;
    }
    return out;
}

int main(int argc, char **argv) {
    const char *chunks = "1,20", *best = "64,256", *merged = "8,64,256", *ordered = "224,1024";
    result_begin("bench_lexical_scan", &argc, argv);
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--chunks") == 0)
            chunks = argv[i + 1];
        else if (strcmp(argv[i], "--best") == 0)
            best = argv[i + 1];
        else if (strcmp(argv[i], "--hybrid") == 0)
            merged = argv[i + 1];
        else if (strcmp(argv[i], "--candidates") == 0)
            ordered = argv[i + 1];
    must(device_open(&dev, "cuda", 1));
    cudaDeviceProp card;
    cudaGetDeviceProperties(&card, 0);
    result_gpu(card.name);
    printf("%s, %d multiprocessors\n", card.name, card.multiProcessorCount);
    ceilings();
    for (int n : numbers(ordered))
        if (n > 0) candidates_of(n);
    for (int millions : numbers(chunks))
        chunks_of(millions, numbers(best), numbers(merged));
    device_close(dev);
    result_end();
    return 0;
}
