#!/usr/bin/env bash
# Keys of a token memory where stores are made: build --keys, add and update, parts and join (links, --copy, empty parts, a document over two
# files), compact and freeze. They equal, by bytes, those that drt-index keys makes for the same store. Parts and stores that lack keys, or
# have others, are named with the remedy; verify and repair find damage.
. "$DRT_SOURCE/tests/cli/index/keys/lib_keys.sh" || exit 1
tiny_base "$TMP/other" 9
complete() { # STORE: nothing is left to make
    expect 0 "$INDEX" keys --store "$1" "${model[@]}"
    out_has ": 0 of "
    expect 0 "$INDEX" keys --store "$1" "${model[@]}" --verify
}
lacks_keys() { [ -z "$(ls "$1/keys" 2>/dev/null)" ] || die "$1 has keys"; }

# ---- build, add and update
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/s" "${none[@]}" --keys
out_has "keys of layer 2, 32 numbers: 1 of 1 files made"
complete "$TMP/s"
fresh "$TMP/s"
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/s" "${none[@]}" --keys --json
out_has '"keys_files":1,"keys_made":0,"keys_chunks":0,'
expect 0 "$INDEX" keys --store "$TMP/s" --remove
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/s" "${none[@]}" --keys # the store is there, and the keys are made
out_has "already built"
out_has "1 of 1 files made"
expect 0 "$INDEX" stats --store "$TMP/s" --json
chunks=$(json_int "$OUT" keys_chunks)
expect 0 "$INDEX" stats --store "$TMP/s"
out_has "(of a token memory: layer 2, 32 numbers, $chunks of $chunks chunks, "
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/l" "${model[@]}" --keys # with landmarks
complete "$TMP/l"

cp -r "$TMP/s" "$TMP/changed"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/changed" "${model[@]}" --json
added=$(json_int "$OUT" chunks)
[ "$added" -gt 0 ] && same "$(json_int "$OUT" keys_chunks)" "$added" "only keys of new chunks are computed"
complete "$TMP/changed"
fresh "$TMP/changed"
sed '2,3s/river/harbour/g' "$TMP/a.jsonl" >"$TMP/new.jsonl"
expect 0 "$INDEX" update "$TMP/new.jsonl" --source "$TMP/a.jsonl" --store "$TMP/changed" "${model[@]}" --dry-run --keys
out_lacks "keys of layer"
expect 0 "$INDEX" update "$TMP/new.jsonl" --source "$TMP/a.jsonl" --store "$TMP/changed" "${model[@]}"
out_has "2 documents changed"
out_has "keys of layer 2"
complete "$TMP/changed"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/changed" "${model[@]}" # nothing is new
out_lacks "keys of layer"

# A header with more chunks in a step than in a window is damaged: nothing reads such keys. With a wrong checksum a snapshot lacks them.
cp -r "$TMP/s" "$TMP/bent"
printf '\144' | dd of="$TMP/bent/keys/00000.keys" bs=1 seek=28 conv=notrunc 2>/dev/null
expect 1 "$INDEX" verify --store "$TMP/bent"
out_has "00000.keys: header is damaged: remove the file and run drt-index keys"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/bent" "${model[@]}"
err_has "its keys are damaged and do not have the new chunks: run drt-index keys --store $TMP/bent"
cp -r "$TMP/s" "$TMP/worn"
printf x | dd of="$TMP/worn/keys/00000.keys" bs=1 seek=300 conv=notrunc 2>/dev/null
expect 0 "$INDEX" freeze --store "$TMP/worn" --out "$TMP/worn-snapshot" --copy
err_has "the snapshot lacks keys of a token memory"
expect 0 "$INDEX" verify --store "$TMP/worn-snapshot" --deep

