#!/usr/bin/env bash
# Fine-tunes drt-28m to find needles, and measures it (docs/tasks.md).
#
#   run.sh cpu|gpu OUT TEXT VALID [MODEL]
#   run.sh long OUT TEXT VALID
#   run.sh store OUT TEXT VALID CORPUS
#   run.sh ruler OUT TEXT VALID RULER_FOLDER
#
# TEXT: jsonl files of running text, for training (one argument, separated by spaces); text of all kinds that a store has, if needles are
# to be found in it. VALID: a file for measuring. MODEL: a folder, default data/models/drt-28m. cpu: two of its nine lower layers, about
# half an hour on four cores. gpu: the whole model, some minutes, and all tasks at 4K. The other stages use what gpu left in OUT. long:
# texts of up to 16M. store: CORPUS are jsonl files of a million chunks (one argument, separated by spaces). ruler trains further;
# RULER_FOLDER has TASK-LENGTH.jsonl.xz; without it, only samples are made. The programs are those of $PATH. A stage whose result is there
# is passed over, and a training that was stopped continues.
set -euo pipefail
[ $# -ge 4 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
what=$1 out=$2 valid=$(realpath "$4") last=${5:-} text=()
for file in $3; do text+=(--data "$(realpath "$file")"); done
here=$(cd "$(dirname "$0")" && pwd)
device=cuda
[ "$what" != cpu ] || device=cpu
model=$here/../../../data/models/drt-28m
case $what in cpu | gpu) [ -z "$last" ] || model=$last ;; esac
# shellcheck disable=SC2086 # files separated by spaces
[ -z "$last" ] || last=$(realpath $last)
model=$(realpath "$model")
mkdir -p "$out"
cd "$out"

# samples FILE.u32 SEED OPTIONS...: published whole
samples() {
    [ -e "$1" ] && return
    drt-eval niah "${text[@]}" --model "$model" --seed "$2" --write "part.$1" "${@:3}"
    mv "part.$1.answers" "$1.answers"
    mv "part.$1" "$1"
}
# train CONFIG FROM NAME: the last checkpoint is at NAME/model
train() {
    [ -e "$3/model" ] && return
    if [ -e "$3/config.json" ]; then
        drt-train --resume --out "$3" --device "$device"
    else
        drt-train --config "$here/$1.json" --set start_from="$2" --set tokenizer="$model/tokenizer.json" --out "$3" --device "$device"
    fi
    ln -s "checkpoints/$(ls "$3/checkpoints" | sort -t- -k2 -n | tail -1)" "$3/model"
}
niah() { drt-eval niah --data "$valid" --device "$device" --seed 3 "$@"; }

case $what in
cpu)
    samples read-single.u32 2001 --context 256 --trials 3000
    samples read-long.u32 2002 --context 256 --trials 6000 --value-ids 24
    samples valid-single.u32 2003 --context 256 --trials 64
    train cpu-read "$model" read
    niah --model read/model --self-retrieval --context 1K,4K,16K --trials 200,200,50 --answers cpu-answers.jsonl --plot cpu-cost.svg
    ;;
gpu)
    samples read-single.u32 2001 --context 256,512 --trials 12000
    samples read-long.u32 2002 --context 256,512 --trials 15000 --value-ids 24
    samples read-keys.u32 2004 --context 512 --trials 30000 --tasks multi-key,multi-value,two-hop --value-ids 8
    samples valid-single.u32 2003 --context 512 --trials 128
    samples valid-keys.u32 2005 --context 512 --trials 64 --tasks multi-key,multi-value,two-hop
    train gpu-read "$model" read
    samples retrieve.u32 2006 --context 1K,2K,4K --trials 4400 --tasks single,multi-key,multi-value,two-hop
    samples retrieve-keys.u32 2008 --context 4K --trials 14000 --tasks multi-key --keys 32
    samples retrieve-dense.u32 2011 --context 4K --trials 12000 --tasks multi-key --keys 160
    samples valid-retrieve.u32 2007 --context 4K --trials 24 --tasks single,multi-key,multi-value,two-hop
    train gpu-retrieve read/model retrieve
    for whole in "" "--continuation 1 --overlap 31"; do
        # shellcheck disable=SC2086 # options separated by spaces
        niah --model retrieve/model --self-retrieval --tasks single,multi-key,multi-value,two-hop --context 4K --trials 100 \
            $whole --answers "gpu-answers${whole:+-overlap}.jsonl"
        # shellcheck disable=SC2086
        niah --model retrieve/model --self-retrieval --tasks multi-key --context 4K --trials 100 --keys 160 $whole --answers "gpu-dense${whole:+-overlap}.jsonl"
    done
    ;;
long)
    niah --model retrieve/model --self-retrieval --continuation 1 --overlap 31 --context 4K,8K,16K,32K,64K,128K,256K,1M,4M,16M \
        --trials 200,200,200,200,200,200,200,50,10,3 --answers long-answers.jsonl --heat-map gpu-depth.svg --plot gpu-cost.svg
    ;;
store)
    # shellcheck disable=SC2086 # files separated by spaces
    [ -e needles.store ] || drt-index build $last --model retrieve/model --out needles.store
    if [ ! -e needles-added ]; then
        niah --model retrieve/model --tasks multi-key --context 512 --trials 100 --write-documents needles.u32
        drt-index add needles.u32 --store needles.store --model retrieve/model
        touch needles-added
    fi
    # A continuation that overlaps reads whole what the end of a chunk cuts; the question's words are the last 32 tokens. With words alone 48 of
    # 63 tokens overlap: of 31, 40 and 48 this found most with seed 4, which measures nothing else. With hybrid 31 found more than 48.
    for searcher in lexical hybrid landmark; do
        words=(--overlap 31)
        [ $searcher != lexical ] || words=(--overlap 48)
        [ $searcher = landmark ] || words+=(--query-tokens 32)
        niah --model retrieve/model --tasks multi-key --context 512 --trials 100 --store needles.store --corpus-retrieval --searcher $searcher \
            --continuation 1 "${words[@]}" --answers "store-$searcher.jsonl"
    done
    ;;
ruler)
    for part in ruler:2009:2700 valid-ruler:2010:8; do
        IFS=: read -r name seed count <<<"$part"
        [ ! -e "$name.u16" ] || continue
        python3 "$here/ruler_samples.py" niah_single_1,niah_multikey_2,vt "$count" 3000,6000,11000 "$seed" "${text[1]}" >"$name.jsonl"
        drt-tokenizer samples "$name.jsonl" --tokenizer "$model/tokenizer.json" --out "$name.u16"
    done
    [ -n "$last" ] || exit 0 # the samples alone, beside another stage
    train gpu-ruler retrieve/model ruler
    # The chain of vt has five statements: with passages fewer of its chunks would be read.
    ruler() { drt-eval tasks "$@" --model ruler/model --self-retrieval --align --max-tokens 48 --device "$device"; }
    ruler "$last"/niah*-4096.jsonl.xz "$last"/niah*-16384.jsonl.xz "$last"/niah*-65536.jsonl.xz --continuation 1 --overlap 31 --answers ruler-niah.jsonl
    ruler "$last"/vt-4096.jsonl.xz "$last"/vt-16384.jsonl.xz "$last"/vt-65536.jsonl.xz --answers ruler-vt.jsonl
    ;;
*)
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
