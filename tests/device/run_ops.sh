#!/usr/bin/env bash
# run_ops.sh -- on a GPU machine, from any folder of the checkout: builds kernels and tests/device, runs the tests of ops, a short form of
# them under compute-sanitizer, and the benchmark; prints a summary.
#
#   tests/device/run_ops.sh [--no-sanitizer] [--no-bench] [--build FOLDER]
set -u
cd "$(dirname "$0")/../.." || exit 1
sanitizer=yes bench=yes build=build-device
while [ $# -gt 0 ]; do
    case $1 in
    --no-sanitizer) sanitizer=no ;;
    --no-bench) bench=no ;;
    --build) build=$2; shift ;;
    *) echo "usage: tests/device/run_ops.sh [--no-sanitizer] [--no-bench] [--build FOLDER]" >&2; exit 2 ;;
    esac
    shift
done
export PATH=$PATH:/usr/local/cuda/bin
log=${OUT:-/tmp}
summary=() failed=0
step() { # name, command...
    local name=$1 begin=$SECONDS result; shift
    "$@" >"$log/$name.log" 2>&1
    result=$?
    if [ $result = 0 ]; then summary+=("ok      $name ($((SECONDS - begin)) s)")
    elif [ $result = 77 ]; then summary+=("skipped $name: $(tail -n 1 "$log/$name.log")")
    else summary+=("FAILED  $name ($((SECONDS - begin)) s): $(grep -v '^$' "$log/$name.log" | tail -n 2 | tr '\n' ' ')"); failed=1; return 1; fi
}
build() {
    local capability; capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
    case $capability in "" | 90) capability=90a ;; esac
    cmake -S . -B "$build" -DDRT_KERNELS_ONLY=ON -DDRT_CUDA=ON -DCMAKE_BUILD_TYPE=Release \
        -DDRT_CUDA_ARCHITECTURES="$capability-real" && cmake --build "$build" -j "$(nproc)"
}
if step build build; then
    for test in ops landmark loss topk ivf_scan lexical_scan hybrid decode_rows pick; do step "test_$test" "$build/tests/device/test_${test}_on_device"; done
    if [ $sanitizer = yes ] && command -v compute-sanitizer >/dev/null; then
        for test in ops landmark loss topk ivf_scan lexical_scan hybrid decode_rows pick; do # test_ops makes calls fail on purpose, so only errors of kernels count
            step "memcheck_$test" timeout 120 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
                "$build/tests/device/test_${test}_on_device" 5 short
        done
        step racecheck_topk timeout 120 compute-sanitizer --tool racecheck --error-exitcode 9 "$build/tests/device/test_topk_on_device" 5 short
    fi
    [ $bench = yes ] && step bench timeout 200 "$build/tests/device/bench_ops" && cat "$log/bench.log"
fi
printf '%s\n' "${summary[@]}"
exit $failed