# Options of the keys that a store has are kept; without them nothing is made, with another model there is a note.
cp -r "$TMP/s" "$TMP/four"
expect 0 "$INDEX" keys --store "$TMP/four" --remove
expect 0 "$INDEX" keys --store "$TMP/four" "${model[@]}" --step 4 --layer 1
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/four" "${model[@]}"
out_has "keys of layer 1, 32 numbers: 1 of 1 files made ($added chunks"
expect 0 "$INDEX" keys --store "$TMP/four" "${model[@]}" --step 4 --layer 1
out_has ": 0 of 1 files made"
cp -r "$TMP/s" "$TMP/foreign"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/foreign" --model "$TMP/other" --threads 1
err_has "its keys are of another model and do not have the new chunks: run drt-index keys --store $TMP/foreign with their model"
expect 0 "$INDEX" stats --store "$TMP/foreign"
out_has "$chunks of $((chunks + added)) chunks, "
expect_error "run drt-index keys --store $TMP/foreign --remove first" "$INDEX" add "$TMP/b.jsonl" --store "$TMP/foreign" --model "$TMP/other" \
    --threads 1 --keys
expect 0 "$INDEX" keys --store "$TMP/foreign" --remove
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/foreign" --model "$TMP/other" --threads 1 --keys
out_has "1 of 1 files made ($((chunks + added)) chunks"
expect 0 "$INDEX" keys --store "$TMP/foreign" --remove
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/foreign" "${model[@]}"
out_lacks "keys of layer"
lacks_keys "$TMP/foreign"

# Rows of both roundings are never in one file. An addition that rounds otherwise leaves the keys; what would mix them is refused.
other_rounding() { # STORE HAVE HOW-TO-GET-HAVE OPTIONS...: OPTIONS round otherwise than HAVE
    local store=$1 have=$2 remedy=$3
    shift 3
    cp "$store/keys/00000.keys" "$TMP/before.keys"
    for command in "keys --store $store" "add $TMP/b.jsonl --keys --store $store"; do
        expect_error "$store: its keys were computed with $have products, and this run computes " "$INDEX" $command "${model[@]}" "$@"
        err_has ": take $remedy, or run drt-index keys --store $store --remove first"
    done
    expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$store" "${model[@]}" "$@"
    err_has "$store: its keys were computed with $have products, this run computes "
    err_has "so they do not have the new chunks: run drt-index keys --store $store with their model and $remedy"
    cmp -s "$store/keys/00000.keys" "$TMP/before.keys" || die "an addition of another rounding changed the keys"
    expect 0 "$INDEX" stats --store "$store"
    out_has "$chunks of $((chunks + added)) chunks, $have products)"
}
expect 0 "$INDEX" stats --store "$TMP/s"
if grep -q "chunks, bf16 products)" "$OUT"; then # not every processor has instructions for them
    cp -r "$TMP/s" "$TMP/rounded"
    other_rounding "$TMP/rounded" bf16 "--dtype auto" --dtype f32
    expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/rounded" "${model[@]}"
    out_has "1 of 1 files made ($added chunks"
    fresh "$TMP/rounded"
    cp -r "$TMP/s" "$TMP/exact"
    expect 0 "$INDEX" keys --store "$TMP/exact" --remove
    expect 0 "$INDEX" keys --store "$TMP/exact" "${model[@]}" --dtype f32
    cmp -s "$TMP/exact/keys/00000.keys" "$TMP/s/keys/00000.keys" && die "--dtype f32 makes the same keys"
    other_rounding "$TMP/exact" f32 "--dtype f32"
    expect 0 "$BIN/drt-generate" --model "$TMP/m" --store "$TMP/s" --dtype f32 --memory corpus --memory-keys stored --memory-k 4 --memory-weight 0.9 \
        --memory-tau 1 --prompt "the river" --max-tokens 4 # either is read
    expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/exact" "${model[@]}" --dtype f32
    out_has "1 of 1 files made ($added chunks"
    expect 0 "$INDEX" keys --store "$TMP/exact" "${model[@]}" --dtype f32 --verify
fi

