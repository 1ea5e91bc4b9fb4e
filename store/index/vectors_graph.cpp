// vectors_graph.cpp -- see vectors_graph_internal.h.
#include "store/index/vectors_graph_internal.h"
#include <algorithm>
#include <atomic>
#include <exception>
#include <faiss/IndexFlat.h>
#include <faiss/IndexHNSW.h>
#include <faiss/impl/AuxIndexStructures.h>
#include <faiss/impl/DistanceComputer.h>
#include <memory>
#include <queue>
#include <vector>

using faiss::HNSW;

namespace {

constexpr size_t batch_share = 16, batch_max = 4096;

struct link {
    int level, target, source; // source: a node of the batch, which `target` shall have as a neighbour
};

// What one thread needs. Distances of inner products are negated, since the functions of the graph take the least.
struct searcher {
    std::unique_ptr<faiss::DistanceComputer> distance;
    faiss::VisitedTable visited;

    explicit searcher(const faiss::IndexHNSW *index)
        : visited(static_cast<int>(index->ntotal)) {
        faiss::DistanceComputer *d = index->storage->get_distance_computer();
        distance.reset(faiss::is_similarity_metric(index->metric_type) ? new faiss::NegativeDistanceComputer(d) : d);
    }
};

struct graph {
    faiss::IndexHNSW *index;
    const float *rows;
    const struct vectors_loop *loop;
    std::vector<std::unique_ptr<searcher>> searchers;
    std::vector<int> order; // nodes in the order of their insertion: those of high levels first
    size_t first = 0;       // of the batch, in `order`
    std::vector<std::vector<link>> found; // [batch]
    std::vector<link> links;              // of the batch, by target
    std::vector<size_t> groups;           // where the links of a target begin
    std::atomic<bool> failed{false};
};

int level_of(const HNSW &hnsw, int node) {
    return hnsw.levels[static_cast<size_t>(node)] - 1;
}

// Keeps at most `most` of the candidates, as FAISS does: those that are nearer to the node than to one that was kept.
std::vector<int> select_links(faiss::DistanceComputer &distance, std::priority_queue<HNSW::NodeDistCloser> &candidates,
                              int most) {
    std::vector<int> out;
    std::priority_queue<HNSW::NodeDistFarther> nearest;
    std::vector<HNSW::NodeDistFarther> kept;
    const bool all = candidates.size() < static_cast<size_t>(most);
    for (; !candidates.empty(); candidates.pop()) {
        if (all)
            out.push_back(candidates.top().id);
        else
            nearest.emplace(candidates.top().d, candidates.top().id);
    }
    if (all) return out;
    HNSW::shrink_neighbor_list(distance, nearest, kept, most);
    for (const HNSW::NodeDistFarther &node : kept)
        out.push_back(node.id);
    return out;
}

// Finds the links of a node on all of its levels, in the graph of the nodes before the batch.
void find_links(graph &g, searcher &s, size_t i) {
    HNSW &hnsw = g.index->hnsw;
    const int node = g.order[g.first + i], node_level = level_of(hnsw, node);
    faiss::DistanceComputer &distance = *s.distance;
    distance.set_query(g.rows + static_cast<size_t>(node) * static_cast<size_t>(g.index->d));
    g.found[i].clear();
    HNSW::storage_idx_t nearest = hnsw.entry_point;
    float d_nearest = distance(nearest);
    int level = hnsw.max_level;
    for (; level > node_level; level--)
        faiss::greedy_update_nearest(hnsw, distance, level, nearest, d_nearest);
    for (; level >= 0; level--) {
        std::priority_queue<HNSW::NodeDistCloser> candidates;
        faiss::search_neighbors_to_add(hnsw, distance, candidates, nearest, d_nearest, level, s.visited);
        s.visited.advance();
        for (int target : select_links(distance, candidates, hnsw.nb_neighbors(level)))
            g.found[i].push_back({level, target, node});
    }
}

// Gives the target one more neighbour; if it has no free link, the links that FAISS would keep.
void add_link(graph &g, searcher &s, const link &l) {
    HNSW &hnsw = g.index->hnsw;
    size_t begin, end;
    hnsw.neighbor_range(l.target, l.level, &begin, &end);
    for (size_t i = begin; i < end; i++)
        if (hnsw.neighbors[i] < 0) {
            hnsw.neighbors[i] = l.source;
            return;
        }
    faiss::DistanceComputer &distance = *s.distance;
    std::priority_queue<HNSW::NodeDistCloser> candidates;
    candidates.emplace(distance.symmetric_dis(l.target, l.source), l.source);
    for (size_t i = begin; i < end; i++)
        candidates.emplace(distance.symmetric_dis(l.target, hnsw.neighbors[i]), hnsw.neighbors[i]);
    size_t at = begin;
    for (int node : select_links(distance, candidates, static_cast<int>(end - begin)))
        hnsw.neighbors[at++] = node;
    for (; at < end; at++)
        hnsw.neighbors[at] = -1;
}

template <typename T> void guarded(graph *g, int64_t begin, int64_t end, T body) {
    try {
        for (int64_t i = begin; i < end && !g->failed; i++)
            body(static_cast<size_t>(i));
    } catch (...) {
        g->failed = true;
    }
}

void find_range(void *context, int64_t begin, int64_t end, int worker) {
    auto *g = static_cast<graph *>(context);
    guarded(g, begin, end, [&](size_t i) { find_links(*g, *g->searchers[static_cast<size_t>(worker)], i); });
}

void link_range(void *context, int64_t begin, int64_t end, int worker) {
    auto *g = static_cast<graph *>(context);
    guarded(g, begin, end, [&](size_t group) {
        for (size_t i = g->groups[group]; i < g->groups[group + 1]; i++)
            add_link(*g, *g->searchers[static_cast<size_t>(worker)], g->links[i]);
    });
}

void insert_batch(graph &g, size_t n) {
    HNSW &hnsw = g.index->hnsw;
    if (g.found.size() < n) g.found.resize(n);
    g.loop->run(g.loop->pool, static_cast<int64_t>(n), find_range, &g);
    g.links.clear();
    for (size_t i = 0; i < n; i++) {
        size_t begin, end;
        int level = -1;
        for (const link &l : g.found[i]) { // the node's own links
            if (l.level != level) hnsw.neighbor_range(l.source, level = l.level, &begin, &end);
            hnsw.neighbors[begin++] = l.target;
            g.links.push_back(l);
        }
    }
    std::stable_sort(g.links.begin(), g.links.end(), [](const link &a, const link &b) {
        return a.target != b.target ? a.target < b.target : a.level < b.level;
    });
    g.groups.clear();
    for (size_t i = 0; i < g.links.size(); i++)
        if (i == 0 || g.links[i].target != g.links[i - 1].target) g.groups.push_back(i);
    g.groups.push_back(g.links.size());
    g.loop->run(g.loop->pool, static_cast<int64_t>(g.groups.size()) - 1, link_range, &g);
    g.first += n;
}

bool insert_all(faiss::IndexHNSW *index, const float *rows, size_t n, const struct vectors_loop *loop) {
    HNSW &hnsw = index->hnsw;
    graph g;
    g.index = index;
    g.rows = rows;
    g.loop = loop;
    index->storage->add(static_cast<faiss::idx_t>(n), rows);
    index->ntotal = index->storage->ntotal;
    hnsw.prepare_level_tab(n); // draws the levels
    for (int i = 0; i < loop->workers; i++)
        g.searchers.push_back(std::make_unique<searcher>(index));
    for (size_t i = 0; i < n; i++)
        g.order.push_back(static_cast<int>(i));
    std::stable_sort(g.order.begin(), g.order.end(),
                     [&](int a, int b) { return level_of(hnsw, a) > level_of(hnsw, b); });
    hnsw.entry_point = g.order[0];
    hnsw.max_level = level_of(hnsw, g.order[0]);
    for (g.first = 1; g.first < n && !g.failed;)
        insert_batch(g, std::min({n - g.first, std::max<size_t>(1, g.first / batch_share), batch_max}));
    return !g.failed;
}

} // namespace

extern "C" bool vectors_graph_add(void *quantizer, const float *rows, int64_t n, const struct vectors_loop *loop,
                                  bool *failed) {
    auto *index = dynamic_cast<faiss::IndexHNSWFlat *>(static_cast<faiss::Index *>(quantizer));
    *failed = false;
    if (!index || index->ntotal != 0 || n < 1 || !dynamic_cast<faiss::IndexFlat *>(index->storage)) return false;
    try {
        *failed = !insert_all(index, rows, static_cast<size_t>(n), loop);
    } catch (...) {
        *failed = true;
    }
    return true;
}
