// vectors_prefetch.cpp -- see vectors_prefetch_internal.h.
//
// Prefetching: for every query, FAISS starts 32 threads that read lists of a mapped inverted file ahead. They help a
// single query on a cold disk. If the lists are in memory, they take many times as long as the search.
//
// All lists: a graph over the centroids finds only the lists that its links reach. If centroids are nearly equal these
// can be few, for any nprobe. So a search of all lists does not use the graph.
//
// Lists: the C API gives no pointers to the codes or to the ranges of the codes.
#include "store/index/vectors_prefetch_internal.h"
#include <cstdio>
#include <exception>
#include <faiss/IndexHNSW.h>
#include <faiss/IndexIVF.h>
#include <faiss/IndexIVFFlat.h>
#include <faiss/IndexNSG.h>
#include <faiss/IndexPreTransform.h>
#include <faiss/IndexScalarQuantizer.h>
#include <faiss/invlists/OnDiskInvertedLists.h>
#include <memory>
#include <vector>

extern "C" void vectors_no_prefetch(void *ivf) {
    auto *index = static_cast<faiss::IndexIVF *>(ivf);
    auto *mapped = dynamic_cast<faiss::OnDiskInvertedLists *>(index->invlists);
    if (mapped) mapped->prefetch_nthread = 0;
}

static const faiss::Index *centroids_of(const faiss::IndexIVF *ivf) {
    if (auto *graph = dynamic_cast<const faiss::IndexHNSW *>(ivf->quantizer)) return graph->storage;
    if (auto *graph = dynamic_cast<const faiss::IndexNSG *>(ivf->quantizer)) return graph->storage;
    return ivf->quantizer;
}

static void search_all_lists(const faiss::Index *index, faiss::idx_t *ids, float *scores, const float *queries,
                             faiss::idx_t n, faiss::idx_t k, const faiss::IVFSearchParameters *params) {
    std::unique_ptr<const float[]> transformed;
    if (auto *outer = dynamic_cast<const faiss::IndexPreTransform *>(index)) {
        const float *rows = outer->apply_chain(n, queries);
        if (rows != queries) transformed.reset(rows);
        queries = rows;
        index = outer->index;
    }
    auto *ivf = dynamic_cast<const faiss::IndexIVF *>(index);
    auto lists = static_cast<faiss::idx_t>(ivf->nlist);
    std::vector<faiss::idx_t> list(static_cast<size_t>(lists));
    std::vector<float> score(static_cast<size_t>(lists));
    // One query at a time: with many lists, the numbers and scores of the lists of all queries would need much memory.
    for (faiss::idx_t q = 0; q < n; q++) {
        const float *query = queries + q * ivf->d;
        centroids_of(ivf)->search(1, query, lists, score.data(), list.data());
        ivf->search_preassigned(1, query, k, list.data(), score.data(), scores + q * k, ids + q * k, false, params);
    }
}

/* Whether the call threw nothing; otherwise `error` has the text. */
template <typename T> static bool reports(char error[VECTORS_ERROR_BYTES], T call) {
    try {
        call();
        return true;
    } catch (const std::exception &e) {
        snprintf(error, VECTORS_ERROR_BYTES, "%s", e.what());
    } catch (...) {
        snprintf(error, VECTORS_ERROR_BYTES, "unknown failure");
    }
    return false;
}

extern "C" bool vectors_search_all_lists(const void *index, int64_t *ids, float *scores, const float *queries,
                                         int64_t n, int64_t k, const void *params, char error[VECTORS_ERROR_BYTES]) {
    return reports(error, [&] {
        search_all_lists(static_cast<const faiss::Index *>(index), ids, scores, queries, n, k,
                         static_cast<const faiss::IVFSearchParameters *>(params));
    });
}

static const faiss::IndexIVFScalarQuantizer *scalar_lists(const void *index) {
    return dynamic_cast<const faiss::IndexIVFScalarQuantizer *>(static_cast<const faiss::Index *>(index));
}

extern "C" bool vectors_lists_of(const void *index, struct vectors_lists *out) {
    auto *ivf = scalar_lists(index);
    if (!ivf || ivf->metric_type != faiss::METRIC_INNER_PRODUCT || !ivf->invlists) return false;
    auto *centroids = dynamic_cast<const faiss::IndexFlat *>(centroids_of(ivf));
    auto dim = static_cast<size_t>(ivf->d);
    if (!centroids || centroids->ntotal != static_cast<faiss::idx_t>(ivf->nlist) || centroids->d != ivf->d)
        return false;
    if (ivf->sq.qtype != faiss::ScalarQuantizer::QT_8bit || ivf->sq.trained.size() != 2 * dim || ivf->code_size != dim)
        return false;
    const float *trained = ivf->sq.trained.data();
    *out = {ivf->d,  static_cast<int64_t>(ivf->nlist), centroids->get_xb(), trained, trained + dim,
            ivf->by_residual};
    return true;
}

static void list_at(const faiss::InvertedLists *lists, int64_t l, const uint8_t **codes, const void **ids,
                    int64_t *n) {
    auto list = static_cast<size_t>(l);
    *codes = lists->get_codes(list);
    *ids = lists->get_ids(list);
    *n = static_cast<int64_t>(lists->list_size(list));
}

extern "C" void vectors_list_at(const void *index, int64_t l, const uint8_t **codes, const void **ids, int64_t *n) {
    list_at(scalar_lists(index)->invlists, l, codes, ids, n);
}

extern "C" bool vectors_adds_rows_apart(const void *index) {
    auto *ivf = dynamic_cast<const faiss::IndexIVF *>(static_cast<const faiss::Index *>(index));
    bool codes = dynamic_cast<const faiss::IndexIVFScalarQuantizer *>(ivf) ||
                 dynamic_cast<const faiss::IndexIVFFlat *>(ivf);
    return ivf && codes && dynamic_cast<const faiss::IndexHNSW *>(ivf->quantizer);
}

extern "C" const float *vectors_ivf_centroids(const void *index, int64_t *lists, int *dim) {
    auto *ivf = dynamic_cast<const faiss::IndexIVF *>(static_cast<const faiss::Index *>(index));
    if (!dynamic_cast<const faiss::IndexIVFScalarQuantizer *>(ivf) && !dynamic_cast<const faiss::IndexIVFFlat *>(ivf))
        return nullptr;
    auto *flat = dynamic_cast<const faiss::IndexFlat *>(centroids_of(ivf));
    if (!flat || flat->ntotal != static_cast<faiss::idx_t>(ivf->nlist) || flat->d != ivf->d) return nullptr;
    *lists = flat->ntotal;
    *dim = flat->d;
    return flat->get_xb();
}

extern "C" bool vectors_ivf_encode(const void *index, uint8_t *codes, const float *rows, const int64_t *list,
                                   int64_t n, char error[VECTORS_ERROR_BYTES]) {
    static_assert(sizeof(faiss::idx_t) == sizeof *list);
    return reports(error, [&] {
        static_cast<const faiss::IndexIVF *>(static_cast<const faiss::Index *>(index))
            ->encode_vectors(n, rows, reinterpret_cast<const faiss::idx_t *>(list), codes);
    });
}

extern "C" int64_t vectors_ivf_code_bytes(const void *ivf) {
    return static_cast<int64_t>(static_cast<const faiss::IndexIVF *>(ivf)->code_size);
}

extern "C" void vectors_ivf_list(const void *ivf, int64_t l, const uint8_t **codes, const void **ids, int64_t *n) {
    list_at(static_cast<const faiss::IndexIVF *>(ivf)->invlists, l, codes, ids, n);
}
