#!/usr/bin/env bash
# portable.sh -- programs for a GPU machine that has the driver and CUDA 13's libraries but not our third-party libraries:
# built here with the static ones, stripped, and copied into one folder for that machine. OpenBLAS, which would be 36 MB of
# every program, is one shared library in that folder.
#
#   tests/device/portable.sh [--build FOLDER] [--out FOLDER] [--pack FILE.tgz] [--jobs N] [--as 80|90] [PROGRAM...]
#
# PROGRAM may be libdrt.so, for the Python package. Each program is some 15 MB, most of it kernels: --pack also writes the folder as one compressed file.
# --as N: the code for other GPUs, which also runs on Hopper: 80 for Ampere and for later GPUs, 90 (with clusters, without the tensor core
# instructions of sm_90a) as in a build for Blackwell.
# There: LD_LIBRARY_PATH=<out>:/usr/local/cuda/lib64 <out>/PROGRAM. The processor must have AVX-512 (x86-64-v4).
set -eu
cd "$(dirname "$0")/../.."
build=build-c-cuda out=build-c-carry pack= jobs=2 code=(-DDRT_CUDA_ARCHITECTURES=90a-real) programs=()
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift ;;
    --out) out=$2; shift ;;
    --pack) pack=$2; shift ;;
    --jobs) jobs=$2; shift ;;
    --as) code=(-DDRT_CUDA_ARCHITECTURES=OFF "-DCMAKE_CUDA_FLAGS=-gencode arch=compute_$2,code=sm_90"); shift ;;
    -*) echo "usage: tests/device/portable.sh [--build FOLDER] [--out FOLDER] [--pack FILE.tgz] [--jobs N] [--as 80|90] [PROGRAM...]" >&2; exit 2 ;;
    *) programs+=("$1") ;;
    esac
    shift
done
[ ${#programs[@]} -gt 0 ] || programs=(drt-train drt-eval drt-generate)
libraries=/usr/lib/$(${CC:-cc} -dumpmachine)
static=()
lmdb=liblmdb.a
for program in "${programs[@]}"; do
    [ "$program" != libdrt.so ] || lmdb=liblmdb.so # Debian's archive is not made for shared libraries
done
for pair in LMDB:$lmdb PCRE2:libpcre2-8.a UTF8PROC:libutf8proc.a ZLIB:libz.a ZSTD:libzstd.a LZMA:liblzma.a XXHASH:libxxhash.a; do
    static+=("-DDRT_${pair%%:*}_LIBRARY=$libraries/${pair#*:}")
done
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDRT_CUDA=ON "${code[@]}" \
    -DDRT_MARCH=x86-64-v4 "${static[@]}" \
    "-DDRT_OPENBLAS_LIBRARY=$libraries/openblas-pthread/libopenblas.so" \
    "-DCMAKE_EXE_LINKER_FLAGS=-static-libstdc++ -static-libgcc" >/dev/null
nice -n 5 ninja -C "$build" -j "$jobs" "${programs[@]/#libdrt.so/drt_shared}"
mkdir -p "$out"
for program in "${programs[@]}"; do
    made=$(find "$build" -type f -name "${program/#libdrt.so/libdrt.so.1.*}" -perm -u+x | head -n 1)
    strip -o "$out/$program" "$made"
done
# Every shared library that a program needs, except those of the C library and of CUDA, which the GPU machine has.
for program in "${programs[@]}"; do
    ldd "$out/$program" | sed -n 's#.* => \(/.*\) (.*#\1#p' |
        grep -vE "/lib(c|m|dl|pthread|rt|cudart|cublas|cublasLt|nccl)\.so" | xargs -r cp -uLt "$out"
done
du -sh "$out" | cut -f 1
[ -z "$pack" ] || { mkdir -p "$(dirname "$pack")" && tar czf "$pack" -C "$out" . && ls -l "$pack"; }
