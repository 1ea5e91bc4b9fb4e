#!/usr/bin/env bash
# run_words.sh -- times drt-index build on one GPU from token ids, without the lexical index, with it, and with it made afterwards, and
# compares the bytes of the last two.
#
#   tests/device/bench/run_words.sh FOLDER [--tokens N] [--text BYTES] [--work DIR] [--model DIR] [--max-ram SIZE]
#
# FOLDER has drt-index and bench_index (tests/device/portable.sh --out FOLDER drt-index bench_index). The corpus is FOLDER/*.u16, or without
# such files N ids (400000000) with the frequencies of text. DIR (/dev/shm) needs 25 bytes a token. Then a build from BYTES (400000000; 0: none)
# of jsonl text, with all processors and with --threads 1 on a tenth of it. One line for each result.
set -u
here=$(cd "$(dirname "$0")/../../.." && pwd)
tokens=400000000 work=/dev/shm model=$here/data/models/drt-28m max_ram=24G device=cuda text=400000000
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
for part in 1 10; do
    "$folder/bench_index" --text "$work/text-$part.jsonl" $((text / part)) || exit 1
    threads=$([ $part = 10 ] && echo 1 || echo 0)
    seconds "$folder/drt-index" build "$work/text-$part.jsonl" --out "$work/store" --model "$model" --index exact --lexical off --device $device --max-ram "$max_ram" \
        --threads "$threads" || { echo "FAILED text: $(tail -c 600 "$work/err")"; exit 1; }
    awk -v bytes=$((text / part)) -v threads="$threads" -v s="$took" -v report="$(tail -n 1 "$work/out")" \
        'BEGIN { printf "text, --threads %d: %.2f s of the program, %.1f MB/s (%s)\n", threads, s, bytes / s / 1e6, report }'
    rm -rf "$work/store"
done
