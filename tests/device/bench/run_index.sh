#!/usr/bin/env bash
# run_index.sh -- times the making of an index (drt-index index) over a store of random clustered landmarks, on one GPU and on all GPUs of the
# host, by drt-index index and by repair, compares their bytes, and measures recall.
#
#   tests/device/bench/run_index.sh FOLDER [--chunks N] [--dim N] [--index FACTORY] [--max-ram SIZE] [--work DIR] [--queries N]
#       [--device cuda|cpu] [--cpu]
#
# FOLDER has drt-index and bench_index (tests/device/portable.sh --out FOLDER drt-index bench_index). The store is in DIR (/dev/shm), where
# about 4 bytes are needed for each number of a landmark: 25 GB for 16,000,000 chunks of 384. --cpu: also FAISS's assignment on the CPU. One
# line for each result, after it the seconds of each stage; the exit status is 1 if bytes differ or a command fails.
set -u
here=$(cd "$(dirname "$0")/../../.." && pwd)
chunks=16000000 dim=384 index=IVF65536_HNSW32,SQ8 max_ram=24G work=/dev/shm queries=200 device=cuda cpu=
. "$here/tests/device/bench/options.sh"
options_read "chunks dim index max-ram work queries device" "cpu" "$@"
failed=0
"$folder/bench_index" "$work/store" "$chunks" "$dim" || { echo "FAILED bench_index"; exit 1; }

build() { # NAME COMMAND OPTIONS...: index, or repair, which makes the index by the same functions
    local name=$1 command=$2
    shift 2
    "$folder/drt-index" repair --store "$work/store" --index exact >/dev/null 2>&1 || { echo "FAILED repair"; exit 1; }
    seconds "$folder/drt-index" "$command" --store "$work/store" --index "$index" --max-ram "$max_ram" --log-json "$@" ||
        { echo "FAILED $command $name: $(tail -n 1 "$work/err")"; failed=1; return 1; }
    awk -v name="$command $name" -v index_name="$index" -v chunks="$chunks" -v s="$took" \
        'BEGIN { printf "%s: %s of %d chunks in %.2f s of the program, %.2f M chunks/s\n", name, index_name, chunks, s, chunks / s / 1e6 }'
    stages "$work/err"
    digest=$(find "$work/store/index" -type f -name '*.faiss' | sort | tail -n 1 | xargs sha256sum | cut -c 1-32)
    ls -l "$work/store/index" | awk '/faiss/ { print "  " $NF, $5 }'
}

equal() { # NAME: the bytes of the last index are those of the first
    [ "$one" = "$digest" ] && echo "bytes: equal ($1, $one)" || { echo "bytes: DIFFERENT ($1: $one, $digest)"; failed=1; }
}
build one index --device "$device"
one=$digest
build one repair --device "$device" && equal repair
if [ "$host_gpus" -gt 1 ]; then
    build all index --devices all && equal "all GPUs"
    build all repair --devices all && equal "repair, all GPUs"
fi
recall() {
    "$folder/drt-index" recall --store "$work/store" --queries "$queries" --k 8 --nprobe 0,16,64 --exclude doc 2>"$work/recall.err" ||
        { echo "FAILED recall: $(tail -n 1 "$work/recall.err")"; failed=1; }
}
recall
if [ -n "$cpu" ]; then
    build cpu index --device "$device" --assign cpu
    recall
fi
exit $failed
