#!/usr/bin/env bash
# run_devices.sh -- on a host with several GPUs: does the same work with one GPU and with all of them, compares the results, and times both.
#
#   tests/device/run_devices.sh FOLDER [--checks build,index,fit,train] [--tokens N] [--queries N] [--k N] [--chunks N] [--index FACTORY]
#       [--work DIR] [--lexical on|off] [--fit-tokens N] [--length N] [--model DIR] [--base DIR] [--device cuda|cpu]
#
#   build   one store (drt-index build), compared by bytes; then the hits of exact searches with one slice and with a slice on each GPU
#   index   run_index.sh: an index over N made landmarks (4000000), compared by bytes, and its recall
#   fit     drt-eval fit-memory of --base on the text of docs/: samples and figures
#   train   drt-train --processes 2 against one process with twice the micro-batches: losses and norms of 8 steps
#
# FOLDER has the programs (tests/device/portable.sh --out FOLDER drt-index bench_index drt-eval drt-train). The corpus of build and train is
# FOLDER/*.u16, or without such files N random ids (200000000). DIR (/tmp) needs about 16 bytes a token for each of two stores, and 4 bytes for
# each number of a landmark. --device cpu tries the script on a host without a GPU. One line for each result is printed; the exit status is 1
# if results differ. Python 3 makes the corpora, and compares.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
tokens=200000000 queries=1000 k=16 chunks=4000000 index=IVF16384_HNSW32,SQ8 work= lexical=off fit_tokens=60000 length=2016 device=cuda checks=build,index,fit,train
model=$here/data/models/drt-28m base=$here/data/models/base-28m
. "$here/tests/device/bench/options.sh"
options_read "checks tokens queries k chunks index work lexical fit-tokens length model base device" "" "$@"
failed=0
all=(--devices all)
[ "$device" = cuda ] || all=(--device "$device")
wants() { [[ ,$checks, == *,$1,* ]]; }
differ() { echo "$*"; failed=1; }

corpus=("$folder"/*.u16)
if { wants build || wants train; } && [ ! -s "${corpus[0]}" ]; then
    corpus=("$work/corpus.u16")
    python3 - "$work/corpus.u16" "$tokens" <<'PYTHON' || exit 1
import random, sys
left, rng = 2 * int(sys.argv[2]), random.Random(1)
with open(sys.argv[1], "wb") as out:                 # ids below 8192; 0 ends a document
    while left > 0:
        n = min(left, 1 << 24)
        mask = int.from_bytes(b"\xff\x1f" * (n // 2), "little")
        out.write((int.from_bytes(rng.randbytes(n), "little") & mask).to_bytes(n, "little"))
        left -= n
PYTHON
fi

# ---- a store, and exact search
build() { # NAME OPTIONS...
    local name=$1
    shift
    rm -rf "$work/$name"
    seconds "$folder/drt-index" build "${corpus[@]}" --out "$work/$name" --model "$model" --eod-id 0 --index exact --lexical "$lexical" "$@" ||
        { echo "FAILED build $name: $(tail -c 600 "$work/err")"; exit 1; }
    awk -v name="$name" -v tokens=$((bytes / 2)) -v s="$took" -v report="$(tail -n 1 "$work/out")" \
        'BEGIN { printf "build %s: %.2f s of the program, %.1f M tokens/s (%s)\n", name, s, tokens / s / 1e6, report }'
}
digest() { (cd "$work/$1" && find tokens landmarks lexical index -type f | sort | xargs -r -P 16 -n 16 sha256sum | sort | sha256sum | cut -c 1-32); }
search() { # NAME STORE OPTIONS...
    local name=$1 store=$2
    shift 2
    seconds "$folder/drt-index" search --queries "$work/queries.fbin" --store "$work/$store" --model "$model" --k "$k" --exact --json "$@" ||
        { echo "FAILED search $name: $(tail -c 600 "$work/err")"; exit 1; }
    sed 's/"searched_by":"[^"]*",//' "$work/out" >"$work/$name.hits"
    echo "search $name: $(grep -a queries "$work/err" | tr '\r' '\n' | grep -a "opening" | tail -n 1)"
}
check_build() {
    local one many width
    bytes=$(cat "${corpus[@]}" | wc -c)
    echo "corpus: $((bytes / 2)) tokens in ${#corpus[@]} files"
    build warm --device "$device"
    rm -rf "$work/warm"
    build one --device "$device"
    build all "${all[@]}"
    one=$(digest one) many=$(digest all)
    [ "$one" = "$many" ] && echo "store: equal bytes ($one)" || differ "store: DIFFERENT bytes ($one, $many)"
    "$folder/drt-index" verify --store "$work/all" >/dev/null 2>"$work/verify.err" && echo "verify: no problem" ||
        differ "verify: FAILED $(tail -c 300 "$work/verify.err")"
    width=$(sed -n 's/.*"hidden_size": *\([0-9]*\).*/\1/p' "$model/config.json")
    python3 - "$work/queries.fbin" "$queries" "$width" <<'PYTHON' || exit 1
import array, random, struct, sys
n, dim, rng = int(sys.argv[2]), int(sys.argv[3]), random.Random(2)
with open(sys.argv[1], "wb") as out:
    out.write(struct.pack("<ii", n, dim))
    array.array("f", (rng.gauss(0, 1) for _ in range(n * dim))).tofile(out)
PYTHON
    search one one --device "$device"
    search all one "${all[@]}"
    if cmp -s "$work/one.hits" "$work/all.hits"; then
        echo "hits: $queries queries, $k each, equal with one GPU and with $host_gpus, order and scores included"
    else
        differ "hits: DIFFERENT in $(diff "$work/one.hits" "$work/all.hits" | grep -c '^<') of $queries queries"
    fi
    rm -rf "$work/one" "$work/all"
}

