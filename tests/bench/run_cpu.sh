#!/usr/bin/env bash
# run_cpu.sh -- all benchmarks of the CPU, some five minutes on two cores, as JSON files in a folder.
#
#   tests/bench/run_cpu.sh [--build FOLDER] OUT CORPUS...
#
# CORPUS: text for drt-index with some ten thousand chunks, one document with 3,700 tokens or more.
# OUT: tests/bench/results; then run tests/bench/report.py, and commit both. A failed benchmark is reported and keeps its
# earlier file; the exit status is then 1.
# The Python peers run if the package tokenizers is installed.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=build
[ "${1:-}" = --build ] && { build=$2; shift 2; }
[ $# -ge 2 ] || { echo "usage: tests/bench/run_cpu.sh [--build FOLDER] OUT CORPUS..." >&2; exit 2; }
out=$1 model=data/models/drt-28m failed=0; shift
mkdir -p "$out" || exit 1
work=$build/bench-work # a fixed name, because commands are written into the results
rm -rf "$work" && mkdir -p "$work" || exit 1
trap 'rm -rf "$work"' EXIT
export DRT_TEST_TMP=$work PYTHONDONTWRITEBYTECODE=1
DRT_COMMIT=${DRT_COMMIT:-$(git describe --always --dirty --exclude '*' 2>/dev/null)}
export DRT_COMMIT
step() { # name, command...: its figures go to OUT/cpu-<name>.json
    local name=$1 begin=$SECONDS; shift
    if timeout 180 "$@" --json "$out/cpu-$name.json" >"$work/$name.log" 2>&1; then
        echo "ok      $name ($((SECONDS - begin)) s)"
    else
        local result=$?
        echo "FAILED  $name (exit $result$([ $result = 124 ] && echo ": stopped after 180 s")): $(tail -n 1 "$work/$name.log")"
        failed=1
    fi
}
# The text of .jsonl and .jsonl.xz files, of which the tokenizer gets the first 4 MB.
python3 - "$work/text" "$@" <<'END' || exit 1
import json, lzma, sys
size = 4_000_000
with open(sys.argv[1], "w", encoding="utf8") as out:
    for path in sys.argv[2:]:
        opener = lzma.open if path.endswith(".xz") else open
        try:
            for line in opener(path, "rt", encoding="utf8"):
                size -= out.write(json.loads(line)["text"] + "\n")
                if size < 0:
                    sys.exit()
        except (OSError, ValueError, KeyError):
            continue  # a folder, or text that is not JSON lines
    if out.tell() == 0:
        out.write(open("docs/store-format.md").read() * 50)
END
step index python3 tests/bench/peers/index_bench.py "$build/bin/drt-index" "$work/store" "$@"
step encode "$build/bench/bench_encode" 0 3
step token "$build/bench/bench_generate" $model 252 504,2016,8064,16128
step retrieval "$build/bench/bench_generate" $model --ratio "$work/store" 40
step store "$build/bench/bench_store" 20000
step kernels "$build/bench/bench_kernels" 0 0.3
step tokenizer "$build/bench/bench_tokenizer" $model/tokenizer.json "$work/text" 5
if python3 -c 'import tokenizers' 2>/dev/null; then
    step peer-tokenizer python3 tests/bench/peers/tokenizer_peer.py "$build/bench/bench_tokenizer" $model/tokenizer.json \
        "$work/text"
fi
exit $failed
