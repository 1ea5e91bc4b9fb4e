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
tokens=400000000 work=/dev/shm model=$here/data/models/drt-28m max_ram=24G device=cuda text=2000000000
. "$here/tests/device/bench/options.sh"
options_read "tokens text work model max-ram device" "" "$@"
corpus=("$folder"/*.u16)
if [ ! -s "${corpus[0]}" ]; then
    corpus=("$work/corpus.u16")
    "$folder/bench_index" --tokens "$work/corpus.u16" "$tokens" || exit 1
fi
tokens=$(($(cat "${corpus[@]}" | wc -c) / 2))
timed() { # NAME COMMAND...
    local name=$1
    shift
    seconds "$@" || { echo "FAILED $name: $(tail -c 600 "$work/err")"; exit 1; }
    awk -v name="$name" -v tokens="$tokens" -v s="$took" -v report="$(tail -n 1 "$work/out")" \
        'BEGIN { printf "%s: %.2f s of the program, %.1f M tokens/s (%s)\n", name, s, tokens / s / 1e6, report }'
}
build() { # NAME OPTIONS...
    local name=$1
    shift
    rm -rf "$work/store-$name"
    timed "$name" "$folder/drt-index" build "${corpus[@]}" --out "$work/store-$name" --model "$model" --eod-id 0 --index exact --device $device \
        --max-ram "$max_ram" "$@"
}
build warm --lexical off
build off --lexical off
rm -rf "$work/store-warm"
build on --lexical on
timed afterwards "$folder/drt-index" lexical --store "$work/store-off" --max-ram "$max_ram"
cmp "$work"/store-o*/lexical/*.lex && echo "bytes: equal, $(stat -c %s "$work"/store-on/lexical/*.lex)" || { echo "bytes: DIFFERENT"; exit 1; }
[ "$text" -gt 0 ] || exit 0
rm -rf "$work"/store-* "$work/corpus.u16"
texts() { # NAME BYTES SUFFIX COMMAND_PREFIX THREADS
    [ -s "$work/$2$3" ] || "$folder/bench_index" --text "$work/$2$3" "$2" || exit 1
    # shellcheck disable=SC2086 # a prefix of several words
    seconds $4 "$folder/drt-index" build "$work/$2$3" --out "$work/store" --model "$model" --index exact --lexical off --device $device --max-ram "$max_ram" \
        --threads "$5" || { echo "FAILED text: $(tail -c 600 "$work/err")"; exit 1; }
    awk -v name="$1" -v bytes="$2" -v s="$took" -v report="$(tail -n 1 "$work/out")" \
        'BEGIN { printf "text, %s: %.2f s of the program, %.1f MB/s (%s)\n", name, s, bytes / s / 1e6, report }'
    rm -rf "$work/store"
}
texts "jsonl.zst, one thread" $((text / 10)) .jsonl.zst "" 1
[ "$(nproc)" -lt 16 ] || texts "jsonl.zst, 16 processors" "$text" .jsonl.zst "taskset -c 0-15" 16
texts "jsonl.zst, all processors" "$text" .jsonl.zst "" 0
