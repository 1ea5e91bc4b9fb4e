#!/usr/bin/env bash
# run_models.sh -- trains the default models and scores them: a Base LM (base), a Base LM that attends to the whole evaluated context
# (full), and a token memory that is trained on the finished Base LM, whose weights do not change (memory). drt: a DRT model with GCA, a
# taught retriever and the memory. Equal text, steps, tokens and learning rate; the configs are in tests/device/models.
#
#   tests/device/run_models.sh prepare|estimate|train|evaluate FOLDER [--models base,full,memory] [--limit SECONDS] [--device cuda|cpu]
#       [--configs FOLDER] [--tokenizer FILE] [--set KEY=VALUE]... [--eval-tokens N] [--k N] [--every N]
#
# FOLDER has programs (tests/device/portable.sh --out FOLDER drt-train drt-tokenizer drt-index drt-eval), train-*.jsonl.xz and
# valid-*.jsonl.xz of the domains that the configs name. All else is written into it:
#   prepare   token files; what BM25 finds for each chunk (CPU alone: do it where time is cheap, and carry the files)
#   estimate  a few steps of each model, with and without its memory: seconds of each whole run, printed; exit 3 above the limit (600)
#   train     trains each model into FOLDER/runs/NAME and cuts its weights into pieces of 16 MiB with checksums in
#             $OUT/NAME (default FOLDER/pieces/NAME); `sh join.sh` there puts them together. A run stops at the limit and can be resumed.
#   evaluate  a store of the train texts, one of other-*.jsonl.xz if there are any; each model but `full` with its memories beside the
#             Base LMs, a gate fitted on half of the documents; what was collected is kept in memory-NAME.samples
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
usage() { sed -n 's/^#   tests/usage: tests/p; s/^#       \[--c/    [--c/p' "$0" >&2; exit 2; }
if [ $# -lt 2 ] || [ ! -d "$2" ]; then usage; fi
action=$1 folder=$(cd "$2" && pwd)
shift 2
models=base,full,memory limit=600 device=cuda configs=$here/tests/device/models tokenizer=$here/data/models/drt-28m/tokenizer.json tokens=16384 k=64 every=16 set=()
while [ $# -gt 1 ]; do
    case $1 in
    --models) models=$2 ;; --limit) limit=$2 ;; --device) device=$2 ;; --configs) configs=$(cd "$2" && pwd) ;;
    --tokenizer) tokenizer=$(realpath "$2") ;; --set) set+=(--set "$2") ;; --eval-tokens) tokens=$2 ;; --k) k=$2 ;; --every) every=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[ $# = 0 ] || usage
IFS=, read -ra models <<<"$models"
export LD_LIBRARY_PATH=$folder:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
cd "$folder" && mkdir -p runs || exit 1
for name in "${models[@]}"; do [ -f "$configs/$name.json" ] || { echo "run_models.sh: no config $configs/$name.json" >&2; exit 2; }; done
quiet() { # NAME COMMAND...: writes errors to FOLDER/NAME.err, which is shown after a failure
    local name=$1; shift
    "$@" >"$name.log" 2>"$name.err" || { echo "FAILED $name: $(tail -c 800 "$name.err")" >&2; exit 1; }
}
train() { ./drt-train --device "$device" --set "tokenizer=$tokenizer" ${set[@]+"${set[@]}"} "$@"; }

prepare() {
    local file name
    for file in train-*.jsonl* valid-*.jsonl*; do
        name=${file%%.jsonl*}
        [ -s "$name.u16" ] || quiet "encode-$name" ./drt-tokenizer encode "$file" --tokenizer "$tokenizer" --out "$name.u16"
    done
    # The smallest possible step: only the search before it matters, and its file serves every shape of a batch.
    for name in "${models[@]}"; do
        grep -q '"passages"' "$configs/$name.json" || continue
        rm -rf "runs/search-$name"
        sed 's/"start_from": *"[^"]*", *//' "$configs/$name.json" >"search-$name.json" # the folder does not exist yet
        quiet "search-$name" ./drt-train --device cpu --set "tokenizer=$tokenizer" ${set[@]+"${set[@]}"} --config "search-$name.json" \
            --out "runs/search-$name" --set sequences=4 --set length=63 --set accumulate=1 --set warmup=0 --steps 1
        rm -rf "runs/search-$name"
        echo "$name: neighbours are searched"
    done
}

# Median seconds of the last steps of a short run with additional keys.
seconds_a_step() { # NAME KEYS...
    local name=$1 key keys=(); shift
    for key in "$@"; do keys+=(--set "$key"); done
    rm -rf runs/estimate
    quiet estimate train --config "$configs/$name.json" --out runs/estimate --set eval_every=1000000 ${keys[@]+"${keys[@]}"} --until 12
    sed -n 's/.*"seconds":\([-0-9.e]*\)[,}].*/\1/p' runs/estimate/log.jsonl | tail -n 8 | sort -g | sed -n 4p
    rm -rf runs/estimate
}
whole_seconds() { # NAME: prints seconds of the whole run
    local name=$1 config=$configs/$1.json steps start plain full
    steps=$(sed -n 's/.*"steps": *\([0-9]*\).*/\1/p' "$config" | head -n 1)
    for key in ${set[@]+"${set[@]}"}; do case $key in steps=*) steps=${key#steps=} ;; esac; done
    start=$(tr -d '\n' <"$config" | sed -n 's/.*"memory": *{[^}]*"start": *\([0-9]*\).*/\1/p')
    plain=$(seconds_a_step "$name" memory.weight=0 teach.weight=0) || return 1
    full=$plain
    if grep -q '"memory": *{' "$config"; then
        full=$(seconds_a_step "$name" memory.start=0 teach.start=0) || return 1
    fi
    awk -v steps="$steps" -v start="${start:-0}" -v plain="$plain" -v full="$full" \
        'BEGIN { if (start > steps) start = steps; printf "%.0f %.4f %.4f\n", 1.05 * (start * plain + (steps - start) * full) + 20, plain, full }'
}
estimate() {
    local name found late=0
    for name in "${models[@]}"; do
        found=$(whole_seconds "$name") || exit 1
        # shellcheck disable=SC2086 # three numbers
        set -- $found
        echo "$name: about $1 s: $2 s a step, $3 s with its memory"
        [ "$1" -le "$limit" ] || { echo "$name: more than the limit of $limit s"; late=3; }
    done
    [ $late = 0 ] || exit $late
}

pieces() { # NAME MODEL
    local out=${OUT:-$folder/pieces}/$1
    rm -rf "$out"; mkdir -p "$out" || exit 1
    split -b $((16 * 1024 * 1024)) -d "$2/model.safetensors" "$out/model.safetensors." || exit 1
    cp "$2/config.json" "$2/tokenizer.json" "runs/$1/log.jsonl" "$out/" && cp "runs/$1/config.json" "$out/run.json" || exit 1
    (cd "$2" && sha256sum model.safetensors) >"$out/SHA256"
    printf 'cat model.safetensors.[0-9]* >model.safetensors && sha256sum -c SHA256 && rm model.safetensors.[0-9]*\n' >"$out/join.sh"
    echo "$1: $(cut -c 1-16 "$out/SHA256") in $(find "$out" -name 'model.safetensors.[0-9]*' | wc -l) pieces in $out"
}
newest() { find "$1/checkpoints" -maxdepth 1 -name 'step-*' | sort -V | tail -n 1; }
train_all() {
    local name begin
    for name in "${models[@]}"; do
        begin=$SECONDS
        if [ -d "runs/$name/checkpoints" ]; then
            quiet "train-$name" ./drt-train --device "$device" --out "runs/$name" --resume --max-minutes "$(awk -v s="$limit" 'BEGIN { print s / 60 }')"
        else
            quiet "train-$name" train --config "$configs/$name.json" --out "runs/$name" --max-minutes "$(awk -v s="$limit" 'BEGIN { print s / 60 }')"
        fi
        grep -a 'valid' "train-$name.err" | tr '\r' '\n' | grep -a 'valid' | tail -n 1
        echo "$name: $((SECONDS - begin)) s: $(tail -n 2 "train-$name.log" | head -n 1)"
        pieces "$name" "$(newest "runs/$name")"
    done
}

evaluate() {
    local name model data=() base=() other=()
    for name in valid-*.jsonl*; do data+=(--data "$name"); done
    for name in base full; do
        model=$(newest "runs/$name" 2>/dev/null)
        [ -z "$model" ] || base+=(--base "$model")
    done
    [ ${#base[@]} -gt 0 ] || { echo "run_models.sh: no Base LM in $folder/runs/base: train it first" >&2; exit 1; }
    # A token memory reads the store's tokens only, so any model with this tokenizer can make the store. BM25 searches it.
    [ -d models.store ] || quiet build ./drt-index build train-*.jsonl* --model "${base[1]}" --out models.store --index exact
    compgen -G 'other-*.jsonl*' >/dev/null && other=(other-*.jsonl*)
    [ ${#other[@]} = 0 ] || [ -d other.store ] || quiet build-other ./drt-index build "${other[@]}" --model "${base[1]}" --out other.store --index exact
    for name in "${models[@]}"; do
        [ "$name" != full ] || continue
        model=$(newest "runs/$name")
        quiet "score-$name" ./drt-eval fit-memory --model "$model" "${base[@]}" "${data[@]}" --store models.store --memory own,corpus,both,random \
            --memory-k "$k" --memory-every "$every" --max-tokens "$tokens" --document-tokens $((tokens / 4)) --device "$device" \
            --keep "memory-$name.samples" --out "memory-$name.json"
        echo "== $name"
        cat "score-$name.log"
        [ ${#other[@]} -gt 0 ] || continue
        quiet "other-$name" ./drt-eval fit-memory --model "$model" "${base[@]}" "${data[@]}" --store other.store --memory own,corpus,both,random \
            --apply "memory-$name.json" --max-tokens $((tokens / 4)) --document-tokens $((tokens / 16)) --device "$device"
        echo "== $name, a store of other text (the gate of all documents)"
        cat "other-$name.log"
    done
}

case $action in
prepare) prepare ;; estimate) estimate ;; train) train_all ;; evaluate) evaluate ;;
*) usage ;;
esac
