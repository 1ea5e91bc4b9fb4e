# dependencies.cmake -- the external libraries, and the reason for each.
#
#   FAISS C API  approximate search: IVF, PQ, HNSW. The reference in the field. Only store/index/vectors* uses it.
#   LMDB         the catalog: crash-safe transactions, many readers across processes, no server.
#   OpenBLAS     large float32 products on the CPU; run-time dispatch over processors.
#   PCRE2        split patterns of tokenizers need look-ahead and \p{...}; its JIT compiler makes them fast.
#   utf8proc     Unicode normalisation (NFC, NFKC) of tokenizers.
#   zlib zstd xz compressed inputs.
#   snappy lz4 brotli   with zlib and zstd the codecs of parquet pages and arrow buffers.
#   libmicrohttpd HTTP for drt-serve. It is a C library for embedding, has been maintained and fuzzed since 2007, and is in
#                both Debian releases (0.9.75, 1.0.1). One epoll thread serves many connections, and a connection can be
#                suspended while the model computes its answer, which libraries with a thread per request (civetweb) cannot
#                do. libevent's evhttp accepts more than RFC 9112 allows; h2o and nghttp2 need their own event loop. It
#                lacks a limit on the time of a whole request, and does not notice clients that disconnect;
#                tools/serve/serve_connections.c does both.
#   xxHash       128-bit content hashes at memory speed (fingerprints, exact duplicates); not a security boundary.
#
# Parquet and arrow are read by data/readers/columnar/. Debian has no library for them. Of what PyPI has:
#   pyarrow 26     160 MB of C++ libraries without a C interface. As a separate process it would make a C program depend
#                  on a Python installation, which Debian manages.
#   carquet 0.7.2  C11, MIT, 49,000 lines by one author, "beta", parquet only. Five minutes of fuzzing under ASan found
#                  a use after free in its footer parser (parse_column_metadata in parquet_types.c), and corpora are not
#                  trusted. Its batch reader has a whole row group in memory: 387 MB for a group with 398 MB of text, and
#                  pyarrow's default is a million rows per group.
# A text column needs a small part of both formats. Reading page by page bounds the memory, and fuzz_parquet and fuzz_arrow
# cover all of this code.
#
# CMAKE_PREFIX_PATH is searched first, so a user's own build (FAISS at x86-64-v3 scans 7 to 10 times faster than
# Debian's) is found; then .deps/, where cmake/setup.sh unpacks Debian 13's FAISS on Debian 12; then the system.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C CXX)           # FAISS is built with it

set(drt_local_prefix ${PROJECT_SOURCE_DIR}/.deps/usr)
set(drt_multiarch ${CMAKE_LIBRARY_ARCHITECTURE})

function(drt_program_dependency target header package)   # then names of the library; libdrt does not use it
  string(TOUPPER ${target} upper)
  find_library(${upper}_LIBRARY NAMES ${ARGN} PATHS ${drt_local_prefix}/lib ${drt_local_prefix}/lib/${drt_multiarch})
  find_path(${upper}_INCLUDE ${header} PATHS ${drt_local_prefix}/include PATH_SUFFIXES ${drt_multiarch})
  if(NOT ${upper}_LIBRARY OR NOT ${upper}_INCLUDE)
    message(FATAL_ERROR "${header} or its library was not found: run cmake/setup.sh, or install the package ${package}")
  endif()
  add_library(${target} INTERFACE)
  target_link_libraries(${target} INTERFACE ${${upper}_LIBRARY})
  target_include_directories(${target} SYSTEM INTERFACE ${${upper}_INCLUDE})
endfunction()
function(drt_dependency target header package)
  drt_program_dependency(${target} ${header} ${package} ${ARGN})
  list(GET ARGN 0 name)                                  # what users of libdrt.a link and install
  set_property(GLOBAL APPEND PROPERTY drt_static_needs ${name})
  set_property(GLOBAL APPEND PROPERTY drt_static_packages ${package})
endfunction()

drt_dependency(drt_openblas cblas.h libopenblas-dev openblas)
target_compile_definitions(drt_openblas INTERFACE DRT_OPENBLAS)
drt_dependency(drt_lmdb lmdb.h liblmdb-dev lmdb)
drt_dependency(drt_pcre2 pcre2.h libpcre2-dev pcre2-8)
drt_dependency(drt_utf8proc utf8proc.h libutf8proc-dev utf8proc)
drt_dependency(drt_zlib zlib.h zlib1g-dev z)
drt_dependency(drt_zstd zstd.h libzstd-dev zstd)
drt_dependency(drt_lzma lzma.h liblzma-dev lzma)
drt_dependency(drt_snappy snappy-c.h libsnappy-dev snappy)
drt_dependency(drt_lz4 lz4frame.h liblz4-dev lz4)
drt_dependency(drt_brotli brotli/decode.h libbrotli-dev brotlidec)
drt_dependency(drt_xxhash xxhash.h libxxhash-dev xxhash)
drt_program_dependency(drt_microhttpd microhttpd.h libmicrohttpd-dev microhttpd)

# FAISS: the C library and the C++ library that it wraps. In .deps the headers are 1.11's, while Debian 12's own
# /usr/include/faiss has 1.7's, so headers and library are searched in the same prefix.
find_library(FAISS_C_LIBRARY NAMES faiss_c HINTS ${CMAKE_PREFIX_PATH} PATHS ${drt_local_prefix}/lib ${drt_local_prefix}/lib/${drt_multiarch})
if(NOT FAISS_C_LIBRARY)
  message(FATAL_ERROR "libfaiss_c was not found: run cmake/setup.sh (Debian 12: takes it from Debian 13), or build FAISS with FAISS_ENABLE_C_API and pass -DCMAKE_PREFIX_PATH")
endif()
get_filename_component(faiss_folder ${FAISS_C_LIBRARY} DIRECTORY)
find_library(FAISS_LIBRARY NAMES faiss HINTS ${faiss_folder} NO_DEFAULT_PATH)
find_path(FAISS_INCLUDE faiss/c_api/Index_c.h HINTS ${faiss_folder}/../include ${faiss_folder}/../../include NO_DEFAULT_PATH)
find_path(FAISS_INCLUDE faiss/c_api/Index_c.h)
add_library(drt_faiss INTERFACE)
target_include_directories(drt_faiss SYSTEM INTERFACE ${FAISS_INCLUDE})
target_link_libraries(drt_faiss INTERFACE ${FAISS_C_LIBRARY} ${FAISS_LIBRARY} drt_openblas OpenMP::OpenMP_CXX $<$<LINK_LANGUAGE:C>:stdc++>)

# Debian 13's archive needs some symbols that Debian 12's glibc and libstdc++ lack. One C++ object defines them and
# includes <iostream>, without which FAISS's error output crashes on Debian 12.
add_library(drt_faiss_compat OBJECT ${PROJECT_SOURCE_DIR}/cmake/faiss_compat.cpp)
if(FAISS_C_LIBRARY MATCHES "\\.a$")
  target_sources(drt_faiss_compat PRIVATE ${PROJECT_SOURCE_DIR}/cmake/faiss_error.cpp)
endif()
target_link_libraries(drt_faiss INTERFACE $<TARGET_OBJECTS:drt_faiss_compat>)
add_dependencies(drt_faiss drt_faiss_compat)
