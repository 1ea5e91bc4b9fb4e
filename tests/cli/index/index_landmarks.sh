#!/usr/bin/env bash
# drt-index build --landmarks i8: what a store has half of; how it is named; that every command keeps its type, and refuses
# another; compact --landmarks.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 60 1
make_corpus "$TMP/b.jsonl" 20 2
model=(--model "$TMP/model" --threads 1 --shard-chunks 40)
stat_of() { expect 0 "$INDEX" stats --store "$1" --json; json_int "$OUT" "$2"; }
type_of() { expect 0 "$INDEX" stats --store "$1" --json; sed -E 's/.*"landmarks":"([a-z0-9]+)".*/\1/' "$OUT"; }

expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/f16" "${model[@]}"
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/named" --landmarks f16 "${model[@]}"
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/i8" --landmarks i8 "${model[@]}"
err_has "landmarks of type i8"
same "$(type_of "$TMP/f16") $(type_of "$TMP/named") $(type_of "$TMP/i8")" "f16 f16 i8" "types"
same "$(stat_of "$TMP/f16" format) $(stat_of "$TMP/i8" format)" "4 5" "formats"
for file in tokens/00000.tok landmarks/00000.f16; do cmp "$TMP/f16/$file" "$TMP/named/$file" || die "another $file"; done
# 32 dimensions: 36 bytes a chunk and up to 63 of padding a file, instead of 64.
chunks=$(stat_of "$TMP/i8" chunks) shards=$(stat_of "$TMP/i8" shards) bytes=$(stat_of "$TMP/i8" landmark_bytes)
[ "$bytes" -ge $((36 * chunks + 96 * shards)) ] && [ "$bytes" -le $((36 * chunks + 159 * shards)) ] || die "$bytes bytes of landmarks"
expect 0 "$INDEX" stats --store "$TMP/i8"
out_has "(32 dimensions, 8-bit codes)"
expect 0 "$INDEX" stats --store "$TMP/f16"
out_has "(32 dimensions, fp16)"
expect 0 "$INDEX" verify --store "$TMP/i8" --deep
expect 0 "$INDEX" recall --store "$TMP/i8" --queries 20

# The same bytes with more threads and other batches.
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/threads" --landmarks i8 --model "$TMP/model" --threads 3 --shard-chunks 40
for file in "$TMP"/i8/landmarks/*; do cmp "$file" "$TMP/threads/landmarks/${file##*/}" || die "threads change ${file##*/}"; done

# Another type is refused by name, before any work; without the option the store's stays.
expect_error "its landmarks are of type i8, not f16 (drt-index compact --landmarks f16" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/i8" --landmarks f16 "${model[@]}"
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/i8" "${model[@]}"
out_has "already built"
expect_usage "--landmarks" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/x" --landmarks i4 "${model[@]}"
expect_usage "--landmarks" "$INDEX" add "$TMP/b.jsonl" --store "$TMP/i8" --landmarks f16 "${model[@]}"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/i8" "${model[@]}"
same "$(type_of "$TMP/i8")" i8 "type after add"
[ -z "$(find "$TMP/i8/landmarks" -name '*.f16')" ] || die "add wrote fp16"

# A build that was begun with one type does not continue with the other.
if [ -x "$BIN/drt-index-fault" ]; then
    faulty kill 1:store:seal:committed "$BIN/drt-index-fault" build "$TMP/a.jsonl" --out "$TMP/begun" --landmarks i8 "${model[@]}"
    expect_error "has landmarks of type i8, not f16" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/begun" --landmarks f16 "${model[@]}"
    expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/begun" "${model[@]}"
    same "$(type_of "$TMP/begun")" i8 "type of the build that was continued"
    same_store "$TMP/begun" "$TMP/threads"
fi

# compact: as it is; to fp16 without a change of a number, and back to the same bytes.
expect 0 "$INDEX" compact --store "$TMP/i8" --out "$TMP/same" --threads 1
expect 0 "$INDEX" compact --store "$TMP/i8" --out "$TMP/wide" --landmarks f16 --threads 1
expect 0 "$INDEX" compact --store "$TMP/wide" --out "$TMP/back" --landmarks i8 --threads 1
same "$(type_of "$TMP/same") $(type_of "$TMP/wide") $(type_of "$TMP/back")" "i8 f16 i8" "types of compact"
cmp "$TMP/same/landmarks/00000.i8" "$TMP/back/landmarks/00000.i8" || die "fp16 and back changes landmarks"
for store in i8 wide; do
    expect 0 "$INDEX" export --store "$TMP/$store" --landmarks values
    cp "$OUT" "$TMP/$store.export"
done
cmp "$TMP/i8.export" "$TMP/wide.export" || die "fp16 changes numbers of 8-bit landmarks"
expect_error "has landmarks of type i8, not f16" "$INDEX" compact --store "$TMP/i8" --out "$TMP/same" --landmarks f16 --threads 1

# Parts of two types are not joined.
expect 0 "$INDEX" build "$TMP/a.jsonl" --part 1/2 --out "$TMP/parts" --landmarks i8 --model "$TMP/model"
expect 0 "$INDEX" build "$TMP/a.jsonl" --part 2/2 --out "$TMP/parts" --model "$TMP/model"
expect_error "build both with the same --landmarks" "$INDEX" join "$TMP/parts/part-1-of-2" "$TMP/parts/part-2-of-2" --out "$TMP/joined"
[ ! -e "$TMP/joined" ] || die "join left something"
exit 0