# ---- an index
check_index() {
    "$here/tests/device/bench/run_index.sh" "$folder" --chunks "$chunks" --index "$index" --work "$work" --device "$device" || failed=1
}

# ---- a fit: half of the text is the store, the other half is read
fit() { # NAME OPTIONS...
    local name=$1
    shift
    seconds "$folder/drt-eval" fit-memory --model "$base" --data "$work/read.jsonl" --store "$work/fit" --memory own,corpus,both,random --context 1024 \
        --skip 64 --max-tokens "$fit_tokens" --keep "$work/$name.samples" --out "$work/$name.gate" --json "$@" ||
        { echo "FAILED fit $name: $(tail -c 600 "$work/err")"; exit 1; }
    cp "$work/out" "$work/$name.figures"
    echo "fit $name: $took s of the program"
}
check_fit() {
    python3 - "$here/docs" "$work" <<'PYTHON' || exit 1
import json, pathlib, sys
pieces = []
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.md")):
    text = path.read_text()
    pieces += [(f"{path.name}-{at}", text[at:at + 6000]) for at in range(0, len(text), 6000)]
for name, half in ("store", pieces[::2]), ("read", pieces[1::2]):
    with open(f"{sys.argv[2]}/{name}.jsonl", "w") as out:
        out.writelines(json.dumps({"id": key, "text": text}) + "\n" for key, text in half)
PYTHON
    "$folder/drt-index" build "$work/store.jsonl" --model "$base" --landmarks none --out "$work/fit" >/dev/null 2>"$work/err" ||
        { echo "FAILED store of fit: $(tail -c 600 "$work/err")"; exit 1; }
    fit one --device "$device"
    fit all "${all[@]}"
    python3 - "$work" <<'PYTHON' || failed=1
import array, json, re, sys
def load(name):
    data = open(f"{sys.argv[1]}/{name}.samples", "rb").read()
    n = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + n])
    return {k: array.array("f" if v["dtype"] == "F32" else "i", data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in head.items() if k != "__metadata__"}
one, many = load("one"), load("all")
def changed(name):
    return sum(x != y for x, y in zip(one[name], many[name]))
def far(name):
    return max((abs(x - y) for x, y in zip(one[name], many[name]) if x != y), default=0)
same = one.keys() == many.keys() and all(len(one[k]) == len(many[k]) for k in one)
tables = [k for k in one if not k.startswith("log_lm") and one[k].typecode == "i" and same and changed(k)]
if not same or tables:
    sys.exit(f"samples: DIFFERENT texts, documents or tokens {tables}")
numbers = [k for k in one if one[k].typecode == "f"]
total, other = sum(len(one[k]) for k in numbers), sum(changed(k) for k in numbers)
print(f"samples: {len(one['log_lm'])} tokens, {other} of {total} numbers differ; log p of the model by at most {far('log_lm'):g}, "
      f"of the corpus by at most {far('corpus.32.log_p'):g}")
def gains(name):
    return re.findall(r'"mode":"([a-z-]+)","against":"none","gain_percent":([-0-9.e+]+)', open(f"{sys.argv[1]}/{name}.figures").read())
a, b = gains("one"), gains("all")
worst = max(abs(float(x[1]) - float(y[1])) for x, y in zip(a, b))
print("gains:", ", ".join(f"{mode} {float(g):.3f} %" for mode, g in a), f"; with all GPUs they differ by at most {worst:g} points")
sys.exit("gains: DIFFERENT" if not a or worst > 0.05 else 0)
PYTHON
}

