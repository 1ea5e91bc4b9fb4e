#!/usr/bin/env bash
# tests/bench/report.py and compare.py: the output is deterministic and checked, and input that does not fit is refused.
set -u
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
root=$work/root report=$DRT_SOURCE/tests/bench/report.py
die() { echo "FAILED: $*"; exit 1; }
mkdir -p "$root/tests/bench/results" "$root/docs/figures" "$root/docs/research"
cp -r "$DRT_SOURCE"/tests/bench/results/. "$root/tests/bench/results/"
# The documents with their hand-written lines and empty blocks.
for document in BENCHMARKS.md docs/research/retrieval.md docs/research/token-memory.md; do
    sed '/<!-- result:/,/<!-- \/result/{/<!--/!d}' "$DRT_SOURCE/$document" >"$root/$document"
done
printf '# x\n\n<!-- table:speed -->\nold\n<!-- /table -->\n\n| program | does |\n|---|---|\n| `a --p 0.9` | 3 things |\n' >"$root/README.md"
check() { python3 "$report" --check --root "$root"; }
check >"$work/out" && die "--check passed with empty blocks"
grep -q '^BENCHMARKS.md: differs' "$work/out" || die "--check did not name BENCHMARKS.md: $(cat "$work/out")"
python3 "$report" --root "$root" >/dev/null || die "report.py failed"
for document in BENCHMARKS.md docs/research/retrieval.md docs/research/token-memory.md; do
    cmp "$DRT_SOURCE/$document" "$root/$document" || die "$document was not written as it is in the repository"
