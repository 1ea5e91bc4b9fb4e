#!/usr/bin/env bash
# The attention kernels on a machine with a GPU: builds (unless the folder given holds the programs), checks, times.
#   tests/device/run_attention.sh [FOLDER]
# from the repository's root; needs nvcc and gcc only.
set -u -o pipefail
out=${1:-build-attention}
mkdir -p "$out"
if [ ! -x "$out/bench_attention" ]; then
    flags="-std=c++20 -O3 -I. -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a"
    for source in kernels/attend_cuda kernels/gca_cuda kernels/attention_cuda kernels/chunk_attention_cuda \
        tests/device/test_attention_device tests/device/bench_attention tests/device/bench_ceiling; do
        nvcc $flags -c $source.cu -o "$out/$(basename $source).o" &
    done
    gcc -std=gnu2x -O2 -I. -D_GNU_SOURCE -c tests/ref/ref_double.c -o "$out/ref_double.o"
    wait
    twins="$out/attend_cuda.o $out/gca_cuda.o $out/attention_cuda.o $out/chunk_attention_cuda.o"
    nvcc "$out/test_attention_device.o" $twins "$out/ref_double.o" -o "$out/test_attention" -lm || exit 1
    nvcc "$out/bench_ceiling.o" -o "$out/bench_ceiling" -lcublas || exit 1
    nvcc "$out/bench_attention.o" $twins -o "$out/bench_attention" || exit 1
fi
"$out/test_attention"
result=$?
mapfile -t card < <("$out/bench_ceiling")
echo "bf16 product ${card[0]:-unknown} TFLOP/s, copy ${card[1]:-unknown} GB/s"
"$out/bench_attention" "${card[0]:-798}"
exit $result
