#!/usr/bin/env bash
# The attention kernels on a machine with a GPU: builds them (unless FOLDER has the programs), checks and times them. The checks run a
# second time with the code for an A100 (sm_80), which any later GPU can run.
#   tests/device/run_attention.sh [FOLDER]
# from the repository's root; needs nvcc and gcc only.
set -u -o pipefail
out=${1:-build-attention}
mkdir -p "$out"
if [ ! -x "$out/bench_attention" ]; then
    flags="-std=c++20 -O3 -I." here="-gencode arch=compute_90a,code=sm_90a" ampere="-gencode arch=compute_80,code=compute_80"
    twins="attend window gca attention chunk_attention"
    for twin in $twins; do
        source=kernels/attention/${twin}_cuda.cu
        [ -f $source ] || source=kernels/attention/$twin/${twin}_cuda.cu
        nvcc $flags $here -gencode arch=compute_80,code=sm_80 -c $source -o "$out/$twin.o" &
        nvcc $flags $ampere -c $source -o "$out/$twin-80.o" &
    done
    for source in attention/test_attention_device bench/bench_attention bench/bench_ceiling; do
        nvcc $flags -c tests/device/$source.cu -o "$out/$(basename $source).o" &
    done
    # result.c, which writes the figures of --json, needs the commit, and files, JSON and memory of base/ alone.
    for source in tests/ref/ref_double tests/bench/result base/{crc32c,file,memory,printable,status} \
        base/formats/{json,json_write,text} base/system/{control_groups,fault,processors,threads}; do
        gcc -std=gnu2x -O2 -I. -D_GNU_SOURCE -c $source.c -o "$out/$(basename $source).o"
    done
    cmake -DSOURCE="$PWD" -DOUT="$(realpath "$out")/build_version_commit.c" -P cmake/commit.cmake
    gcc -c "$out/build_version_commit.c" -o "$out/build_version_commit.o"
    results=$(printf "$out/%s.o " result crc32c file memory printable status json json_write text build_version_commit control_groups fault processors threads)
    wait
    objects() { printf "$out/%s$1.o " $twins; }
    nvcc $here "$out/test_attention_device.o" $(objects "") "$out/ref_double.o" -o "$out/test_attention" -lm || exit 1
    nvcc $ampere "$out/test_attention_device.o" $(objects -80) "$out/ref_double.o" -o "$out/test_attention_80" -lm || exit 1
    nvcc "$out/bench_ceiling.o" $results -o "$out/bench_ceiling" -lcublas || exit 1
    nvcc $here "$out/bench_attention.o" $(objects "") $results -o "$out/bench_attention" || exit 1
fi
result=0
"$out/test_attention" || result=1
echo "the code for sm_80:"
"$out/test_attention_80" 80 || result=1
mapfile -t card < <("$out/bench_ceiling")
echo "bf16 product ${card[0]:-unknown} TFLOP/s, copy ${card[1]:-unknown} GB/s"
"$out/bench_attention" "${card[0]:-798}"
exit $result