done
check >/dev/null || die "--check failed after report.py: $(check)"
grep -q '^| GCA forward, d 768 (H100) | .* ms | PyTorch compiled' "$root/README.md" || die "the marked table of README.md was not written"
grep -q '^old$' "$root/README.md" && die "the old table is still in README.md"
(cd "$root" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/first"
python3 "$report" --root "$root" >/dev/null
(cd "$root" && find . -type f -print0 | sort -z | xargs -0 sha256sum) | cmp - "$work/first" || die "a second run wrote other bytes"
awk -F'|' '/^\|/ && NF > 7 { print; bad = 1 } END { exit bad }' "$root/BENCHMARKS.md" || die "a table has more than five columns"
for svg in "$root"/docs/figures/*.svg; do
    python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$svg" || die "$svg is not XML"
done

# A figure, a plot and a table that were changed by hand are found; so is a figure that no result file has.
sees() { # pattern
    check >"$work/out" && die "--check passed: $1"
    grep -q "$1" "$work/out" || die "--check did not report: $1; it reported: $(cat "$work/out")"
}
cp -r "$root" "$work/good"
again() { rm -rf "$root" && cp -r "$work/good" "$root"; }
sed -i '/"d 768, forward, ours"/,/"median"/s/"median": *0/"median": 9/' "$root/tests/bench/results/gpu/gpu-peer-gca.json"
sees '^docs/figures/bench-gca.svg: differs' && sees '^README.md: differs'; again
sed -i 's/^| d 768, forward, ours | 0/| d 768, forward, ours | 9/' "$root/BENCHMARKS.md" && sees '^BENCHMARKS.md: differs'; again
sed -i 's/14.84 perplexity/13.84 perplexity/' "$root/docs/research/retrieval.md" && sees '^docs/research/retrieval.md: differs'; again
touch "$root/docs/figures/bench-old.svg" && sees '^docs/figures/bench-old.svg: no benchmark'; again
for figure in '111 us' '5 times' '2.5 %' '475 thousand tokens/s' '26.5 M tokens/s' '3.8 s' '120 GB/s'; do
    printf '| speed | %s |\n' "$figure" >>"$root/README.md"
done
sees '^README.md:[0-9]*: "111 us" is in a table that report.py does not write'
[ "$(grep -c '^README.md:' "$work/out")" = 7 ] || die "not all figures were reported: $(cat "$work/out")"; again

# Result files that cannot be used are named.
refuses() { # pattern
    python3 "$report" --root "$root" >"$work/out" 2>&1 && die "report.py accepted: $1"
    grep -q "$1" "$work/out" || die "report.py did not report $1: $(cat "$work/out")"
    grep -q Traceback "$work/out" && die "report.py: $(cat "$work/out")"
    again
}
echo '{"name": "x", "figures": [' >"$root/tests/bench/results/quality.json"; refuses 'quality.json: '
echo '{"name": "x", "figures": []}' >"$root/tests/bench/results/quality.json"; refuses "quality.json: no 'machine'"
cp "$root/tests/bench/results/quality.json" "$root/tests/bench/results/other.json"; refuses 'other.json: no document has <!-- result:other -->'
rm "$root/tests/bench/results/quality.json"; refuses 'retrieval.md: no result file quality.json'
printf '\n<!-- result:quality -->\n<!-- /result -->\n' >>"$root/BENCHMARKS.md"; refuses 'quality is also in BENCHMARKS.md'
sed -i '0,/<!-- \/result -->/{/<!-- \/result -->/d}' "$root/docs/research/retrieval.md"; refuses 'retrieval.md: a block <!-- result:NAME --> does not end'
rm "$root/BENCHMARKS.md"; refuses 'BENCHMARKS.md'
sed -i 's/"a token, batch 1, base, ours"/"another"/' "$root/tests/bench/results/gpu/gpu-peers-token.json"; refuses 'no figure "a token, batch 1, base, ours"'
sed -i 's/"name": "no retrieval"/"name": "'"$(printf '%065d' 0)"'"/' "$root/tests/bench/results/quality.json"; refuses 'a cell of 65 characters'

# compare.py on programs with known times: the new one takes 0.8 of the old time; for a rate more is better.
for build in old new; do
    mkdir -p "$work/$build/bench"
    [ $build = old ] && times="10 10.1 9.9" rates="80 80.8 79.2" || times="8 8.08 7.92" rates="100 101 99"
    for program in bench_generate:"none,126,0,%s,0":"$times" bench_encode:"encode,landmarks,d=384,threads=2,%s chunks\/s":"$rates"; do
        name=${program%%:*} rest=${program#*:}
        cat >"$work/$build/bench/$name" <<END
#!/usr/bin/env bash
calls=\$(cat "\$0.calls" 2>/dev/null || echo 0); echo \$((calls + 1)) >"\$0.calls"
values=(${rest#*:})
printf '${rest%%:*}\n' "\${values[calls % 3]}"
END
        sed -i 's/\\\//\//' "$work/$build/bench/$name"
        chmod +x "$work/$build/bench/$name"
    done
done
bash "$DRT_SOURCE/tests/bench/compare.sh" "$work/old" "$work/new" --pairs 6 --json "$work/c.json" >"$work/out" || die "compare.sh: $(cat "$work/out")"
grep -q '^token, none: old 10, new 8 ms; new / old time 0.8000 (95 %: 0.8000 .. 0.8000)$' "$work/out" || die "token: $(cat "$work/out")"
grep -q '^encode, landmarks,d=384: .* time 0.8000 ' "$work/out" || die "encode: $(cat "$work/out")"
grep -q '^skipped search: no .*/old/bench/bench_store$' "$work/out" || die "the missing program was not named: $(cat "$work/out")"
python3 - "$work/c.json" <<'END' || die "the JSON of compare.sh is wrong"
import json, sys
figures = {f["name"]: f for f in json.load(open(sys.argv[1]))["figures"]}
ratio = figures["token, none, new / old time"]
assert abs(ratio["median"] - 0.8) < 1e-6 and ratio["n"] == 6 and len(ratio["interval"]) == 2, ratio
assert figures["token, none, new"]["ratio"] == 1.25 and figures["token, none, new"]["peer"] == "old"
END
# Lines as the GPU programs print them.
mkdir -p "$work/gpu"
lines() { printf '#!/usr/bin/env bash\ncat <<END\n%s\nEND\n' "$(cat)" >"$work/gpu/$1" && chmod +x "$work/gpu/$1"; }
lines bench_device <<'END'
decode,warm-up,90.0 us mean,90.0 median,90.0 best,90.0 p99,limit 58.0 us,prefill 1 tokens/s
decode,drt own past,124.7 us mean,121.0 median,120.0 best,160.0 p99,limit 58.0 us,prefill 530000 tokens/s
encode,d 768,f 2048,16384 chunks,414062 chunks/s,26.50 M tokens/s,27.00 M without the download
END
lines bench_attention <<<'gca 4 x 16K, 12 heads of 64, K 8 forward         0.2870 ms    359.0 TFLOP/s   46.0 %    0.100 GB     1000 GB/s'
lines bench_train <<<'drt,cuda,bf16,own,4,16380,137.90,137.10,475000,28.60,10.8000,10.7000'
lines bench_device_corpus <<'END'
search,gpu-flat,1 queries,1.640 ms,3.74 TB/s
search,gpu-ivf,1 queries,0.087 ms,128 lists
search,gpu-ivf,1 queries,0.115 ms,256 lists
END
bash "$DRT_SOURCE/tests/device/bench/compare.sh" "$work/gpu" "$work/gpu" --pairs 1 >"$work/out" || die "compare.sh: $(cat "$work/out")"
cut -d';' -f1 "$work/out" >"$work/figures"
cat >"$work/expected" <<'END'
decode, drt own past: old 124.7, new 124.7 us
gca, gca 4 x 16K, 12 heads of 64, K 8 forward: old 0.287, new 0.287 ms
train, drt: old 137.9, new 137.9 ms
encode, d 768: old 26.5, new 26.5 M tokens/s
search, gpu-flat: old 1.64, new 1.64 ms
search, gpu-ivf: old 0.115, new 0.115 ms
END
diff "$work/expected" "$work/figures" || die "compare.py read other figures from the GPU programs"
printf '#!/usr/bin/env bash\necho "disk is full" >&2\nexit 3\n' >"$work/new/bench/bench_encode"
bash "$DRT_SOURCE/tests/bench/compare.sh" "$work/old" "$work/new" --pairs 1 --case encode >"$work/out" 2>&1 && die "compare.sh passed over a failure"
grep -q 'bench_encode ended with 3: disk is full' "$work/out" || die "the failure was not reported: $(cat "$work/out")"
echo ok
