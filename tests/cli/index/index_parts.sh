#!/usr/bin/env bash
# A corpus that was built in parts and joined equals one build, for any number of parts and order of arguments, from plain and compressed
# files, token files and text files. join refuses wrong parts in one line.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
make_model "$TMP/model"
mkdir "$TMP/corpus"
make_corpus "$TMP/corpus/a.jsonl" 90 1
make_corpus "$TMP/corpus/b.jsonl" 40 2
make_corpus "$TMP/corpus/d.jsonl" 1 4
gzip "$TMP/corpus/b.jsonl"
for i in 1 2 3; do echo "text $i of the river and the harbour lights" >"$TMP/corpus/c$i.txt"; done
: >"$TMP/corpus/z.txt"
model=(--model "$TMP/model" --threads 1 --shard-chunks 30)
expect 0 "$INDEX" build "$TMP/corpus" --out "$TMP/whole" --index exact "${model[@]}"

# Documents are compared by rank, not by id: duplicates in later parts leave gaps in the ids.
contents() { # STORE FILE
    "$INDEX" export --store "$1" 2>"$ERR" | sed -E 's/"(chunk|document)":[0-9]+,//g' >"$2" || die "export of $1"
    "$INDEX" search "the river and the harbour" --store "$1" --model "$TMP/model" --k 9 --json 2>"$ERR" |
        sed -E 's/"(chunk|document)":[0-9]+,//g' >>"$2" || die "search in $1"
    "$INDEX" stats --store "$1" --json 2>"$ERR" | grep -oE '"(documents|chunks|tokens|duplicates)":[0-9]+' >>"$2" || die "stats of $1"
}
contents "$TMP/whole" "$TMP/whole.contents"
[ "$(wc -l <"$TMP/whole.contents")" -gt 100 ] || die "the export is empty"