# A model that cannot have keys is refused before the build.
sed 's/"encoder_layers"/"recurrent_layer": 1, "recurrent_states": 8, "recurrent_block": 32, &/' "$TMP/m/config.json" >"$TMP/recurrent.json"
expect 0 "$MODEL" init --config "$TMP/recurrent.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/r" --seed 3
expect_error "recurrent_layer is 1" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/x" --model "$TMP/r" --landmarks none --keys
[ ! -e "$TMP/x" ] || die "a refused build made a folder"

# ---- parts: three of several documents
build_parts() { # FOLDER CORPUS PARTS OPTIONS...
    local i
    for ((i = $3; i >= 1; i--)); do expect 0 "$INDEX" build "$2" --part "$i/$3" --out "$1" "${none[@]}" "${@:4}"; done
}
build_parts "$TMP/parts" "$TMP/a.jsonl" 3 --keys
expect 0 "$INDEX" join "$TMP"/parts/* --out "$TMP/j"
out_has "keys of a token memory in 3 files"
err_lacks "has no keys"
rows "$TMP/j" "$TMP/joined"
rows "$TMP/s" "$TMP/single"
cmp -s "$TMP/joined" "$TMP/single" || die "the keys of three parts are not those of one store"
complete "$TMP/j"
fresh "$TMP/j"
[ "$(find "$TMP/j/keys" -type f -links +1 | wc -l)" = 3 ] || die "keys were copied without --copy"
expect 0 "$INDEX" join "$TMP"/parts/* --out "$TMP/jc" --copy --index exact
[ "$(find "$TMP/jc/keys" -type f -links 1 | wc -l)" = 3 ] || die "--copy linked keys"
rows "$TMP/jc" "$TMP/copied"
cmp -s "$TMP/joined" "$TMP/copied" || die "--copy gives other keys"
expect 0 "$INDEX" join "$TMP"/parts/* --out "$TMP/j"
out_has "joined here already"
generate() { expect 0 "$BIN/drt-generate" --model "$TMP/m" --store "$1" --memory corpus --memory-keys "$2" --memory-k 4 --memory-weight 0.9 --memory-tau 1 --greedy --prompt "the river and stone" --max-tokens 12 --stats; }
generate "$TMP/j" stored
cp "$OUT" "$TMP/text"
grep -Eq "encoded anew 0, passages with stored keys [1-9]" "$ERR" || die "the joined store's keys are not read"
generate "$TMP/s" stored
cmp -s "$OUT" "$TMP/text" || die "another text with the joined store"

# The joined store changes; the parts stay as they are.
(cd "$TMP/parts" && sha256sum part-*/keys/*) >"$TMP/sums"
cp -r "$TMP/j" "$TMP/grown" # links become copies
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/grown" "${model[@]}"
out_has "1 of 3 files made ($added chunks"
complete "$TMP/grown"
fresh "$TMP/grown"
rows "$TMP/grown" "$TMP/joined"
cp -r "$TMP/s" "$TMP/whole-grown"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/whole-grown" "${model[@]}"
rows "$TMP/whole-grown" "$TMP/single"
cmp -s "$TMP/joined" "$TMP/single" || die "add to a joined store gives other keys"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/j" "${model[@]}"
expect 0 "$INDEX" keys --store "$TMP/j" --remove
expect 0 "$INDEX" keys --store "$TMP/j" "${model[@]}" --part 2/3
out_has "1 of 1 files made"
expect 0 "$INDEX" keys --store "$TMP/j" "${model[@]}"
out_has "2 of 3 files made"
fresh "$TMP/j"
(cd "$TMP/parts" && sha256sum --quiet -c "$TMP/sums") || die "a change of the joined store changed a part"

# A snapshot has the keys.
expect 0 "$INDEX" freeze --store "$TMP/j" --out "$TMP/snap"
complete "$TMP/snap"
rows "$TMP/snap" "$TMP/joined"
cmp -s "$TMP/joined" "$TMP/have" || die "a snapshot has other keys"
[ "$(find "$TMP/snap/keys" -type f -links +1 | wc -l)" = 3 ] || die "freeze copied keys"
expect 0 "$INDEX" verify --store "$TMP/snap" --deep

# ---- parts that lack keys, or have others
lacking() { # REASON: join takes no keys, in one line
    rm -rf "$TMP/jj"
    expect 0 "$INDEX" join "$TMP"/lacking/* --out "$TMP/jj"
    same "$(grep -c "has no keys of a token memory" "$ERR")" 1 "lines about keys"
    err_has "$TMP/jj: has no keys of a token memory, because "
    err_has "$1"
    err_has ": run drt-index keys --store $TMP/jj with their model"
    lacks_keys "$TMP/jj"
    expect 0 "$INDEX" verify --store "$TMP/jj" --deep
}
restore() { rm -rf "$TMP/lacking"; cp -r "$TMP/parts" "$TMP/lacking"; part=$TMP/lacking/part-2-of-3; }
restore
expect 0 "$INDEX" keys --store "$part" --remove
lacking "part-2-of-3 has none"
expect 0 "$INDEX" keys --store "$TMP/jj" "${model[@]}"
fresh "$TMP/jj"
expect 0 "$INDEX" keys --store "$part" "${model[@]}" --step 4
lacking "part-2-of-3 are of another model, layer, size, step or rounding"
expect_error "it has keys of another model, layer or step" "$INDEX" keys --store "$part" --model "$TMP/other"
expect 0 "$INDEX" keys --store "$part" --remove
expect 0 "$INDEX" keys --store "$part" --model "$TMP/other"
lacking "part-2-of-3 are of another model, layer, size, step or rounding"
restore
truncate -s 900 "$part/keys/00000.keys"
lacking "part-2-of-3 has none"
restore
printf x | dd of="$part/keys/00000.keys" bs=1 seek=300 conv=notrunc 2>/dev/null
expect 0 "$INDEX" join "$TMP"/lacking/* --out "$TMP/bad" # links are not read
expect 1 "$INDEX" verify --store "$TMP/bad" --deep
expect 0 "$INDEX" join "$TMP"/lacking/* --out "$TMP/bad-copy" --copy
err_has "part-2-of-3/keys/00000.keys: its bytes changed: run drt-index keys --store $TMP/bad-copy"
lacks_keys "$TMP/bad-copy"
build_parts "$TMP/plain" "$TMP/a.jsonl" 2
expect 0 "$INDEX" join "$TMP"/plain/* --out "$TMP/jp"
err_lacks "has no keys"

# ---- a document over two files of keys, and a part without documents: with the smallest model, because a file has 16,384 chunks
sed 's/"hidden_size": 32/"hidden_size": 8/; s/"intermediate_size": 64/"intermediate_size": 8/; s/"num_attention_heads": 2/"num_attention_heads": 1/
    s/"decoder_layers": \[[^]]*\]/"decoder_layers": [1]/; s/"slide_window": 128/"slide_window": 64/' "$TMP/base.json" >"$TMP/smallest.json"
expect 0 "$MODEL" init --config "$TMP/smallest.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/smallest" --seed 5
usual=("${model[@]}")
model=(--model "$TMP/smallest" --threads 1) none=(--landmarks none --model "$TMP/smallest" --threads 1)
python3 - "$TMP/long.u16" <<'PYTHON'
import array, random, sys
random.seed(5)
ids = array.array("H")
for tokens in [63 * 9, 200, 63 * 16500 + 11, 63, 1000]:
    ids.extend(random.choices(range(200), k=tokens))
    ids.append(268)
ids.tofile(open(sys.argv[1], "wb"))
PYTHON
build_parts "$TMP/long" "$TMP/long.u16" 3 --keys
expect 0 "$INDEX" join "$TMP"/long/* --out "$TMP/jl"
out_has "keys of a token memory in 3 files"
if ! sanitized; then
    expect 0 "$INDEX" build "$TMP/long.u16" --out "$TMP/sl" "${none[@]}" --keys
    out_has "2 of 2 files made"
    rows "$TMP/jl" "$TMP/joined"
    rows "$TMP/sl" "$TMP/single"
    cmp -s "$TMP/joined" "$TMP/single" || die "a long document has other keys in a joined store"
    complete "$TMP/jl"
fi

# ---- compact
expect 0 "$INDEX" delete --store "$TMP/jl" --document 0 --document 3
expect 0 "$INDEX" stats --store "$TMP/jl" --json
left=$(json_int "$OUT" chunks)
expect 0 "$INDEX" compact --store "$TMP/jl" --out "$TMP/cl" --threads 1
out_has "keys of a token memory of $left chunks"
complete "$TMP/cl"
fresh "$TMP/cl"
expect 0 "$INDEX" compact --store "$TMP/jl" --out "$TMP/cl" --threads 1
out_has "made before"
model=("${usual[@]}")
expect 0 "$INDEX" drop --store "$TMP/changed" --shard 1 --threads 1
expect 0 "$INDEX" compact --store "$TMP/changed" --out "$TMP/cc" --threads 1
complete "$TMP/cc"
fresh "$TMP/cc"
cp -r "$TMP/s" "$TMP/less"
expect 0 "$INDEX" delete --store "$TMP/less" --document 1
expect 0 "$INDEX" compact --store "$TMP/less" --out "$TMP/c1" --threads 1
expect 0 "$INDEX" keys --store "$TMP/c1" --remove
expect 0 "$INDEX" delete --store "$TMP/c1" --document 2 --document 43 # the new store changed before its keys were copied
expect 0 "$INDEX" compact --store "$TMP/less" --out "$TMP/c1" --threads 1
fresh "$TMP/c1"
expect 0 "$INDEX" keys --store "$TMP/c1" --remove
expect 0 "$INDEX" keys --store "$TMP/c1" --model "$TMP/other"
expect 0 "$INDEX" compact --store "$TMP/less" --out "$TMP/c1" --threads 1 # keys of another model stay
expect 0 "$INDEX" keys --store "$TMP/c1" --model "$TMP/other"
out_has ": 0 of 1 files made"
printf x | dd of="$TMP/less/keys/00000.keys" bs=1 seek=300 conv=notrunc 2>/dev/null
expect 0 "$INDEX" compact --store "$TMP/less" --out "$TMP/c2" --threads 1
err_has "less/keys/00000.keys: its checksum is wrong: run drt-index keys --store $TMP/c2"
lacks_keys "$TMP/c2"
expect 0 "$INDEX" verify --store "$TMP/c2" --deep
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/less" --model "$TMP/other" --threads 1
expect 0 "$INDEX" compact --store "$TMP/less" --out "$TMP/c3" --threads 1
err_has "the old store has those of $chunks of $((chunks + added)) chunks: run drt-index keys --store $TMP/c3"
lacks_keys "$TMP/c3"

# ---- damage: verify, repair and freeze
cp -r "$TMP/s" "$TMP/d"
printf x | dd of="$TMP/d/keys/00000.keys" bs=1 seek=300 conv=notrunc 2>/dev/null
expect 0 "$INDEX" verify --store "$TMP/d"
for command in "verify --deep" repair; do
    expect 1 "$INDEX" $command --store "$TMP/d"
    out_has "d/keys/00000.keys: its checksum is wrong"
    out_has "remove the file and run drt-index keys"
done
truncate -s 1000 "$TMP/d/keys/00000.keys"
expect 1 "$INDEX" verify --store "$TMP/d"
out_has "1000 bytes, but"
expect 0 "$INDEX" stats --store "$TMP/d"
out_has "damaged, drt-index verify names the files"
expect 0 "$INDEX" freeze --store "$TMP/d" --out "$TMP/snap-d"
err_has "the snapshot lacks keys of a token memory"
lacks_keys "$TMP/snap-d"
expect 0 "$INDEX" keys --store "$TMP/d" "${model[@]}"
expect 0 "$INDEX" verify --store "$TMP/d" --deep
echo ok
