#!/usr/bin/env bash
# run_token_memory.sh -- on a GPU machine: the gain of token memories for a model, with a store that the script builds.
#
#   tests/device/run_token_memory.sh FOLDER [--model DIR] [--tokens N] [--every N] [--k N] [--rows LIST]
#
# FOLDER has programs (tests/device/portable.sh --out FOLDER drt-index drt-eval), train-*.jsonl.xz (the store) and
# valid-*.jsonl.xz (each a row of the report). --model: a Base LM (default: FOLDER/base, or the bundled model without one),
# whose tokenizer and chunk size are those of the bundled model, which makes the store. --tokens: scored tokens of each file,
# half of them in even documents (16384). Everything is written under $OUT: memory.json, fit.log, fit.json.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -gt 0 ] && [ -d "$1" ] || { echo "usage: tests/device/run_token_memory.sh FOLDER [--model DIR] [--tokens N] [--every N] [--k N] [--rows LIST]" >&2; exit 2; }
folder=$(cd "$1" && pwd)
shift
model=$folder/base tokens=16384 every=64 k=64 rows=own,corpus,both,random
[ -d "$model" ] || model=$here/data/models/drt-28m
while [ $# -gt 1 ]; do
    case $1 in
    --model) model=$2 ;; --tokens) tokens=$2 ;; --every) every=$2 ;; --k) k=$2 ;; --rows) rows=$2 ;;
    *) echo "run_token_memory.sh: there is no option $1" >&2; exit 2 ;;
    esac
    shift 2
done
out=${OUT:-/tmp} store=${STORE:-/tmp/token_memory.store}
export LD_LIBRARY_PATH=$folder:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
step() { # NAME COMMAND...: writes errors to $out/NAME.log; shows the last lines after a failure
    local name=$1 begin=$SECONDS
    shift
    "$@" >"$out/$name.log" 2>"$out/$name.err" || { echo "FAILED $name"; tail -c 600 "$out/$name.err"; exit 1; }
    echo "ok $name ($((SECONDS - begin)) s)"
}
# The store of an earlier call on the same machine is used again: the build then does nothing.
step build "$folder/drt-index" build "$folder"/train-*.jsonl.xz --model "$here/data/models/drt-28m" --out "$store" --index exact
step lexical "$folder/drt-index" lexical --store "$store"
data=()
for file in "$folder"/valid-*.jsonl.xz; do data+=(--data "$file"); done
step "fit-k$k-every$every" "$folder/drt-eval" fit-memory --model "$model" "${data[@]}" --store "$store" \
    --memory "$rows" --memory-k "$k" --memory-every "$every" --max-tokens "$tokens" --document-tokens $((tokens / 4)) \
    --out "$out/memory-k$k-every$every.json"
cat "$out/fit-k$k-every$every.log"
grep -a "tau" "$out/fit-k$k-every$every.err" | tr '\r' '\n' | grep -a "tau"
