#!/usr/bin/env bash
# run_devices.sh -- on a host with several GPUs: builds one store with one GPU and with all of them, compares the bytes, and searches both
# with one GPU and with all of them.
#
#   tests/device/run_devices.sh FOLDER [--tokens N] [--queries N] [--k N] [--work DIR] [--lexical on|off] [--model DIR]
#
# FOLDER has drt-index (tests/device/portable.sh --out FOLDER drt-index). The corpus is FOLDER/*.u16, or without such files N random ids
# (200000000). --work: where corpus and stores are written (/tmp); about 16 bytes a token are needed for each of two stores. One line for
# each result is printed; the exit status is 1 if bytes or hits differ. Python 3 makes the corpus and the queries.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
usage() { sed -n 's/^#   tests/usage: tests/p' "$0" >&2; exit 2; }
[ $# -gt 0 ] && [ -d "$1" ] || usage
folder=$(cd "$1" && pwd)
shift
tokens=200000000 queries=1000 k=16 work=${TMPDIR:-/tmp} lexical=off model=$here/data/models/drt-28m
while [ $# -gt 1 ]; do
    case $1 in
    --tokens) tokens=$2 ;; --queries) queries=$2 ;; --k) k=$2 ;; --work) work=$2 ;; --lexical) lexical=$2 ;; --model) model=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[ $# = 0 ] || usage
export LD_LIBRARY_PATH=$folder:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
work=$work/run_devices.$$
mkdir -p "$work" || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
gpus=$(nvidia-smi -L | wc -l)
echo "host: $gpus GPUs ($(nvidia-smi -L | head -n 1 | cut -d '(' -f 1)), $(nproc) processors"

corpus=("$folder"/*.u16)
if [ ! -s "${corpus[0]}" ]; then
    corpus=("$work/corpus.u16")
    python3 - "$work/corpus.u16" "$tokens" <<'END' || exit 1
import random, sys
left, rng = 2 * int(sys.argv[2]), random.Random(1)
with open(sys.argv[1], "wb") as out:                 # ids below 8192; 0 ends a document
    while left > 0:
        n = min(left, 1 << 24)
        mask = int.from_bytes(b"\xff\x1f" * (n // 2), "little")
        out.write((int.from_bytes(rng.randbytes(n), "little") & mask).to_bytes(n, "little"))
        left -= n
END
fi
bytes=$(cat "${corpus[@]}" | wc -c)
echo "corpus: $((bytes / 2)) tokens in ${#corpus[@]} files"

build() { # NAME OPTIONS...
    local name=$1 begin end
    shift
    rm -rf "$work/$name"
    begin=$(date +%s.%N)
    "$folder/drt-index" build "${corpus[@]}" --out "$work/$name" --model "$model" --eod-id 0 --index exact --lexical "$lexical" "$@" \
        >"$work/$name.log" 2>"$work/$name.err" || { echo "FAILED build $name: $(tail -c 600 "$work/$name.err")"; exit 1; }
    end=$(date +%s.%N)
    awk -v name="$name" -v tokens=$((bytes / 2)) -v s="$(awk "BEGIN { print $end - $begin }")" -v report="$(tail -n 1 "$work/$name.log")" \
        'BEGIN { printf "build %s: %.2f s of the program, %.1f M tokens/s (%s)\n", name, s, tokens / s / 1e6, report }'
}
digest() { (cd "$work/$1" && find tokens landmarks lexical index -type f | sort | xargs -r -P 16 -n 16 sha256sum | sort | sha256sum | cut -c 1-32); }
search() { # NAME STORE OPTIONS...
    local name=$1 store=$2
    shift 2
    "$folder/drt-index" search --queries "$work/queries.fbin" --store "$work/$store" --model "$model" --k "$k" --exact --json "$@" \
        >"$work/$name.json" 2>"$work/$name.err" || { echo "FAILED search $name: $(tail -c 600 "$work/$name.err")"; exit 1; }
    sed 's/"searched_by":"[^"]*",//' "$work/$name.json" >"$work/$name.hits"
    echo "search $name: $(grep -a queries "$work/$name.err" | tr '\r' '\n' | grep -a "opening" | tail -n 1)"
}

build warm --device cuda --devices 0
rm -rf "$work/warm"
build one --device cuda
build all --devices all
one=$(digest one) all=$(digest all)
[ "$one" = "$all" ] && echo "bytes: equal ($one)" || { echo "bytes: DIFFERENT ($one, $all)"; failed=1; }
"$folder/drt-index" verify --store "$work/all" >/dev/null 2>"$work/verify.err" && echo "verify: no problem" ||
    { echo "verify: FAILED $(tail -c 300 "$work/verify.err")"; failed=1; }

width=$(sed -n 's/.*"hidden_size": *\([0-9]*\).*/\1/p' "$model/config.json")
python3 - "$work/queries.fbin" "$queries" "$width" <<'END' || exit 1
import array, random, struct, sys
n, dim, rng = int(sys.argv[2]), int(sys.argv[3]), random.Random(2)
with open(sys.argv[1], "wb") as out:
    out.write(struct.pack("<ii", n, dim))
    array.array("f", (rng.gauss(0, 1) for _ in range(n * dim))).tofile(out)
END
search one one --device cuda
search all one --devices all
if cmp -s "$work/one.hits" "$work/all.hits"; then
    echo "hits: $queries queries, $k each, equal with one GPU and with $gpus, order and scores included"
else
    echo "hits: DIFFERENT in $(diff "$work/one.hits" "$work/all.hits" | grep -c '^<') of $queries queries"
    failed=1
fi
exit $failed
