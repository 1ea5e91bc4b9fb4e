#!/usr/bin/env bash
# run_bench.sh -- all benchmarks of the GPU, some four minutes on one H200, as JSON files in a folder.
#
#   tests/device/bench/run_bench.sh FOLDER OUT [PEERS]
#
# FOLDER: programs, made on a machine with the libraries by
#   tests/device/portable.sh --out FOLDER bench_device bench_device_corpus bench_train bench_ops bench_memory bench_lexical_scan \
#       bench_decode_step bench_attention
# OUT: to be copied to tests/bench/results/gpu, but for gpu-encode, gpu-token-kernel and gpu-memory: docs/kernels/ has those. PEERS: the PyTorch scripts of tests/bench/peers/peers.py; they need PyTorch and
# FOLDER/libgca.so (tests/device/bench/gca_library.sh). DRT_COMMIT: the commit of the programs, for the files.
# A failed benchmark is reported; the exit status is then 1.
set -u
[ $# -ge 2 ] || { echo "usage: tests/device/bench/run_bench.sh FOLDER OUT [PEERS]" >&2; exit 2; }
folder=$(realpath "$1") peers=${3:-} failed=0
mkdir -p "$2" || exit 1
out=$(realpath "$2")
[ -z "$peers" ] || peers=$(realpath "$peers")
cd "$(dirname "$0")/../../.." || exit 1
log=$(mktemp -d) || exit 1
trap 'rm -rf "$log"' EXIT
export LD_LIBRARY_PATH=$folder:/usr/local/cuda/lib64 PYTHONDONTWRITEBYTECODE=1
DRT_GPU=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
DRT_COMMIT=${DRT_COMMIT:-$(git describe --always --dirty --exclude '*' 2>/dev/null)}
export DRT_GPU DRT_COMMIT
step() { # name, seconds at most, command...: its figures go to OUT/gpu-<name>.json
    local name=$1 limit=$2 begin=$SECONDS; shift 2
    if timeout "$limit" "$@" --json "$out/gpu-$name.json" >"$log/$name.txt" 2>&1; then
        echo "ok      $name ($((SECONDS - begin)) s)"
    else
        local result=$?
        echo "FAILED  $name (exit $result$([ $result = 124 ] && echo ": stopped after $limit s")): $(tail -n 1 "$log/$name.txt")"
        failed=1
    fi
}
step decode 40 "$folder/bench_device" --device cuda --tokens 504 decode
step encode 40 "$folder/bench_device" --device cuda encode
step prefill 40 "$folder/bench_device" --device cuda prefill
step token-kernel 30 "$folder/bench_decode_step"
step attention 40 "$folder/bench_attention" 780
for model in base drt; do step "train-$model" 40 "$folder/bench_train" --device cuda --type bf16 --model $model; done
step topk 40 "$folder/bench_ops" --search
step lexical 60 "$folder/bench_lexical_scan"
step memory 40 "$folder/bench_memory" --short
step search 40 "$folder/bench_device_corpus" --device cuda --queries 1 search
step corpus 90 "$folder/bench_device_corpus" --device cuda decode
if [ -n "$peers" ]; then
    step peers 300 python3 tests/bench/peers/peers.py "$peers" "$folder" search encode decode
    step peer-gca 100 python3 tests/bench/peers/gca_peer.py "$folder/libgca.so"
fi
exit $failed
