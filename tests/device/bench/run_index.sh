#!/usr/bin/env bash
# run_index.sh -- times the making of an index (drt-index index) over a store of random clustered landmarks, on one GPU and on all GPUs of the
# host, compares their bytes, and measures recall.
#
#   tests/device/bench/run_index.sh FOLDER [--chunks N] [--dim N] [--index FACTORY] [--max-ram SIZE] [--work DIR] [--queries N] [--cpu]
#
# FOLDER has drt-index and bench_index (tests/device/portable.sh --out FOLDER drt-index bench_index). The store is in DIR (/dev/shm), where
# about 4 bytes are needed for each number of a landmark: 25 GB for 16,000,000 chunks of 384. --cpu: also FAISS's assignment on the CPU. One
# line for each result, after it the seconds of each stage; the exit status is 1 if bytes differ or a command fails.
set -u
usage() { sed -n 's/^#   tests/usage: tests/p' "$0" >&2; exit 2; }
[ $# -gt 0 ] && [ -d "$1" ] || usage
folder=$(cd "$1" && pwd)
shift
chunks=16000000 dim=384 index=IVF65536_HNSW32,SQ8 ram=24G work=/dev/shm queries=200 cpu=
while [ $# -gt 0 ]; do
    case $1 in
    --chunks) chunks=$2 ;; --dim) dim=$2 ;; --index) index=$2 ;; --max-ram) ram=$2 ;; --work) work=$2 ;; --queries) queries=$2 ;;
    --cpu) cpu=1; shift; continue ;;
    *) usage ;;
    esac
    shift 2
done
export LD_LIBRARY_PATH=$folder:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
work=$work/run_index.$$
mkdir -p "$work" || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
[ -z "${CUDA_VISIBLE_DEVICES:-}" ] || gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l)
echo "host: $gpus GPUs ($(nvidia-smi -L 2>/dev/null | head -n 1 | cut -d '(' -f 1)), $(nproc) processors"
"$folder/bench_index" "$work/store" "$chunks" "$dim" || { echo "FAILED bench_index"; exit 1; }

build() { # NAME OPTIONS...
    local name=$1 begin end
    shift
    "$folder/drt-index" repair --store "$work/store" --index exact >/dev/null 2>&1 || { echo "FAILED repair"; exit 1; }
    begin=$(date +%s.%N)
    "$folder/drt-index" index --store "$work/store" --index "$index" --max-ram "$ram" --log-json "$@" >"$work/$name.out" 2>"$work/$name.err" ||
        { echo "FAILED index $name: $(tail -n 1 "$work/$name.err")"; failed=1; return 1; }
    end=$(date +%s.%N)
    awk -v name="$name" -v index_name="$index" -v chunks="$chunks" -v s="$(awk "BEGIN { print $end - $begin }")" \
        'BEGIN { printf "index %s: %s of %d chunks in %.2f s of the program, %.2f M chunks/s\n", name, index_name, chunks, s, chunks / s / 1e6 }'
    # the last object of each stage, with the time of the day at which it was written
    awk -F '"stage":"' '/"event":"progress"/ { split($2, stage, "\""); if (!(stage[1] in last)) order[++n] = stage[1]; last[stage[1]] = $0 }
        END { for (i = 1; i <= n; i++) { seconds = last[order[i]]; sub(/.*"seconds":/, "", seconds); sub(/[,}].*/, "", seconds)
              time = last[order[i]]; sub(/.*"time":"[^T]*T/, "", time); sub(/Z.*/, "", time)
              printf "  %s: %.2f s, ended %s\n", order[i], seconds, time } }' "$work/$name.err"
    [ "$gpus" -lt 2 ] || digest=$(find "$work/store/index" -type f -name '*.faiss' | sort | tail -n 1 | xargs sha256sum | cut -c 1-32)
    ls -l "$work/store/index" | awk '/faiss/ { print "  " $NF, $5 }'
}

digest=
build one --device cuda
one=$digest
if [ "$gpus" -gt 1 ]; then
    build all --devices all
    [ "$one" = "$digest" ] && echo "bytes: equal ($one)" || { echo "bytes: DIFFERENT ($one, $digest)"; failed=1; }
fi
recall() {
    "$folder/drt-index" recall --store "$work/store" --queries "$queries" --k 8 --nprobe 0,16,64 --exclude doc 2>"$work/recall.err" ||
        { echo "FAILED recall: $(tail -n 1 "$work/recall.err")"; failed=1; }
}
recall
if [ -n "$cpu" ]; then
    build cpu --device cuda --assign cpu
    recall
fi
exit $failed
