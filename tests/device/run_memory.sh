#!/usr/bin/env bash
# run_memory.sh -- on a GPU machine, from any folder of the checkout: builds kernels and the programs of token memories, runs their test, a
# short form of it under compute-sanitizer, and their benchmark; prints a summary. --ampere: the test once more with the code for an A100
# (another build of all kernels).
#
#   tests/device/run_memory.sh [--no-sanitizer] [--no-bench] [--ampere] [--build FOLDER]
set -u
cd "$(dirname "$0")/../.." || exit 1
sanitizer=yes bench=yes ampere=no build=build-device
while [ $# -gt 0 ]; do
    case $1 in
    --no-sanitizer) sanitizer=no ;;
    --no-bench) bench=no ;;
    --ampere) ampere=yes ;;
    --build) build=$2; shift ;;
    *) echo "usage: tests/device/run_memory.sh [--no-sanitizer] [--no-bench] [--ampere] [--build FOLDER]" >&2; exit 2 ;;
    esac
    shift
done
export PATH=$PATH:/usr/local/cuda/bin
log=${OUT:-/tmp} test=test_token_memory_on_device
summary=() failed=0
step() { # name, command...
    local name=$1 begin=$SECONDS result; shift
    "$@" >"$log/$name.log" 2>&1
    result=$?
    if [ $result = 0 ]; then summary+=("ok      $name ($((SECONDS - begin)) s)")
    elif [ $result = 77 ]; then summary+=("skipped $name: $(tail -n 1 "$log/$name.log")")
    else summary+=("FAILED  $name ($((SECONDS - begin)) s): $(grep -v '^$' "$log/$name.log" | tail -n 4 | tr '\n' ' ')"); failed=1; return 1; fi
}
build() { # folder, cmake's choice of code...
    local folder=$1; shift
    cmake -S . -B "$folder" -DDRT_KERNELS_ONLY=ON -DDRT_CUDA=ON -DCMAKE_BUILD_TYPE=Release "$@" &&
        cmake --build "$folder" -j "$(nproc)" --target $test bench_memory
}
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
case $capability in "" | 90) capability=90a ;; esac
if step build build "$build" -DDRT_CUDA_ARCHITECTURES="$capability-real"; then
    for seed in 1 2 3; do step test_$seed "$build/tests/device/$test" $seed; done
    if [ $sanitizer = yes ] && command -v compute-sanitizer >/dev/null; then
        step memcheck timeout 200 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/tests/device/$test" 5 short
    fi
    [ $bench = yes ] && step bench timeout 200 "$build/tests/device/bench_memory" && cat "$log/bench.log"
fi
if [ $ampere = yes ] && step build_ampere build "$build-80" -DDRT_CUDA_ARCHITECTURES=OFF \
    "-DCMAKE_CUDA_FLAGS=-gencode arch=compute_80,code=sm_${capability%a}"; then
    step test_ampere "$build-80/tests/device/$test"
fi
printf '%s\n' "${summary[@]}"
exit $failed
