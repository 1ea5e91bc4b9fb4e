#!/usr/bin/env bash
# drt-index get and search --queries: the output equals the store's contents and single searches; errors name bad files.
. "$DRT_SOURCE/tests/cli/lib_index.sh"
command -v python3 >/dev/null || skip "python3 is missing"
make_model "$TMP/model"
make_corpus "$TMP/docs.jsonl" 60
expect 0 "$INDEX" build "$TMP/docs.jsonl" --out "$TMP/store" --model "$TMP/model"
get() { "$INDEX" get --store "$TMP/store" --model "$TMP/model" "$@"; }
search() { "$INDEX" search --store "$TMP/store" --model "$TMP/model" "$@"; }

# ---- get: a document is the text of its source; its chunks are parts of it, in order.
expect 0 get --document 7 --json
head -n 1 "$OUT" | python3 -c '
import json, sys
d = json.load(sys.stdin)
line = open(sys.argv[1]).read().splitlines()[d["line"] - 1]
assert d["document"] == 7 and json.loads(line)["text"].strip() == d["text"].strip(), d
assert d["key"] == json.loads(line)["meta"]["id"] or d["key"] in line
print(d["first_chunk"], d["chunks"])' "$TMP/docs.jsonl" >"$TMP/range" || die "document 7"
read -r first chunks <"$TMP/range"
expect 0 get --document 7
cp "$OUT" "$TMP/whole"
err_has "document 7: "
expect 0 get --chunk "$first" --context 100 --json
same "$(wc -l <"$OUT")" "$chunks" "chunks of the document"
python3 - "$OUT" "$TMP/whole" "$first" <<'P' || die "the chunks do not make the document"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [r["chunk"] for r in rows] == list(range(int(sys.argv[3]), int(sys.argv[3]) + len(rows)))
assert all("score" not in r and r["document"] == 7 for r in rows)
assert "".join(r["text"] for r in rows).replace(" ", "").strip() == open(sys.argv[2]).read().replace(" ", "").strip()
P
expect 0 get --chunk "$first" --context 1
out_has ">> "
out_has "chunk id $first"
expect_error "has no chunk 99999: ids are 0 to " "$INDEX" get --store "$TMP/store" --model "$TMP/model" --chunk 99999
expect_error "has no document 99999: ids are 0 to " "$INDEX" get --store "$TMP/store" --model "$TMP/model" --document 99999
expect_usage "give --chunk ID or --document ID" "$INDEX" get --store "$TMP/store"
expect_usage "give --chunk ID or --document ID" "$INDEX" get --store "$TMP/store" --chunk 1 --document 1
expect_usage "--context needs --chunk" "$INDEX" get --store "$TMP/store" --document 1 --context 1

# ---- --queries: each query has the hits of a single search, for every format of the file.
cat >"$TMP/q.txt" <<'Q'
the river and the harbour
seven lights of a harbour

stone winding north under the table
Q
awk '{ printf "{\"id\": %d, \"%s\": \"%s\", \"more\": [1, {\"text\": 2}]}\n", NR, NR % 2 ? "text" : "query", $0 }' "$TMP/q.txt" >"$TMP/q.jsonl"
expect 0 search --queries "$TMP/q.txt" --json --k 3
cp "$OUT" "$TMP/batch"
err_has "4 queries in "
n=0
while IFS= read -r query; do
    if [ -n "$query" ]; then search "$query" --json --k 3 >"$TMP/one-$n" 2>"$ERR" || die "search of \"$query\""; else : >"$TMP/one-$n"; fi
    n=$((n + 1))
done <"$TMP/q.txt"
python3 - "$TMP" <<'P' || die "--queries differs from single searches"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/batch")]
assert [r["query"] for r in rows] == [0, 1, 2, 3] and rows[2]["hits"] == []
for i, row in enumerate(rows):
    one = [json.loads(line) for line in open(f"{sys.argv[1]}/one-{i}")]
    for hit in one: assert hit.pop("searched_by") == row["searched_by"]
    assert row["hits"] == one, (i, row["hits"], one)
P
expect 0 search --queries "$TMP/q.jsonl" --json --k 3
cmp -s "$OUT" "$TMP/batch" || die ".jsonl gives other hits than .txt"
for format in txt jsonl; do # a byte order mark, which some editors write, is no part of a query
    { printf '\357\273\277'; cat "$TMP/q.$format"; } >"$TMP/marked.$format"
    expect 0 search --queries "$TMP/marked.$format" --json --k 3
    cmp -s "$OUT" "$TMP/batch" || die "a byte order mark changes the hits of .$format"