# ---- training
train() { # NAME OPTIONS...
    local name=$1
    shift
    seconds "$folder/drt-train" --config "$work/train.json" --device "$device" --out "$work/$name" "$@" ||
        { echo "FAILED train $name: $(tail -c 600 "$work/err")"; exit 1; }
    echo "train $name: $took s of the program"
}
check_train() {
    cat >"$work/train.json" <<CONFIG
{"model": {"vocab_size": 16384, "hidden_size": 384, "intermediate_size": 1024, "num_attention_heads": 6, "slide_window": 512, "chunk_id": 16383,
  "pad_id": 16382, "mask_id": 16382, "eos_id": 0, "rms_norm_eps": 1e-5, "enc_chunk_size": 63, "chunk_topk": 8, "decoder_layers": [4, 4],
  "encoder_layers": 2},
 "tokenizer": "$model/tokenizer.json", "data": ["${corpus[0]}"], "sequences": 4, "length": $length, "steps": 8, "lr": 0.001, "warmup": 2,
 "pool": "batch", "contrastive": {"weight": 0}, "save_every": 100000}
CONFIG
    train two --processes 2
    train twice --set accumulate=2
    python3 - "$work" <<'PYTHON' || failed=1
import json, sys
def log(name):
    return [json.loads(line) for line in open(f"{sys.argv[1]}/{name}/log.jsonl") if '"loss"' in line]
a, b = log("two"), log("twice")
def far(key):
    return [abs(x[key] - y[key]) / abs(y[key]) for x, y in zip(a, b)]
if len(a) != 8 or len(b) != 8 or any(x["tokens"] != y["tokens"] for x, y in zip(a, b)):
    sys.exit("train: DIFFERENT steps or tokens")
loss, norm = far("loss"), far("gradient_norm")
print(f"train: losses of 8 steps differ by at most {max(loss):.2g} (the first by {loss[0]:.2g}), gradient norms by at most {max(norm):.2g}, relative")
sys.exit("train: DIFFERENT" if loss[0] > 2e-5 or max(loss) > 2e-3 or max(norm) > 2e-2 else 0)
PYTHON
}

for check in build index fit train; do
    begin=$EPOCHREALTIME
    ! wants "$check" || { "check_$check"; awk "BEGIN { printf \"%s: %.1f s in all\\n\", \"$check\", $EPOCHREALTIME - $begin }"; }
done
exit $failed
