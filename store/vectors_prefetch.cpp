// vectors_prefetch.cpp -- what FAISS's C API has no word for: a mapped inverted file starts 32 threads for every query, which read
// the lists ahead. Of use for one query on a cold disk; for lists that are in memory they cost many times the search.
#include <faiss/IndexIVF.h>
#include <faiss/invlists/OnDiskInvertedLists.h>

// `ivf`: what faiss_IndexIVF_cast gave, which is the C++ object itself.
extern "C" void vectors_no_prefetch(void *ivf);
extern "C" void vectors_no_prefetch(void *ivf) {
    auto *index = static_cast<faiss::IndexIVF *>(ivf);
    auto *mapped = dynamic_cast<faiss::OnDiskInvertedLists *>(index->invlists);
    if (mapped) mapped->prefetch_nthread = 0;
}
