#!/usr/bin/env bash
# The lexical index through drt-index: built with the store or later, kept complete by add and drop, searched alone and
# with the landmarks, verified, repaired, removed; its size.
. "$DRT_SOURCE/tests/cli/lib_index.sh"
command -v python3 >/dev/null || skip "python3 is missing"
make_model "$TMP/model"
make_corpus "$TMP/docs.jsonl" 60
python3 - "$TMP/docs.jsonl" "$TMP/more.jsonl" <<'P'
import json, sys
with open(sys.argv[1], "a") as f:
    f.write(json.dumps({"text": "A zymurgist keeps quixotic yeast under jars. " * 2, "meta": {"id": "rare-1"}}) + "\n")
with open(sys.argv[2], "w") as f:
    f.write(json.dumps({"text": "Quixotic yeast again, which the zymurgist of the second file keeps in jars.", "meta": {"id": "rare-2"}}) + "\n")
P
build() { expect 0 "$INDEX" build "$TMP/docs.jsonl" --model "$TMP/model" --shard-chunks 20 "$@"; }
search() { expect 0 "$INDEX" search "a zymurgist keeps quixotic yeast" --store "$TMP/s" --model "$TMP/model" --k 4 --json "$@"; }
keys() { python3 -c 'import json, sys; print(*[json.loads(x)["key"] for x in sys.stdin])' <"$OUT"; }
chunks() { python3 -c 'import json, sys; print(*[json.loads(x)["chunk"] for x in sys.stdin])' <"$OUT"; }
none="the store has no lexical index: make it with drt-index lexical --store"

# ---- without one: searchers that need it fail and name the command; the store is otherwise the same.
build --out "$TMP/off" --lexical off
build --out "$TMP/s"
same_store "$TMP/off" "$TMP/s"
[ ! -e "$TMP/off/lexical/00001.lex" ] || die "--lexical off makes an index"
for kind in lexical hybrid; do
    expect_error "$none" "$INDEX" search river --store "$TMP/off" --model "$TMP/model" --searcher $kind
done
expect_usage "scans no landmarks" "$INDEX" search river --store "$TMP/s" --searcher lexical --exact
expect_error "it has no lexical index (drt-index lexical --store" "$INDEX" build "$TMP/docs.jsonl" --model "$TMP/model" --shard-chunks 20 --out "$TMP/off" --lexical on
expect 0 "$INDEX" lexical --store "$TMP/off"
out_has "generation 2, lexical index of "
same_files() { (cd "$1/lexical" && cat ./*.lex | cksum); }
same "$(same_files "$TMP/off")" "$(same_files "$TMP/s")" "an index made later"
expect 0 "$INDEX" lexical --store "$TMP/off"
out_has "generation 2, "

# ---- hits: the document with the rare words is first; the same order each time; scores are those of the landmarks.
search --searcher lexical
same "$(keys | cut -d' ' -f1)" rare-1 "the first hit by words"
search --searcher hybrid --k 40 # of a random model's landmarks
keys | grep -q rare-1 || die "hybrid search lost the best hit by words"
first=$(chunks)
search --searcher hybrid --k 40
same "$(chunks)" "$first" "the same hybrid search again"
python3 - "$OUT" <<'P' || die "what searched"
import json, sys
rows = [json.loads(x) for x in open(sys.argv[1])]
assert all(r["searched_by"].startswith("hybrid of lexical, 1 segment; ") for r in rows), rows[0]
P
id=$(chunks | cut -d' ' -f1)
for kind in lexical hybrid; do
    expect 0 "$INDEX" search --from-chunk "$id" --store "$TMP/s" --model "$TMP/model" --k 50 --json --searcher $kind
    chunks | tr ' ' '\n' | grep -qx "$id" && die "$kind: the query's own document was found"
done
printf 'the zymurgist\n\nseven lights of a harbour\n' >"$TMP/q.txt"
for kind in lexical hybrid; do
    expect 0 "$INDEX" search --queries "$TMP/q.txt" --store "$TMP/s" --model "$TMP/model" --k 3 --json --searcher $kind
    python3 -c '
import json, sys
rows = [json.loads(x) for x in sys.stdin]
assert [len(r["hits"]) > 0 for r in rows] == [True, False, True], rows
print(*[h["chunk"] for h in rows[0]["hits"]])' <"$OUT" >"$TMP/many" || die "--queries, $kind"
    expect 0 "$INDEX" search "the zymurgist" --store "$TMP/s" --model "$TMP/model" --k 3 --json --searcher $kind
    same "$(chunks)" "$(cat "$TMP/many")" "one query alone and in a file, $kind"
done

# ---- add and drop keep it complete.
expect 0 "$INDEX" add "$TMP/more.jsonl" --store "$TMP/s" --model "$TMP/model" --shard-chunks 20
search --searcher lexical
same "$(keys | tr ' ' '\n' | head -n 2 | sort | tr '\n' ' ')" "rare-1 rare-2 " "hits after an addition"
expect 0 "$INDEX" drop --store "$TMP/s" --shard 0
expect 0 "$INDEX" verify --store "$TMP/s" --deep
search --searcher lexical
same "$(keys | tr ' ' '\n' | head -n 2 | sort | tr '\n' ' ')" "rare-1 rare-2 " "hits after a drop"

# ---- damage: search and verify name it; other searches work; repair rebuilds the index.
file=lexical/$(ls "$TMP/s/lexical" | tail -n 1)
printf '\x5a\xa5\x5a' | dd of="$TMP/s/$file" bs=1 seek=70 conv=notrunc 2>/dev/null
expect 1 "$INDEX" verify --store "$TMP/s" --deep
out_has "$file: "
out_has "run drt-index repair"
expect 0 "$INDEX" search river --store "$TMP/s" --model "$TMP/model"
truncate -s -3 "$TMP/s/$file"
for kind in lexical hybrid; do
    expect_error "$file: " "$INDEX" search river --store "$TMP/s" --model "$TMP/model" --searcher $kind
    err_has "run drt-index repair"
done
expect 0 "$INDEX" search river --store "$TMP/s" --model "$TMP/model"
expect 0 "$INDEX" repair --store "$TMP/s"
expect 0 "$INDEX" verify --store "$TMP/s" --deep
search --searcher lexical
same "$(keys | tr ' ' '\n' | head -n 2 | sort | tr '\n' ' ')" "rare-1 rare-2 " "hits after repair"
expect 0 "$INDEX" repair --store "$TMP/s" # files of the previous generation stay for readers until the next writer
expect 0 "$INDEX" stats --store "$TMP/s" --json
python3 - "$OUT" "$TMP/s" <<'P' || die "stats"
import glob, json, os, sys
s = json.load(open(sys.argv[1]))
assert s["lexical"] is True and s["format"] == 4, s
assert s["lexical_bytes"] == sum(os.path.getsize(f) for f in glob.glob(sys.argv[2] + "/lexical/*.lex")), s
P

# ---- removed
expect 0 "$INDEX" lexical --store "$TMP/s" --remove
out_has "no lexical index"
expect 0 "$INDEX" repair --store "$TMP/s" # as above
[ -z "$(ls "$TMP/s/lexical")" ] || die "files are left"
expect_error "$none" "$INDEX" search river --store "$TMP/s" --model "$TMP/model" --searcher lexical
expect_usage "leave --out DIR out" "$INDEX" lexical --store "$TMP/s" --out "$TMP/x"
expect_error "no store here" "$INDEX" lexical --store "$TMP/nowhere"
