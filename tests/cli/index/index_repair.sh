#!/usr/bin/env bash
# Every remedy that drt-index names for a damaged store is run as printed, and works: landmarks are encoded again from their tokens, shards
# without tokens are dropped and their documents added again, derived files are rebuilt.
. "$DRT_SOURCE/tests/cli/lib_index.sh"
make_model "$TMP/model"
make_model "$TMP/stranger" 4
make_corpus "$TMP/a.jsonl" 120 1
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/whole" --model "$TMP/model" --shard-chunks 60 --index IVF4,SQ8
export_store "$TMP/whole" "$TMP/whole.export"
fresh() { rm -rf "$TMP/s"; cp -r "$TMP/whole" "$TMP/s"; }
flip() { printf '\x5a\xa5\x5a' | dd of="$TMP/s/$1" bs=1 seek="${2:-200}" conv=notrunc 2>/dev/null; }
sound() { expect 0 "$INDEX" verify --store "$TMP/s" --deep; }
as_before() { export_store "$TMP/s" "$TMP/now"; cmp -s "$TMP/now" "$TMP/whole.export" || die "$1: the store differs"; }

# --- landmarks: opening, verify and repair name one command, and it works
fresh
flip landmarks/00001.$LANDMARKS
rm "$TMP/s/landmarks/00003.$LANDMARKS"
remedy="run drt-index repair --model with the model that made the store"
expect_error "landmarks/00003.$LANDMARKS: the file is missing, $remedy" "$INDEX" stats --store "$TMP/s"
expect_error "$remedy" "$INDEX" search river --store "$TMP/s" --model "$TMP/model"
expect_error "$remedy" "$INDEX" add "$TMP/a.jsonl" --store "$TMP/s" --model "$TMP/model"
expect 1 "$INDEX" verify --store "$TMP/s" --deep
same "$(grep -c "landmarks/0000[13].$LANDMARKS: .*: $remedy" "$OUT")" 2 "landmarks that verify names"
expect 1 "$INDEX" repair --store "$TMP/s"
same "$(grep -c "$remedy" "$OUT")" 2 "landmarks that repair names"
expect_error "encoder weights" "$INDEX" repair --store "$TMP/s" --model "$TMP/stranger"
expect_error "cannot hold this model" "$INDEX" repair --store "$TMP/s" --model "$TMP/model" --max-ram 1M
expect 0 "$INDEX" repair --store "$TMP/s" --model "$TMP/model"
err_has "landmarks/00001.$LANDMARKS: was encoded again, to the bytes that are recorded"
out_has "nothing is left to repair"
sound
cmp "$TMP/s/landmarks/00003.$LANDMARKS" "$TMP/whole/landmarks/00003.$LANDMARKS" || die "other landmarks"
as_before "landmarks"

# --- tokens: the shard is dropped, the same text added again
fresh
truncate -s -1 "$TMP/s/tokens/00002.tok"
flip landmarks/00002.$LANDMARKS
remedy="run drt-index drop --shard 2, then add its documents again"
expect_error "tokens/00002.tok: " "$INDEX" stats --store "$TMP/s"
err_has "$remedy"
for command in verify "repair --model $TMP/model"; do
    deep=""; [ "$command" = verify ] && deep=--deep
    expect 1 "$INDEX" $command --store "$TMP/s" $deep
    same "$(grep -c "/00002\..*$remedy" "$OUT")" 2 "files that $command names"
done
expect 0 "$INDEX" drop --store "$TMP/s" --shard 2 --dry-run
cp "$OUT" "$TMP/dry"
expect 1 "$INDEX" verify --store "$TMP/s"
expect 0 "$INDEX" drop --store "$TMP/s" --shard 2
sed 's/would drop/dropped/; s/generation 1/generation 2/' "$TMP/dry" | cmp - "$OUT" || die "the dry run printed something else"
out_has "dropped "
documents=$(sed -n 's/.*dropped \([0-9]*\) documents.*/\1/p' "$OUT")
sound
expect 0 "$INDEX" stats --store "$TMP/s" --json
same "$(json_int "$OUT" dropped_documents)" "$documents" "dropped documents"
same "$(json_int "$OUT" format)" "$([ "$LANDMARKS" = i8 ] && echo 5 || echo 4)" "format of a store with a dropped shard"
expect 0 "$INDEX" stats --store "$TMP/s"
out_has "dropped      $documents documents and"
expect 0 "$INDEX" drop --store "$TMP/s" --shard 2 --json
same "$(grep -c '"shard":2' "$OUT")" "$documents" "documents named as JSON"
first=$(head -n 1 "$OUT" | sed 's/.*"first_chunk":\([0-9]*\).*/\1/')
# All other chunks are unchanged; those of the shard are not found any more.
expect 0 "$INDEX" export --store "$TMP/s"
grep '"chunk"' "$OUT" >"$TMP/left"
grep -v '"rank"' "$TMP/whole.export" | grep -vFf "$TMP/left" >"$TMP/gone"
same "$(grep -cvFf "$TMP/whole.export" "$TMP/left")" 0 "chunks that changed"
grep -q "\"chunk\":$first," "$TMP/gone" || die "chunk $first is still exported"
expect_error "chunk $first was dropped" "$INDEX" search --from-chunk "$first" --store "$TMP/s" --model "$TMP/model"
expect 0 "$INDEX" recall --store "$TMP/s" --queries 20 --nprobe 4
expect 0 "$INDEX" export --store "$TMP/s" --first "$first" --count 1
next=$(sed 's/.*"chunk":\([0-9]*\).*/\1/' "$OUT")
[ "$next" -gt "$first" ] || die "export does not pass over what was dropped"
expect 0 "$INDEX" add "$TMP/a.jsonl" --store "$TMP/s" --model "$TMP/model" --shard-chunks 60
sound
expect 0 "$INDEX" stats --store "$TMP/s" --json
cp "$OUT" "$TMP/added"
expect 0 "$INDEX" stats --store "$TMP/whole" --json
for what in documents chunks tokens; do same "$(json_int "$TMP/added" $what)" "$(json_int "$OUT" $what)" "$what after add"; done
expect 0 "$INDEX" export --store "$TMP/s"
texts() { sed 's/.*"ids":\(\[[^]]*\]\).*"landmark_hash":\("[^"]*"\).*/\1 \2/' "$1" | sort; }
texts "$OUT" >"$TMP/texts"
grep -v '"rank"' "$TMP/whole.export" >"$TMP/chunks"
texts "$TMP/chunks" | cmp - "$TMP/texts" || die "add gave other chunks than build"

# --- the index record and a derived file: plain repair
fresh
rm "$TMP"/s/index/*
expect_error "run drt-index repair" "$INDEX" stats --store "$TMP/s"
expect 0 "$INDEX" repair --store "$TMP/s"
sound
as_before "index"
# With landmarks damaged as well, repair prints which comes first.
rm "$TMP"/s/index/*
flip landmarks/00000.$LANDMARKS
expect 1 "$INDEX" repair --store "$TMP/s"
out_has "mend the damaged shards first, then run drt-index repair"
expect 0 "$INDEX" repair --store "$TMP/s" --model "$TMP/model"
sound
as_before "index and landmarks"

# --- shards of an unfinished run
expect_error "there is no shard 99, the store has" "$INDEX" drop --store "$TMP/s" --shard 99
expect_usage "--shard N is missing" "$INDEX" drop --store "$TMP/s"
expect_usage "--shard takes the number of a shard" "$INDEX" drop --store "$TMP/s" --shard 1x
expect_usage "--store STORE is missing" "$INDEX" drop --shard 1
echo ok
