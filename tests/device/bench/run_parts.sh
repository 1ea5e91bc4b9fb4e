#!/usr/bin/env bash
# run_parts.sh -- a store of many parts on one host, from token ids to recall: parts are built at the same time, each on its own GPU, joined,
# indexed by all GPUs, and searched by the index and exactly, by a slice on each GPU.
#
#   tests/device/bench/run_parts.sh FOLDER [--gpus N] [--tokens N] [--corpus FILE.u16] [--parts N] [--landmarks f16|i8] [--index FACTORY]
#       [--nprobe P,P,..] [--queries N] [--max-ram SIZE] [--work DIR] [--model DIR]
#
# FOLDER has drt-index, bench_index and bench_codes (tests/device/portable.sh --out FOLDER drt-index bench_index bench_codes). The corpus has N
# tokens (4000000000): copies of FILE (without it: made ids), in each of which one of eight ids is replaced by another one of FILE. DIR
# (/dev/shm) needs 23 bytes a token with f16 and 384 dimensions: 92 GB. --gpus (all): 0 computes on the CPU. --parts: as many as GPUs (2 on the
# CPU), which share the processors. --landmarks f16 (the default): GPUs search rows as they are stored, and i8 would be other numbers. --index:
# by the number of chunks. --queries (1000): the model's, after windows of FILE. One line for each result; the exit status is 1 if a command fails.
set -u
here=$(cd "$(dirname "$0")/../../.." && pwd)
gpus= tokens=4000000000 corpus= parts= landmarks=f16 index= nprobe=16,64,256,1024 queries=1000 max_ram= work=/dev/shm model=$here/data/models/drt-28m
. "$here/tests/device/bench/options.sh"
options_read "gpus tokens corpus parts landmarks index nprobe queries max-ram work model" "" "$@"
gpus=${gpus:-$host_gpus}
[ "$gpus" -le "$host_gpus" ] || { echo "--gpus $gpus: the host has $host_gpus" >&2; exit 2; }
parts=${parts:-$((gpus > 0 ? gpus : 2))}
IFS=, read -ra visible <<<"${CUDA_VISIBLE_DEVICES:-$(seq -s , 0 63)}"
one=(--device cpu) all=(--device cpu) device=cpu
[ "$gpus" -eq 0 ] || { one=(--device cuda) all=(--devices "$(seq -s , 0 $((gpus - 1)))") device=cuda; }
running=()
cores=$(($(nproc) / parts > 0 ? $(nproc) / parts : 1))
begin=$EPOCHREALTIME
since() { awk "BEGIN { printf \"%.2f\", $EPOCHREALTIME - $1 }"; }
failed() { # WHAT FILE: ends the script, and parts that still run
    kill "${running[@]}" 2>/dev/null
    echo "FAILED $1: $(tail -c 600 "$2")"
    exit 1
}

# measured COMMAND...: as `seconds`; also sets `resident`, the MiB of the largest resident set.
measured() {
    python3 - "$work/use" "$@" >"$work/out" 2>"$work/err" <<'PYTHON'
import resource, subprocess, sys, time
start = time.monotonic()
code = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL).returncode
with open(sys.argv[1], "w") as out:
    print(f"{time.monotonic() - start:.2f} {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024}", file=out)
sys.exit(code)
PYTHON
    local code=$?
    read -r took resident <"$work/use"
    return $code
}

# ---- the corpus
if [ -z "$corpus" ]; then
    corpus=$work/source.u16
    "$folder/bench_index" --tokens "$corpus" $((tokens < 61600000 ? tokens : 61600000)) >/dev/null || exit 1
fi
seconds "$folder/bench_index" --edit "$corpus" "$work/corpus.u16" "$tokens" || failed corpus "$work/err"
echo "corpus: $(tail -n 1 "$work/out"), $took s, $(stat -c %s "$work/corpus.u16") bytes"

# ---- parts
part() { # NUMBER: builds it, on its GPU and its share of the processors
    local i=$1 pin=()
    [ $((cores * parts)) -gt "$(nproc)" ] || ! command -v taskset >/dev/null || pin=(taskset -c $((cores * (i - 1)))-$((cores * i - 1)))
    [ "$gpus" -eq 0 ] || export CUDA_VISIBLE_DEVICES=${visible[$(((i - 1) % gpus))]}
    "${pin[@]}" "$folder/drt-index" build "$work/corpus.u16" --part "$i/$parts" --out "$work/parts" --model "$model" --eod-id 0 \
        --landmarks "$landmarks" --threads "$cores" "${one[@]}" ${max_ram:+--max-ram "$max_ram"} >"$work/part-$i.out" 2>"$work/part-$i.err"
}
mkdir "$work/parts"
start=$EPOCHREALTIME
for i in $(seq "$parts"); do
    part "$i" &
    running+=($!)
