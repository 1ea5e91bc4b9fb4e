#!/usr/bin/env bash
# drt-index index: an index that is filled in parts equals the one that one process makes, for any number of parts, also of a
# joined store and from a snapshot; it is checked, repaired, added to, deleted from, frozen, compacted and searched by workers.
# What a step cannot use, it refuses in one line that names file and remedy.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 900 1
make_corpus "$TMP/b.jsonl" 30 2
model=(--model "$TMP/model" --threads 1)
for part in 1 2 3; do expect 0 "$INDEX" build "$TMP/a.jsonl" --part $part/3 --out "$TMP/parts" "${model[@]}"; done
expect 0 "$INDEX" join "$TMP"/parts/* --out "$TMP/store" --threads 1
F=IVF32_HNSW8,SQ8 S=$TMP/s W=$TMP/w
for i in $(seq 60); do echo "the river, the harbour and number $i"; done >"$TMP/queries"
hits() { # STORE [OPTIONS]
    "$INDEX" search --queries "$TMP/queries" --store "$1" "${model[@]}" --k 7 --json "${@:2}" 2>"$ERR" | sed -E 's/"searched_by":"[^"]*",?//' || die "search in $1"
}
where=(--store "$S" --work "$W" --threads 1)
step() { "$INDEX" index "$1" --store "$S" --work "$W" --threads 1 "${@:2}"; }
fresh() { rm -rf "$S" "$W"; cp -r "$TMP/${1:-store}" "$S"; }
fill_all() { for ((i = $1; i >= 1; i--)); do expect 0 step fill --part $i/$1; done; }

# One process: repair --index trains and fills all.
cp -r "$TMP/store" "$TMP/one"
expect 0 "$INDEX" repair --store "$TMP/one" --index $F --threads 1
for nprobe in 1 5 32; do hits "$TMP/one" --nprobe $nprobe >"$TMP/one.$nprobe"; done
[ "$(wc -l <"$TMP/one.5")" = 60 ] || die "too few answers"
cmp -s "$TMP/one.1" "$TMP/one.32" && die "nprobe makes no difference"

divisions="1 2 5" types="IVF16,SQ8 OPQ1_8,IVF12,PQ4np PCAR8,IVF10,Flat"
sanitized && divisions=5 types=OPQ1_8,IVF12,PQ4np
for parts in $divisions; do
    fresh
    expect 0 step train --index $F
    out_has "trained"
    expect 0 step train
    out_has "is trained already"
    fill_all $parts
    expect 0 step fill --part 1/$parts
    out_has "is filled already"
    expect 0 step merge
    out_has "from $parts parts, 1 segments"
    cmp "$S/index/00001.faiss" "$TMP/one/index/00001.faiss" || die "another template"
    cmp "$S/index/00002.faiss" "$TMP/one/index/00002.faiss" || die "$parts parts: another index"
    for nprobe in 1 5 32; do hits "$S" --nprobe $nprobe | cmp - "$TMP/one.$nprobe" || die "$parts parts: other hits"; done
    expect 0 "$INDEX" verify --store "$S" --deep
    expect 0 step merge
    out_has "has this index already"
done
rm -rf "$TMP/merged"; cp -r "$S" "$TMP/merged"; rm -rf "$TMP/filled"; cp -r "$W" "$TMP/filled"

# In one command; an index in place of another.
fresh
expect 0 "$INDEX" index --store "$S/" --index $F --threads 1
[ ! -e "$S.index" ] || die "the work folder is left"
cmp "$S/index/00002.faiss" "$TMP/one/index/00002.faiss" || die "all steps: another index"
expect 0 "$INDEX" index --store "$S" --index $F --threads 1
out_has "has this index already"
expect 0 "$INDEX" index --store "$S" --index PCAR8,IVF16,PQ4np --threads 1 --json
same "$(json_int "$OUT" segments)" 1
expect 0 "$INDEX" stats --store "$S"
out_has "PCAR8,IVF16,PQ4np"
expect 0 "$INDEX" verify --store "$S" --deep

# Types whose lists BLAS computes: one process that has opened a device, as all steps do, against parts.
for type in $types; do
    fresh
    expect 0 "$INDEX" index --store "$S" --index $type --threads 1
    mv "$S" "$TMP/by-one"
    fresh
    expect 0 step train --index $type
    for part in 3 1 2; do expect 0 "$INDEX" index fill --store "$S" --work "$W" --part $part/3 --threads $part; done
    expect 0 step merge
    cmp "$S/index/00001.faiss" "$TMP/by-one/index/00001.faiss" || die "$type: another template"
    cmp "$S/index/00002.faiss" "$TMP/by-one/index/00002.faiss" || die "$type: another index"
    rm -rf "$TMP/by-one"
done

# Parts are filled from a snapshot while the store changes: additions are a segment of their own.
fresh
expect 0 "$INDEX" freeze --store "$S" --out "$TMP/snap"
expect 0 "$INDEX" index train --store "$TMP/snap" --work "$W" --index $F --threads 1
expect 0 "$INDEX" index fill --store "$TMP/snap" --work "$W" --part 1/2 --threads 1
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$S" "${model[@]}"
expect 0 "$INDEX" delete --store "$S" --document 3 --document 40
expect 0 step fill --part 2/2
expect_error "is a frozen snapshot" "$INDEX" index merge --store "$TMP/snap" --work "$W"
expect_error "is a frozen snapshot" "$INDEX" index --store "$TMP/snap" --index $F
expect 0 step merge
out_has "added after the training"
expect 0 "$INDEX" stats --store "$S" --json
same "$(json_int "$OUT" segments)" 2 segments
expect 0 "$INDEX" verify --store "$S" --deep
cp -r "$TMP/one" "$TMP/one-changed"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/one-changed" "${model[@]}"
expect 0 "$INDEX" delete --store "$TMP/one-changed" --document 3 --document 40
hits "$TMP/one-changed" --nprobe 4 >"$TMP/one.changed"
hits "$S" --nprobe 4 | cmp - "$TMP/one.changed" || die "a changed store: other hits"

# Workers share the lists; a snapshot, a compacted store and a repaired one have the index.
for n in 1 2 3; do hits "$S" --nprobe 4 --workers $n | cmp - "$TMP/one.changed" || die "$n workers: other hits"; done
expect 0 "$INDEX" freeze --store "$S" --out "$TMP/snap2"
hits "$TMP/snap2" --nprobe 4 | cmp - "$TMP/one.changed" || die "a snapshot: other hits"
expect 0 "$INDEX" verify --store "$TMP/snap2" --deep
expect 0 "$INDEX" compact --store "$S" --out "$TMP/compacted" --threads 1
expect 0 "$INDEX" verify --store "$TMP/compacted" --deep
expect 0 "$INDEX" recall --store "$S" --nprobe 32 --queries 50 --threads 1 --json
grep -qE '"recall":1(\.0+)?[,}]' "$OUT" || die "all lists: recall is not 1"
fresh merged
printf '\x55\xaa\x55' | dd of="$S/index/00002.faiss" bs=1 seek=$(($(stat -c %s "$S/index/00002.faiss") - 9000)) conv=notrunc 2>/dev/null
expect 1 "$INDEX" verify --store "$S" --deep
expect 0 "$INDEX" repair --store "$S" --threads 1
hits "$S" --nprobe 5 | cmp - "$TMP/one.5" || die "repaired: other hits"
fresh merged
expect 0 "$INDEX" drop --store "$S" --shard 1 --threads 1
expect 0 "$INDEX" verify --store "$S" --deep

# Shards that were dropped after the filling: their parts are named, and filled again.
fresh
cp -r "$TMP/filled" "$W"
expect 0 "$INDEX" drop --store "$S" --shard 2 --threads 1
expect_error "run drt-index index fill --store $S --work $W --part" "$INDEX" index merge "${where[@]}"
for i in 1 2 3 4 5; do expect 0 step fill --part $i/5; done
expect 0 step merge
expect 0 "$INDEX" verify --store "$S" --deep
hits "$S" --nprobe 5 >"$TMP/dropped.5"
rm -rf "$TMP/one-dropped"; cp -r "$TMP/store" "$TMP/one-dropped"
expect 0 "$INDEX" drop --store "$TMP/one-dropped" --shard 2 --threads 1
cp "$W/template.faiss" "$TMP/.template"
cmp -s "$TMP/dropped.5" "$TMP/one.5" && die "the dropped shard is still found"

# Too little memory, and a disk that is full (a file may not be larger than 8 KiB): one line, and the same command continues.
fresh
cp -r "$TMP/filled" "$W"
expect_error "raise --max-ram" "$INDEX" index merge "${where[@]}" --max-ram 1M
expect_error "raise the limit" "$INDEX" index fill "${where[@]}" --part 1/4 --max-ram 1M
rm "$W/part-2-of-5.1.lists"
(ulimit -f 8; expect_error "File too large" "$INDEX" index fill "${where[@]}" --part 2/5) || exit 1
[ ! -e "$W/part-2-of-5.1.lists" ] || die "half a file is there"
expect 0 step fill --part 2/5
cmp "$W/part-2-of-5.1.lists" "$TMP/filled/part-2-of-5.1.lists" || die "fill after a full disk: another file"
(ulimit -f 40; expect_error "File too large" "$INDEX" index merge "${where[@]}") || exit 1
expect 0 "$INDEX" verify --store "$S" --deep
expect 0 step merge
cmp "$S/index/00002.faiss" "$TMP/one/index/00002.faiss" || die "merge after a full disk: another index"

# ---- what is refused; the store stays as it is
fresh
cp -r "$TMP/filled" "$W"
file=$(find "$W" -name 'part-4-of-5.1.lists')
refuse() { expect_error "$1" "$INDEX" index merge "${where[@]}"; [ -z "$(ls "$S/index")" ] || [ -z "$(find "$S/index" -name '*.faiss')" ] || die "files are left after: $1"; }
mv "$file" "$TMP/kept"
refuse "part-4-of-5.1.lists: is missing: part 4 of 5 is not filled: run drt-index index fill --store $S --work $W --part 4/5"
head -c 5000 "$TMP/kept" >"$file"
refuse "has another size than its header states: run drt-index index fill --store $S --work $W --part 4/5"
head -c 50 "$TMP/kept" >"$file"
refuse "is cut short"
size=$(stat -c %s "$TMP/kept")
for at in 20 200 2000 $((size - 3000)) $((size - 3)); do
    cp "$TMP/kept" "$file"
    printf '\xa5' | dd of="$file" bs=1 seek="$at" conv=notrunc 2>/dev/null
    cmp -s "$file" "$TMP/kept" && continue
    refuse "run drt-index index fill --store $S --work $W --part 4/5"
done
expect 0 step fill --part 4/5 # makes the damaged file again
cmp "$file" "$TMP/kept" || die "the file that was made again differs"
cp "$W/part-3-of-5.1.lists" "$file"
refuse "is of part 3 of 5, not of what its name states"
cp "$TMP/kept" "$file"
cp "$W/part-3-of-5.1.lists" "$W/part-3-of-7.1.lists"
refuse "remove those of one division"
rm "$W/part-3-of-7.1.lists"
rm -rf "$TMP/w2"
expect 0 "$INDEX" index train --store "$S" --work "$TMP/w2" --index IVF16,SQ8 --threads 1
expect 0 "$INDEX" index fill --store "$S" --work "$TMP/w2" --part 4/5 --threads 1
cp "$TMP/w2/part-4-of-5.1.lists" "$file"
refuse "was filled with another template"
cp "$TMP/kept" "$file"
expect_error "is the work of an index $F, not IVF16,SQ8" "$INDEX" index train "${where[@]}" --index IVF16,SQ8
# another store, of the same model
make_corpus "$TMP/c.jsonl" 900 5
expect 0 "$INDEX" build "$TMP/c.jsonl" --out "$TMP/other" "${model[@]}"
for what in "fill --part 1/5" merge train; do
    # shellcheck disable=SC2086 # two words
    expect_error "is the work of an index of another store" "$INDEX" index $what --store "$TMP/other" --work "$W" --threads 1
done
printf 'x' | dd of="$W/template.faiss" bs=1 seek=99 conv=notrunc 2>/dev/null
refuse "template.faiss: its bytes changed"
expect_error "the index template is damaged" "$INDEX" index fill "${where[@]}" --part 1/4
cp "$TMP/filled/template.faiss" "$W/template.faiss"
printf 'x' | dd of="$W/plan" bs=1 seek=70 conv=notrunc 2>/dev/null
refuse "plan: is damaged"
cp "$TMP/filled/plan" "$W/plan"
rm -f "$W"/part-*
refuse "no part is filled"
expect_error "no plan of an index is here: run drt-index index train first" "$INDEX" index fill --store "$S" --work "$TMP/nothing" --part 1/2
mkdir "$TMP/corpus-like" && touch "$TMP/corpus-like/x"
expect_error "is no work folder of an index and not empty" "$INDEX" index train --store "$S" --work "$TMP/corpus-like" --index $F --threads 1
expect_error "only inverted files" "$INDEX" index train --store "$S" --work "$TMP/w3" --index HNSW32 --threads 1
expect_error "is no index here" "$INDEX" index train --store "$S" --work "$TMP/w3" --threads 1
[ ! -e "$TMP/w3" ] || die "a refused type made a folder"
expect_error "--assign gpu: this process computes on the CPU" "$INDEX" index train --store "$S" --work "$TMP/w3" --index IVF4,SQ8 --device cpu --assign gpu
[ ! -e "$TMP/w3" ] || die "a refused method made a folder"
expect 2 "$INDEX" index fill --store "$S" --work "$W" --part 1/5 --assign cpu
expect 2 "$INDEX" index train --store "$S" --work "$TMP/w3" --device cpu --devices 0,1
(flock 9 && expect_error "another process fills part 1 of 2" "$INDEX" index fill "${where[@]}" --part 1/2) 9>"$W/part-1-of-2.lock" || exit 1
expect_error "no store here" "$INDEX" index merge --store "$TMP/corpus-like" --work "$W"
expect_usage "the step is train, fill or merge" "$INDEX" index fil --store "$S"
expect_usage "fill needs --part i/N" step fill
expect_usage "--part takes i/N" step fill --part 3/2
expect_usage "--part is an option of fill" step merge --part 1/2
expect_usage "--index is an option of train" step merge --index $F
expect_usage "--store STORE is missing" "$INDEX" index

# The example for one machine, twice; a task of an array without its number.
rm -rf "$S" "$S.index"
cp -r "$TMP/store" "$S"
PATH=$BIN:$PATH
for again in 1 2; do expect 0 "$SOURCE/docs/examples/parts/index_local.sh" "$S" $F 4 2 --threads 1; done
out_has "has this index already"
cmp "$S/index/00002.faiss" "$TMP/one/index/00002.faiss" || die "docs/examples/parts/index_local.sh: another index"
expect 1 env STORE=x WORK=y "$SOURCE/docs/examples/slurm/index_part.sh"
err_has "SLURM_ARRAY_TASK_ID"
expect 2 "$SOURCE/docs/examples/slurm/submit_index.sh" x
err_has "submit_index.sh STORE FACTORY PARTS"
# submit_index.sh with a sbatch that runs its job at once, an array in descending order
mkdir "$TMP/sbatch"
cat >"$TMP/sbatch/sbatch" <<'END'
#!/usr/bin/env bash
set -eu
count=0 wrap= export=
while [ $# -gt 0 ]; do
    case $1 in
    --export=*) export=${1#--export=ALL,} ;;
    --array=1-*) count=${1#--array=1-} ;;
    --wrap) wrap=$2; shift ;;
    --dependency=*) [ -e "$JOBS/${1##*:}" ] || exit 1 ;;
    --*) ;;
    *) break ;;
    esac
    shift
done
IFS=, read -ra pairs <<<"$export"
job=$(($(find "$JOBS" -type f | wc -l) + 1))
if [ -n "$wrap" ]; then env "${pairs[@]}" bash -c "$wrap" >&2; fi
for ((i = count; i >= 1; i--)); do
    env "${pairs[@]}" SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_COUNT="$count" SLURM_RESTART_COUNT=9 "$@" >&2
done
touch "$JOBS/$job"
echo $job
END
chmod +x "$TMP/sbatch/sbatch"
rm -rf "$S" "$S.index" "$TMP/snap" "$TMP/jobs"
mkdir "$TMP/jobs"
cp -r "$TMP/store" "$S"
expect 0 "$INDEX" freeze --store "$S" --out "$TMP/snap"
expect 0 env PATH="$TMP/sbatch:$PATH" JOBS="$TMP/jobs" READ="$TMP/snap" "$SOURCE/docs/examples/slurm/submit_index.sh" "$S" $F 3 --max-ram 40M
same "$(cat "$OUT")" "1 2 3"
cmp "$S/index/00002.faiss" "$TMP/one/index/00002.faiss" || die "docs/examples/slurm/submit_index.sh: another index"
[ "$(find "$S.index" -name 'part-*-of-3.1.lists' | wc -l)" = 3 ] || die "not three parts"
