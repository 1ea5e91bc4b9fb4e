#!/usr/bin/env bash
# drt-model project and drt-index keys: a model with short keys, the keys of a store, text that reads them; after an addition and a deletion;
# damaged, missing and foreign files; a run that is stopped continues; every refusal.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-generate drt-index drt-eval
tiny_base "$TMP/m"
round=abcdefghijklmnopqrstuvwxyz0123456789
text=$round$round$round
corpus "$TMP/train.jsonl" 40 80
printf '{"text": "%s"}\n' "$text" >>"$TMP/train.jsonl"
corpus "$TMP/more.jsonl" 3 80
sed -i 's/"text": "/&More of it. /' "$TMP/more.jsonl"
tiny_store "$TMP/s" "$TMP/m" "$TMP/train.jsonl" --landmarks none
keys() { expect 0 "$INDEX" keys --store "$TMP/s" --model "$TMP/p" "$@"; }
INDEX=$BIN/drt-index

# ---- a model with short keys
expect 0 "$MODEL" project --model "$TMP/m" --store "$TMP/s" --size 16 --out "$TMP/p"
out_has "keys of layer 2 in 16 numbers, fitted from "
cp "$TMP/p/model.safetensors" "$TMP/first"
expect 0 "$MODEL" project --model "$TMP/m" --store "$TMP/s" --size 16 --out "$TMP/p" --force
cmp -s "$TMP/first" "$TMP/p/model.safetensors" || die "the same projection has other bytes"
expect 0 "$MODEL" info "$TMP/p"
out_has "16 numbers by a projection"
expect_error "has a projection already (memory_size 16)" "$MODEL" project --model "$TMP/p" --store "$TMP/s" --out "$TMP/x"
expect_error "--size 99: must be at most the hidden size, 32" "$MODEL" project --model "$TMP/m" --store "$TMP/s" --size 99 --out "$TMP/x"
expect_error "the model has 2 layers" "$MODEL" project --model "$TMP/m" --store "$TMP/s" --layer 3 --size 8 --out "$TMP/x"
printf '{"text": "abc"}\n' >"$TMP/short.jsonl"
tiny_store "$TMP/little" "$TMP/m" "$TMP/short.jsonl" --landmarks none
expect_error "$TMP/little: has only 1 states to fit from" "$MODEL" project --model "$TMP/m" --store "$TMP/little" --size 8 --out "$TMP/x"
[ ! -e "$TMP/x" ] || die "a failure leaves a folder"
ls -d "$TMP"/*.tmp >/dev/null 2>&1 && die "a failure leaves a temporary folder"

# Landmarks of a Base LM do not depend on the projection.
tiny_store "$TMP/l" "$TMP/m" "$TMP/train.jsonl"
for model in m p; do
    expect 0 "$INDEX" search "the river and the stone" --store "$TMP/l" --model "$TMP/$model" --k 5 --json
    grep -oE '"(chunk|score)":[^,]*' "$OUT" >"$TMP/hits-$model"
done
[ -s "$TMP/hits-m" ] && cmp -s "$TMP/hits-m" "$TMP/hits-p" || die "a projection changes the landmarks"

# ---- keys, and text with them
generate() { expect 0 "$GENERATE" --model "$TMP/p" --greedy --max-tokens 24 --store "$TMP/s" --memory-k 4 --memory-weight 0.99 --memory-tau 1 --stats "$@"; }
half=${round:0:10}
want=${round:10:12}
counted() { grep -Eq "$1" "$ERR" || die "no \"$1\" in: $(grep queries "$ERR")"; }
copies() { # WHAT OPTIONS...
    local what=$1
    shift
    generate --prompt "$half" --memory corpus "$@"
    case $(cat "$OUT") in "$want"*) ;; *) die "$what: continues with \"$(cat "$OUT")\"" ;; esac
}
copies "without keys" --memory-keys auto
counted "encoded anew [1-9]"
grep -q "stored keys" "$ERR" && die "keys that do not exist are read"
expect_error "run drt-index keys --store $TMP/s with this model" "$GENERATE" --model "$TMP/p" --store "$TMP/s" --memory corpus --prompt x --memory-keys stored
expect_error "run drt-index keys --store $TMP/s with this model" "$GENERATE" --model "$TMP/p" --store "$TMP/s" --memory corpus --prompt x --memory-keys device
keys
out_has "keys of layer 2, 16 numbers: 1 of 1 files made"
keys
out_has "0 of 1 files made"
keys --verify
out_has "complete and undamaged"
expect 0 "$INDEX" stats --store "$TMP/s"
out_has "keys         1 files, "
expect 0 "$INDEX" stats --store "$TMP/s" --json
grep -q "\"keys_files\":1,\"keys_bytes\":$(stat -c %s "$TMP/s/keys/00000.keys")," "$OUT" || die "stats --json"
copies "stored keys"
counted "encoded anew 0, passages with stored keys [1-9]"
copies "keys of a device" --memory-keys device # a CPU reads the files
counted "encoded anew 0, passages with stored keys [1-9]"
copies "computed keys" --memory-keys encoded
counted "encoded anew [1-9]"
generate --prompt "$half" --memory both --threads 1
cp "$OUT" "$TMP/one"
generate --prompt "$half" --memory both --threads 3
cmp -s "$OUT" "$TMP/one" || die "another text with three threads"
expect 0 "$BIN/drt-eval" ppl --model "$TMP/p" --store "$TMP/s" --data "$TMP/train.jsonl" --memory corpus,random --memory-k 2 --memory-keys stored --context 256 --skip 64 --max-tokens 400
expect 0 "$INDEX" verify --store "$TMP/s" --deep

# ---- the store changes: keys of new chunks are missing until they are made; deleted chunks are not read
expect 0 "$INDEX" add "$TMP/more.jsonl" --store "$TMP/s" --model "$TMP/m"
expect_error "run drt-index keys again" "$GENERATE" --model "$TMP/p" --store "$TMP/s" --memory corpus --prompt x --memory-keys stored
copies "too few keys" # auto: computed
counted "encoded anew [1-9]"
keys
out_has "1 of 1 files made"
copies "keys after an addition"
expect 0 "$INDEX" delete --store "$TMP/s" --document 2
copies "keys after a deletion"
counted "passages with stored keys"

# ---- other models, damage
expect_error "other weights, layer or size" "$GENERATE" --model "$TMP/m" --store "$TMP/s" --memory corpus --prompt x --memory-keys stored
expect 0 "$GENERATE" --model "$TMP/m" --store "$TMP/s" --memory corpus --prompt x --max-tokens 2
printf x | dd of="$TMP/s/keys/00000.keys" bs=1 seek=300 conv=notrunc 2>/dev/null
expect_error "its checksum is wrong" "$INDEX" keys --store "$TMP/s" --model "$TMP/p" --verify
truncate -s 1000 "$TMP/s/keys/00000.keys"
expect_error "1000 bytes, but" "$GENERATE" --model "$TMP/p" --store "$TMP/s" --memory corpus --prompt x
keys
out_has "1 of 1 files made"
keys --json
python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["made"] == 0 and r["size"] == 16 and r["bytes"] > 0, r' "$OUT" || die "--json"
keys --remove
out_has "1 files of keys removed"
[ -z "$(ls "$TMP/s/keys")" ] || die "--remove leaves files"
expect 0 "$INDEX" compact --store "$TMP/s" --out "$TMP/c"
expect_error "there is no such file" "$GENERATE" --model "$TMP/p" --store "$TMP/c" --memory corpus --prompt x --memory-keys stored

keys --part 2/2
out_has "0 of 0 files made"
[ -z "$(ls "$TMP/s/keys")" ] || die "part 2 of 2 has the only file"
keys --part 1/2
out_has "1 of 1 files made"

# ---- refusals
expect_usage "--devices takes all" "$INDEX" keys --store "$TMP/s" --model "$TMP/p" --devices x
expect_error "" "$INDEX" keys --store "$TMP/s" --model "$TMP/p" --devices 97 # a GPU that no host has
expect_usage "--part takes i/N" "$INDEX" keys --store "$TMP/s" --model "$TMP/p" --part 3/2
expect_usage "--store STORE is missing" "$INDEX" keys --model "$TMP/p"
expect_usage "--model DIR is missing" "$INDEX" keys --store "$TMP/s"
expect_error "the model has 2 layers" "$INDEX" keys --store "$TMP/s" --model "$TMP/p" --layer 7
for command in keys; do expect 0 "$INDEX" $command --help; help_is_smooth; done
expect 0 "$MODEL" project --help
help_is_smooth

# ---- a model whose numbers overflow: no keys, landmarks and texts are made of what is not a number
cp -r "$TMP/m" "$TMP/huge"
size=$(stat -c %s "$TMP/huge/model.safetensors")
head -c $((size / 2)) /dev/zero | tr '\0' '\177' | dd of="$TMP/huge/model.safetensors" bs=64K seek=$((size - size / 2)) oflag=seek_bytes conv=notrunc status=none
tiny_store "$TMP/overflow" "$TMP/huge" "$TMP/train.jsonl" --landmarks none
expect_error "keys of layer 2 are not finite numbers" "$INDEX" keys --store "$TMP/overflow" --model "$TMP/huge"
expect_error "huge: the logits after token 3 are not numbers" "$GENERATE" --model "$TMP/huge" --prompt abc
for kind in f16 i8; do
    expect_error "row 0: value" "$INDEX" build "$TMP/train.jsonl" --out "$TMP/overflow-$kind" --model "$TMP/huge" --landmarks $kind
done
