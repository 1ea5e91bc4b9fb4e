#!/usr/bin/env bash
# run_words.sh -- times drt-index build on one GPU from token ids, without the lexical index, with it, and with it made afterwards, and
# compares the bytes of the last two.
#
#   tests/device/bench/run_words.sh FOLDER [--tokens N] [--text BYTES] [--work DIR] [--model DIR] [--max-ram SIZE]
#
# FOLDER has drt-index and bench_index (tests/device/portable.sh --out FOLDER drt-index bench_index). The corpus is FOLDER/*.u16, or without
# such files N ids (400000000) with the frequencies of text. DIR (/dev/shm) needs 25 bytes a token. Then builds from BYTES (2000000000; 0: none)
# of text: jsonl.zst with --threads 1 (a tenth of it), on 16 processors and on all. One line for each result.
set -u
here=$(cd "$(dirname "$0")/../../.." && pwd)
usage() { sed -n 's/^#   tests/usage: tests/p' "$0" >&2; exit 2; }
[ $# -gt 0 ] && [ -d "$1" ] || usage
folder=$(cd "$1" && pwd)
shift
tokens=400000000 work=/dev/shm model=$here/data/models/drt-28m ram=24G device=cuda text=2000000000
while [ $# -gt 1 ]; do
    case $1 in
    --tokens) tokens=$2 ;; --text) text=$2 ;; --work) work=$2 ;; --model) model=$2 ;; --max-ram) ram=$2 ;; --device) device=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[ $# = 0 ] || usage
export LD_LIBRARY_PATH=$folder:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
work=$work/run_words.$$
mkdir -p "$work" || exit 1
trap 'rm -rf "$work"' EXIT
echo "host: $(nvidia-smi -L 2>/dev/null | head -n 1 | cut -d '(' -f 1), $(nproc) processors"
corpus=("$folder"/*.u16)
if [ ! -s "${corpus[0]}" ]; then
    corpus=("$work/corpus.u16")
    "$folder/bench_index" --tokens "$work/corpus.u16" "$tokens" || exit 1
fi
tokens=$(($(cat "${corpus[@]}" | wc -c) / 2))
timed() { # NAME COMMAND...
    local name=$1 begin end
    shift
    begin=$(date +%s.%N)
    "$@" >"$work/$name.log" 2>"$work/$name.err" || { echo "FAILED $name: $(tail -c 600 "$work/$name.err")"; exit 1; }
    end=$(date +%s.%N)
    awk -v name="$name" -v tokens="$tokens" -v s="$(awk "BEGIN { print $end - $begin }")" -v report="$(tail -n 1 "$work/$name.log")" \
        'BEGIN { printf "%s: %.2f s of the program, %.1f M tokens/s (%s)\n", name, s, tokens / s / 1e6, report }'
}
build() { # NAME OPTIONS...
    local name=$1
    shift
    rm -rf "$work/store-$name"
    timed "$name" "$folder/drt-index" build "${corpus[@]}" --out "$work/store-$name" --model "$model" --eod-id 0 --index exact --device $device \
        --max-ram "$ram" "$@"
}
build warm --lexical off
build off --lexical off
rm -rf "$work/store-warm"
build on --lexical on
timed afterwards "$folder/drt-index" lexical --store "$work/store-off" --max-ram "$ram"
cmp "$work"/store-o*/lexical/*.lex && echo "bytes: equal, $(stat -c %s "$work"/store-on/lexical/*.lex)" || { echo "bytes: DIFFERENT"; exit 1; }
[ "$text" -gt 0 ] || exit 0
rm -rf "$work"/store-* "$work/corpus.u16"
texts() { # NAME BYTES SUFFIX COMMAND_PREFIX THREADS
    local begin
    [ -s "$work/$2$3" ] || "$folder/bench_index" --text "$work/$2$3" "$2" || exit 1
    begin=$(date +%s.%N)
    $4 "$folder/drt-index" build "$work/$2$3" --out "$work/store" --model "$model" --index exact --lexical off --device $device --max-ram "$ram" \
        --threads "$5" >"$work/text.log" 2>"$work/text.err" || { echo "FAILED text: $(tail -c 600 "$work/text.err")"; exit 1; }
    awk -v name="$1" -v bytes="$2" -v s="$(awk "BEGIN { print $(date +%s.%N) - $begin }")" -v report="$(tail -n 1 "$work/text.log")" \
        'BEGIN { printf "text, %s: %.2f s of the program, %.1f MB/s (%s)\n", name, s, bytes / s / 1e6, report }'
    rm -rf "$work/store"
}
texts "jsonl.zst, one thread" $((text / 10)) .jsonl.zst "" 1
[ "$(nproc)" -lt 16 ] || texts "jsonl.zst, 16 processors" "$text" .jsonl.zst "taskset -c 0-15" 16
texts "jsonl.zst, all processors" "$text" .jsonl.zst "" 0
