# What --version prints (shared/version.c): the project's version, the commit of the sources, and what CUDA code was compiled with.
# The commit is that of the last configure run: a new commit alone builds nothing again. "" where git or the history is missing,
# also where the sources lie inside the checkout of another project.
set(drt_commit "")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${PROJECT_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${PROJECT_SOURCE_DIR} describe --always --dirty=+changes --abbrev=12 --exclude *
                  OUTPUT_VARIABLE drt_commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE drt_git_failed)
  if(drt_git_failed)
    set(drt_commit "")
  endif()
endif()
set(drt_cuda_version "")
if(drt_cuda_on)
  string(REPLACE ";" " " drt_cuda_architectures "${DRT_CUDA_ARCHITECTURES}")
  set(drt_cuda_version "${CUDAToolkit_VERSION}, compiled for ${drt_cuda_architectures}")
endif()
set_source_files_properties(shared/version.c PROPERTIES COMPILE_DEFINITIONS
  "DRT_VERSION=\"${PROJECT_VERSION}\";DRT_COMMIT=\"${drt_commit}\";DRT_CUDA_VERSION=\"${drt_cuda_version}\";DRT_MARCH=\"${DRT_MARCH}\"")