done
expect_in 0 "$TMP/q.jsonl" search --queries - --queries-format jsonl --json --k 3
cmp -s "$OUT" "$TMP/batch" || die "standard input gives other hits"
expect 0 search --queries "$TMP/q.txt" --k 2
out_has "query 1: seven lights of a harbour"
out_has "   nothing"

# Vectors: every landmark finds its own chunk with the score of search, in float32 and float16, also from .fbin.
"$INDEX" export --store "$TMP/store" --landmarks values >"$TMP/export" 2>"$ERR" || die "export"
python3 - "$TMP" <<'P' || die "vectors"
import json, struct, sys
tmp = sys.argv[1]
rows = [json.loads(line) for line in open(tmp + "/export")]
key = next(k for k, v in rows[0].items() if isinstance(v, list) and v and isinstance(v[0], float))
rows = [r[key] for r in rows][:300]
n, dim = len(rows), len(rows[0])
def npy(name, code, descr, rows=rows, shape=None, order="False"):
    head = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape or f"({len(rows)}, {dim})")
    head += " " * (-(10 + len(head) + 1) % 64) + "\n"
    with open(f"{tmp}/{name}.npy", "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        for r in rows: f.write(struct.pack(f"<{dim}{code}", *r))
npy("f4", "f", "<f4")
npy("f2", "e", "<f2")
npy("one", "f", "<f4", rows[:1], f"({dim},)")
npy("f8", "d", "<f8")
npy("fortran", "f", "<f4", order="True")
npy("short", "f", "<f4", shape=f"({n + 1}, {dim})")
npy("long", "f", "<f4", shape=f"({n - 1}, {dim})")
npy("narrow", "f", "<f4", shape=f"({n}, {dim - 1})")
npy("cube", "f", "<f4", shape=f"(1, {n}, {dim})")
npy("nan", "f", "<f4", rows[:2] + [[float("nan")] * dim])
npy("large", "f", "<f4", rows[:1] + [[3e38] * dim])             # scores would be infinite
open(tmp + "/v.fbin", "wb").write(struct.pack("<ii", n, dim) + b"".join(struct.pack(f"<{dim}f", *r) for r in rows))
P
for file in f4.npy f2.npy v.fbin; do
    expect 0 search --queries "$TMP/$file" --json --k 2 --exact
    [ "$file" = f4.npy ] && cp "$OUT" "$TMP/vectors"
    cmp -s "$OUT" "$TMP/vectors" || die "$file gives other hits than f4.npy"
done
python3 - "$TMP" <<'P' || die "scores are not the largest products with a landmark"
import json, math, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/vectors")]
export = [json.loads(line) for line in open(sys.argv[1] + "/export")]
key = next(k for k, v in export[0].items() if isinstance(v, list) and v and isinstance(v[0], float))
landmarks = [r[key] for r in export]
assert len(rows) == min(len(landmarks), 300)
for i in range(0, len(rows), 29):
    scores = sorted((sum(a * b for a, b in zip(landmarks[i], l)) / math.sqrt(len(l)) for l in landmarks), reverse=True)
    for hit, want in zip(rows[i]["hits"], scores): assert abs(hit["score"] - want) < 1e-4, (i, hit, want)
P
expect 0 search --queries "$TMP/one.npy" --json
same "$(wc -l <"$OUT")" 1 "one vector"
bad() { expect_error "$1" "$INDEX" search --store "$TMP/store" --model "$TMP/model" --json --queries "$TMP/$2"; }
bad "type '<f8': save it" f8.npy
bad "Fortran order" fortran.npy
bad "ends within rows" short.npy
bad "more bytes than its header's" long.npy
bad "dimensions, the store's landmarks" narrow.npy
bad "): queries are an array of [n, dim]" cube.npy
bad "row 2, column 0 is not a finite number" nan.npy
bad "row 1, column 0 is not a finite number of at most 1e+28" large.npy
printf 'no numbers' >"$TMP/text.npy"
bad "does not begin as a NumPy file" text.npy
printf '\001' >"$TMP/tiny.fbin"
bad "ends within its header" tiny.fbin
bad "No such file" nowhere.jsonl
printf '{"text": "a b"}\n{"title": "c"}\n' >"$TMP/field.jsonl"
bad 'line 2: has neither "text" nor "query"' field.jsonl
printf '{"text": 5}\n' >"$TMP/number.jsonl"
bad "number.jsonl: line 1, column 11: expected a string" number.jsonl
expect_usage "leave out TEXT" "$INDEX" search --store "$TMP/store" --queries "$TMP/q.txt" "a text"
expect_usage "--queries-format needs" "$INDEX" search --store "$TMP/store" --queries-format npy "a text"
