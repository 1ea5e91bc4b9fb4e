# kernels_only.cmake -- builds base, kernels and tests/device with only libc (and CUDA), for GPU machines without FAISS,
# LMDB and the other libraries. OpenBLAS and xxHash are used if they are found. Without OpenBLAS,
# kernels/linear/blas_cpu.c computes the CPU's products; without xxHash, files that need it (params, block, both towers)
# are left out.
find_package(Threads REQUIRED)
find_path(DRT_CBLAS_INCLUDE cblas.h PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE} openblas)
find_library(DRT_OPENBLAS openblas)
find_path(DRT_XXHASH_INCLUDE xxhash.h HINTS ${PROJECT_SOURCE_DIR}/.carry)

add_library(drt_openblas INTERFACE)
if(DRT_CBLAS_INCLUDE AND DRT_OPENBLAS)
  target_include_directories(drt_openblas SYSTEM INTERFACE ${DRT_CBLAS_INCLUDE})
  target_link_libraries(drt_openblas INTERFACE ${DRT_OPENBLAS})
  target_compile_definitions(drt_openblas INTERFACE DRT_OPENBLAS)
endif()

drt_library(base Threads::Threads m)
drt_library(kernels drt_base drt_openblas ${DRT_CUDA_LIBRARIES})
if(DRT_XXHASH_INCLUDE)
  drt_library(model drt_kernels)
  target_include_directories(drt_model SYSTEM PRIVATE ${DRT_XXHASH_INCLUDE})
  target_compile_definitions(drt_model PRIVATE XXH_INLINE_ALL)
  drt_library(encoder drt_model)
  drt_library(decoder drt_model)
else()
  message(STATUS "xxHash was not found: without model/ and the towers")
endif()
enable_testing()
add_subdirectory(tests/device)
