// vectors_prefetch.cpp -- the two things that FAISS's C API does not offer.
//
// Prefetching: a mapped inverted file starts 32 threads for every query, which read the lists ahead. Of use for one query on a cold
// disk; for lists that are in memory they cost many times the search.
//
// All lists: a graph over the centroids finds only those that can be reached in it, and where centroids are nearly equal that can
// be a handful, however many lists a search asks for. A search of all lists therefore goes to the centroids themselves.
#include <cstdio>
#include <exception>
#include <faiss/IndexHNSW.h>
#include <faiss/IndexIVF.h>
#include <faiss/IndexNSG.h>
#include <faiss/IndexPreTransform.h>
#include <faiss/invlists/OnDiskInvertedLists.h>
#include <memory>
#include <vector>

// `ivf`: what faiss_IndexIVF_cast gave, which is the C++ object itself.
extern "C" void vectors_no_prefetch(void *ivf);
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

static void search_all_lists(const faiss::Index *index, faiss::idx_t *ids, float *scores, const float *queries, faiss::idx_t n,
                             faiss::idx_t k, const faiss::IVFSearchParameters *params) {
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
    // Query by query: lists are many, and their numbers and scores for all queries together would be much memory.
    for (faiss::idx_t q = 0; q < n; q++) {
        const float *query = queries + q * ivf->d;
        centroids_of(ivf)->search(1, query, lists, score.data(), list.data());
        ivf->search_preassigned(1, query, k, list.data(), score.data(), scores + q * k, ids + q * k, false, params);
    }
}

// `index`, `params`: the C++ objects, as the C API gives them; params->nprobe is the number of lists. Returns false, with FAISS's
// text in error[0 .. error_bytes-1], when FAISS fails.
extern "C" bool vectors_search_all_lists(const void *index, int64_t *ids, float *scores, const float *queries, int64_t n, int64_t k,
                                         const void *params, char *error, size_t error_bytes);
extern "C" bool vectors_search_all_lists(const void *index, int64_t *ids, float *scores, const float *queries, int64_t n, int64_t k,
                                         const void *params, char *error, size_t error_bytes) {
    try {
        search_all_lists(static_cast<const faiss::Index *>(index), ids, scores, queries, n, k,
                         static_cast<const faiss::IVFSearchParameters *>(params));
        return true;
    } catch (const std::exception &e) {
        snprintf(error, error_bytes, "%s", e.what());
    } catch (...) {
        snprintf(error, error_bytes, "unknown failure");
    }
    return false;
}
