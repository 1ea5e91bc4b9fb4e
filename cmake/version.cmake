# version.cmake -- the versions that session/build_version.c reports. The commit is read in each build, the others when the
# build is configured.
set(drt_commit_source ${PROJECT_BINARY_DIR}/generated/build_version_commit.c)
add_custom_target(drt_commit BYPRODUCTS ${drt_commit_source} VERBATIM
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUT=${drt_commit_source} -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake)
add_library(drt_commit_text STATIC ${drt_commit_source})  # also of benchmarks, whose results name it
add_dependencies(drt_commit_text drt_commit)
if(NOT TARGET drt_session)                               # a build of kernels alone
  return()
endif()
target_link_libraries(drt_session PUBLIC drt_commit_text)
set(drt_cuda_version "")
if(drt_cuda_on)
  set(drt_cuda_version ${CUDAToolkit_VERSION})
  string(REPLACE ";" " " drt_cuda_architectures "${DRT_CUDA_ARCHITECTURES}")
endif()
set_source_files_properties(${PROJECT_SOURCE_DIR}/session/build_version.c PROPERTIES COMPILE_DEFINITIONS
  "DRT_MARCH=\"${DRT_MARCH}\";DRT_CUDA_ARCHITECTURES=\"${drt_cuda_architectures}\";DRT_VERSION_MAJOR=${PROJECT_VERSION_MAJOR};DRT_VERSION_MINOR=${PROJECT_VERSION_MINOR};DRT_VERSION_PATCH=${PROJECT_VERSION_PATCH};DRT_CUDA_VERSION=\"${drt_cuda_version}\"")