for parts in 1 3 40; do
    rm -rf "$TMP/parts" "$TMP/joined"
    for ((i = parts; i >= 1; i--)); do
        expect 0 "$INDEX" build "$TMP/corpus" --part $i/$parts --out "$TMP/parts" "${model[@]}"
    done
    mapfile -t given < <(printf '%s\n' "$TMP"/parts/* | sort -R --random-source=<(yes))
    expect 0 "$INDEX" join "${given[@]}" --out "$TMP/joined" --threads 1
    expect 0 "$INDEX" verify --store "$TMP/joined" --deep
    rm -rf "$TMP/kept"; mv "$TMP/parts" "$TMP/kept"
    contents "$TMP/joined" "$TMP/joined.contents"
    cmp "$TMP/whole.contents" "$TMP/joined.contents" || die "$parts parts: another store"
    mv "$TMP/kept" "$TMP/parts"
    expect 0 "$INDEX" join "$TMP"/parts/* --out "$TMP/joined" --threads 1
    out_has "joined here already"
done

# A second call has nothing to do.
expect 0 "$INDEX" build "$TMP/corpus" --part 3/40 --out "$TMP/parts" "${model[@]}"
out_has "already"

# With --copy the store has its own files; more documents can be added to the joined store, which merges their files; it can be repaired.
rm -rf "$TMP/copied"
expect 0 "$INDEX" join "$TMP"/parts/* --out "$TMP/copied" --copy --index IVF4,SQ8 --threads 1
# join, repair and index make an index in one manner: the same bytes.
made() { find "$1/index" -name '*.faiss' -exec sha256sum {} + | cut -c 1-64 | sort; }
for how in repair index; do
    cp -r "$TMP/joined" "$TMP/by-$how"
    expect 0 "$INDEX" $how --store "$TMP/by-$how" --index IVF4,SQ8 --threads 1
    same "$(made "$TMP/by-$how")" "$(made "$TMP/copied")" "index of join and of $how"
done
[ "$(made "$TMP/copied" | wc -l)" = 2 ] || die "the index is not a template and one segment"
[ "$(find "$TMP/copied/landmarks" -type f -links +1 | wc -l)" = 0 ] || die "--copy made links"
[ "$(find "$TMP/joined/landmarks" -type f -links 1 | wc -l)" = 0 ] || die "files were copied without --copy"
rm -rf "$TMP/parts.moved"; mv "$TMP/parts" "$TMP/parts.moved"
file=$(find "$TMP/joined/landmarks" -name "*.$LANDMARKS" | sort | sed -n 4p)
cp --remove-destination "$file" "$file.new" && mv "$file.new" "$file"
printf '\x7b\x3c' | dd of="$file" bs=1 seek=70 conv=notrunc 2>/dev/null
expect 1 "$INDEX" verify --store "$TMP/joined" --deep
expect 0 "$INDEX" repair --store "$TMP/joined" --model "$TMP/model" --threads 1
expect 0 "$INDEX" verify --store "$TMP/joined" --deep
make_corpus "$TMP/more.jsonl" 12 9
expect 0 "$INDEX" add "$TMP/more.jsonl" --store "$TMP/joined" --model "$TMP/model" --threads 1
cp -r "$TMP/whole" "$TMP/whole-more"
expect 0 "$INDEX" add "$TMP/more.jsonl" --store "$TMP/whole-more" --model "$TMP/model" --threads 1
contents "$TMP/joined" "$TMP/joined.contents"
contents "$TMP/whole-more" "$TMP/whole.contents"
cmp "$TMP/whole.contents" "$TMP/joined.contents" || die "add to a joined store"
expect 0 "$INDEX" verify --store "$TMP/joined" --deep
mv "$TMP/parts.moved" "$TMP/parts"

# An index that no store can have is refused before anything is made.
for name in IVF4,SQ9 IVF4,PQ7; do
    expect_error "index $name" "$INDEX" join "$TMP"/parts/* --out "$TMP/wrong" --index $name
    expect_error "index $name" "$INDEX" compact --store "$TMP/copied" --out "$TMP/wrong" --index $name
    [ ! -e "$TMP/wrong" ] || die "a refused index leaves $(ls "$TMP/wrong")"
done
# A call that requests indexes of a store that was joined before names what the store lacks.
expect 0 "$INDEX" join "$TMP"/parts/* --out "$TMP/copied" --copy --index IVF8,SQ8 --lexical on
out_has "joined here already"
err_has "has the index IVF4,SQ8, not IVF8,SQ8: run drt-index index"
err_has "has no lexical index: run drt-index lexical"

# Refusals.
rm -rf "$TMP/three" "$TMP/out"
for i in 1 2 3; do expect 0 "$INDEX" build "$TMP/corpus" --part $i/3 --out "$TMP/three" "${model[@]}"; done
p=$TMP/three/part
refuse() { local text=$1; shift; expect_error "$text" "$INDEX" join "$@" --out "$TMP/out" --threads 1; [ ! -e "$TMP/out" ] || die "a refused join made a folder"; }
refuse "$TMP/out: part 2 of 3 is missing (2 are given)" "$p-1-of-3" "$p-3-of-3"
refuse "$TMP/out: part 3 of 3 is missing" "$p-1-of-3" "$p-2-of-3"
cp -r "$p-2-of-3" "$TMP/double"
refuse "are both part 2 of 3" "$p-1-of-3" "$p-2-of-3" "$p-3-of-3" "$TMP/double"
refuse "are one folder: name each part once" "$p-1-of-3" "$p-3-of-3" "$p-1-of-3" "$p-2-of-3"
expect_error "are one folder" "$INDEX" join "$p-1-of-3" "$p-2-of-3" "$p-3-of-3" --out "$p-2-of-3" --threads 1
refuse "is one of 40 parts" "$p-1-of-3" "$TMP/parts/part-2-of-40" "$p-3-of-3"
refuse "and not a part of one" "$p-1-of-3" "$TMP/whole"
refuse "no store here" "$p-1-of-3" "$TMP/corpus"
expect_usage "give the parts in it" "$INDEX" join "$TMP/three" --out "$TMP/out"
make_model "$TMP/other" 8
expect 0 "$INDEX" build "$TMP/corpus" --part 2/3 --out "$TMP/others" --model "$TMP/other" --threads 1 --shard-chunks 30
refuse "encoder weights" "$p-1-of-3" "$TMP/others/part-2-of-3" "$p-3-of-3"
expect 0 "$INDEX" build "$TMP/corpus/a.jsonl" --part 2/3 --out "$TMP/less" "${model[@]}"
refuse "another corpus" "$p-1-of-3" "$TMP/less/part-2-of-3" "$p-3-of-3"
expect 0 "$INDEX" add "$TMP/more.jsonl" --store "$TMP/double" --model "$TMP/model" --threads 1
refuse "were added to it" "$p-1-of-3" "$TMP/double" "$p-3-of-3"
expect_error "a store is here already" "$INDEX" join "$p"-* --out "$TMP/whole" --threads 1
expect_error "not empty" "$INDEX" join "$p"-* --out "$TMP/three" --threads 1
expect_error "it is part 2 of 3" "$INDEX" build "$TMP/corpus" --part 1/3 --out "$(mkdir "$TMP/moved"; cp -r "$p-2-of-3" "$TMP/moved/part-1-of-3"; echo "$TMP/moved")" "${model[@]}"
for bad in 0/3 4/3 1 a/b 1/0 1/2/3 -1/2 ""; do
    expect_usage "--part takes i/N" "$INDEX" build "$TMP/corpus" --part "$bad" --out "$TMP/out" "${model[@]}"
done
expect_usage "drt-index join makes the index" "$INDEX" build "$TMP/corpus" --part 1/3 --index IVF4,SQ8 --out "$TMP/out"
expect_usage "leave out --part" "$INDEX" build "$TMP/corpus" --part 1/3 --vectors x.npy --out "$TMP/out" "${model[@]}"
expect_error "plain files" "$INDEX" build - --part 1/3 --format jsonl --out "$TMP/out" "${model[@]}"

# The examples: on one machine twice; a task of an array without its number.
PATH=${INDEX%/*}:$BIN:$PATH
expect 0 "$SOURCE/docs/examples/parts/build_local.sh" "$TMP/corpus" "$TMP/local" 4 2 "${model[@]}"
contents "$TMP/local" "$TMP/local.contents"
expect 0 "$INDEX" build "$TMP/corpus" --out "$TMP/whole-now" --index exact "${model[@]}"
contents "$TMP/whole-now" "$TMP/whole.contents"
cmp "$TMP/whole.contents" "$TMP/local.contents" || die "docs/examples/parts/build_local.sh makes another store"
expect 0 "$SOURCE/docs/examples/parts/build_local.sh" "$TMP/corpus" "$TMP/local" 4 2 "${model[@]}"
out_has "joined here already"
expect 1 env CORPUS=x STORE=y "$SOURCE/docs/examples/slurm/build_part.sh"
err_has "SLURM_ARRAY_TASK_ID"
