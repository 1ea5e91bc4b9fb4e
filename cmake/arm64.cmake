# arm64.cmake -- toolchain file for building for 64-bit ARM Linux on another machine (preset arm64). It needs the cross
# compiler (Debian: g++-aarch64-linux-gnu) and a folder with arm64's libraries: cmake/arm64/sysroot.sh makes .deps-arm64.
# qemu-aarch64 (Debian: qemu-user-static) runs the tests, and the programs that the build runs.
#
#   cmake/arm64/run.sh                     makes the folder, builds, and runs the tests
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
get_filename_component(drt_arm64_root ${CMAKE_CURRENT_LIST_DIR}/../.deps-arm64 ABSOLUTE)
set(CMAKE_SYSROOT ${drt_arm64_root} CACHE PATH "folder with the arm64 libraries (cmake/arm64/sysroot.sh)")
if(NOT IS_DIRECTORY ${CMAKE_SYSROOT}/usr/lib)
  message(FATAL_ERROR "no arm64 libraries in ${CMAKE_SYSROOT}: run cmake/arm64/sysroot.sh, or pass -DCMAKE_SYSROOT of an arm64 system")
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# Default: the emulator's "max" processor, which has all features that the code tests for at run time.
find_program(DRT_QEMU_ARM64 NAMES qemu-aarch64-static qemu-aarch64)
set(DRT_QEMU_CPU "max" CACHE STRING "processor that qemu-aarch64 emulates: max, cortex-a72 (no bf16), ...")
if(DRT_QEMU_ARM64)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${DRT_QEMU_ARM64} -cpu ${DRT_QEMU_CPU} -L ${CMAKE_SYSROOT})
endif()