done
for i in $(seq "$parts"); do wait "${running[$((i - 1))]}" || failed "part $i" "$work/part-$i.err"; done
took=$(since "$start")
for i in $(seq "$parts"); do echo "  part $i: $(tail -n 1 "$work/part-$i.out")"; done
awk -v parts="$parts" -v tokens="$tokens" -v s="$took" -v type="$landmarks" \
    'BEGIN { printf "parts: %d with landmarks %s in %.2f s, %.1f M tokens/s in all\n", parts, type, s, tokens / s / 1e6 }'

# ---- join
measured "$folder/drt-index" join "$work"/parts/part-* --out "$work/store" || failed join "$work/err"
echo "join: $took s, $resident MiB resident at most; $(sed -n '2,3s/^ *//p' "$work/out" | tr '\n' ' ')"
rm -r "$work/parts" "$work/corpus.u16"
"$folder/drt-index" verify --store "$work/store" >"$work/out" 2>"$work/err" && echo "verify: no problem" || failed verify "$work/err"
"$folder/drt-index" stats --store "$work/store" | grep -E '^(shards|catalog|a chunk)' | sed 's/^/  /'
chunks=$("$folder/drt-index" stats --store "$work/store" --json | sed -n 's/.*"chunks":\([0-9]*\).*/\1/p')

# ---- index: some 400 to 1,000 chunks a list; memory for all codes, twice
if [ -z "$index" ]; then
    lists=64
    while [ $((lists * 800)) -lt "$chunks" ] && [ "$lists" -lt 65536 ]; do lists=$((lists * 2)); done
    index=IVF$lists$([ "$lists" -lt 4096 ] || echo _HNSW32),SQ8
fi
measured "$folder/drt-index" index --store "$work/store" --index "$index" --max-ram "$((chunks * 900 / 1000000 + 4096))M" --log-json "${all[@]}" ||
    failed index "$work/err"
awk -v index_name="$index" -v chunks="$chunks" -v s="$took" \
    'BEGIN { printf "index: %s of %d chunks in %.2f s, %.2f M chunks/s\n", index_name, chunks, s, chunks / s / 1e6 }'
stages "$work/err"
"$folder/drt-index" stats --store "$work/store" | grep -E '^index' | sed 's/^/  /'

# ---- search
"$folder/bench_codes" "$model" "$corpus" "$queries" "$device" "$work/queries.fbin" >"$work/out" 2>"$work/err" || failed queries "$work/err"
search() { # NAME OPTIONS...
    local name=$1
    shift
    seconds "$folder/drt-index" search --queries "$work/queries.fbin" --store "$work/store" --model "$model" --k 8 --json "$@" ||
        failed "search $name" "$work/err"
    cp "$work/out" "$work/$name.json"
    echo "search $name: $(grep -a queries "$work/err" | tr '\r' '\n' | grep -a opening | tail -n 1 | sed 's/^drt-index search: //')"
    grep -a "on the GPU" "$work/err" | sed 's/^/  /'
}
search exact --exact "${all[@]}"
IFS=, read -ra counts <<<"$nprobe"
for lists in "${counts[@]}"; do
    search "nprobe-$lists" --device cpu --nprobe "$lists"
    python3 - "$work/exact.json" "$work/nprobe-$lists.json" "$lists" <<'PYTHON' || exit 1
import json, sys
def hits(path):
    return {q["query"]: [h["chunk"] for h in q["hits"]] for q in map(json.loads, open(path))}
exact, found = hits(sys.argv[1]), hits(sys.argv[2])
if exact.keys() != found.keys() or not exact:
    sys.exit("search: other queries were answered")
wanted = sum(map(len, exact.values()))
print(f"recall@8: {sum(len(set(exact[q]) & set(found[q])) for q in exact) / wanted:.4f} of {len(exact)} queries, {sys.argv[3]} lists")
PYTHON
done
echo "all: $(since "$begin") s"
