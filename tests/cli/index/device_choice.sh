# Without a GPU, in a build with or without CUDA: with --device auto every program uses the CPU (a build with CUDA prints
# why) and gives the same result as with --device cpu; with --device cuda it fails with one line and leaves no files.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-index drt-generate drt-eval drt-train drt-tokenizer
tiny_model "$TMP/m"
corpus "$TMP/c.jsonl" 4 200
if "$GENERATE" --model "$TMP/m" --prompt x --max-tokens 1 --device cuda >"$OUT" 2>"$ERR"; then skip "there is a GPU"; fi
why=
grep -q "no GPU was found" "$ERR" && why="device cpu: no GPU was found"

refused() { # COMMAND...: one line after the configuration, and nothing on stdout
    expect_error "use --device cpu" "$@" --device cuda
    same "$(grep -c "^$(basename "$1"): " "$ERR")" 1 "errors of $*"
    [ ! -s "$OUT" ] || die "$1 wrote to stdout and refused"
}
chosen() { # COMMAND...: with --device cpu and without the option; a build with CUDA must print the reason
    expect 0 "$@" --device cpu
    grep -q "no GPU" "$ERR" && die "with --device cpu the program names a GPU: $*"
    cp "$OUT" "$TMP/chosen"
    expect 0 "$@" --device auto
    [ -z "$why" ] || err_has "$why"
    [ -n "$why" ] || ! grep -q "no GPU" "$ERR" || die "a build without CUDA speaks of a GPU: $*"
}

index=$BIN/drt-index
refused "$index" build "$TMP/c.jsonl" --model "$TMP/m" --out "$TMP/s"
[ ! -e "$TMP/s" ] || die "a refused build left a store"
expect 0 "$index" build "$TMP/c.jsonl" --model "$TMP/m" --out "$TMP/s" --device auto
[ -z "$why" ] || err_has "$why"
refused "$index" search "the river" --store "$TMP/s" --model "$TMP/m"
chosen "$index" search "the river" --store "$TMP/s" --model "$TMP/m" --exact --json
same "$(sed 's/"[a-z_]*seconds":[^,}]*//g' "$OUT")" "$(sed 's/"[a-z_]*seconds":[^,}]*//g' "$TMP/chosen")" "hits"
refused "$index" recall --store "$TMP/s" --queries 2
# --devices means --device cuda, and leaves no store.
expect_error "use --device cpu" "$index" build "$TMP/c.jsonl" --model "$TMP/m" --out "$TMP/all" --devices all
[ ! -e "$TMP/all" ] || die "a refused build left a store"
expect_error "use --device cpu" "$index" search "the river" --store "$TMP/s" --model "$TMP/m" --devices 0,1
for list in 0,0 x 0, ,1 -1 0,1x 1048576; do
    expect_usage "--devices takes all" "$index" build "$TMP/c.jsonl" --model "$TMP/m" --out "$TMP/all" --devices="$list"
done
CUDA_VISIBLE_DEVICES=5,7 expect_usage "GPU 2 is requested" "$index" search x --store "$TMP/s" --model "$TMP/m" --devices 0,2
expect_usage "leave out --device cpu" "$index" build "$TMP/c.jsonl" --model "$TMP/m" --out "$TMP/all" --devices all --device cpu
expect_usage "landmarks of the model itself" "$index" build "$TMP/c.jsonl" --model "$TMP/m" --out "$TMP/all" --devices all --landmarks none
expect_usage "leave out workers" "$index" search x --store "$TMP/s" --model "$TMP/m" --devices all --workers 2
expect_usage "leave out workers" "$index" search x --store "$TMP/s" --model "$TMP/m" --devices all --searcher lexical
expect_usage "share the landmarks of a store" "$GENERATE" --model "$TMP/m" --prompt x --devices all
expect_usage "share the landmarks of a store" "$EVAL" ppl --model "$TMP/m" --data "$TMP/c.jsonl" --devices all
[ ! -x "$BIN/drt-serve" ] || expect_usage "share the landmarks of a store" "$BIN/drt-serve" --model "$TMP/m" --devices all
cp -r "$TMP/s" "$TMP/kinds"
refused "$index" repair --store "$TMP/kinds" --index IVF2,Flat
expect 0 "$index" repair --store "$TMP/kinds" --index IVF2,Flat
[ -z "$why" ] || err_has "$why"

# Commands that can make an index open a device only if they make one, and refuse a GPU that the host lacks before they write.
for i in 1 2; do expect 0 "$index" build "$TMP/c.jsonl" --model "$TMP/m" --part $i/2 --out "$TMP/parts"; done
refused "$index" join "$TMP"/parts/* --out "$TMP/joined" --index IVF2,SQ8
expect_error "use --device cpu" "$index" join "$TMP"/parts/* --out "$TMP/joined" --index IVF2,SQ8 --devices all
[ ! -e "$TMP/joined" ] || die "a refused join left a store"
expect 0 "$index" join "$TMP"/parts/* --out "$TMP/joined" --device cuda
grep -q "no GPU" "$ERR" && die "join looked for a GPU, and made no index"
expect 0 "$index" join "$TMP"/parts/* --out "$TMP/joined-index" --index IVF2,SQ8
[ -z "$why" ] || err_has "$why"
refused "$index" compact --store "$TMP/joined-index" --out "$TMP/compact"
[ ! -e "$TMP/compact" ] || die "a refused compact left a store"
expect 0 "$index" compact --store "$TMP/joined-index" --out "$TMP/compact"
[ -z "$why" ] || err_has "$why"
refused "$index" drop --store "$TMP/joined-index" --shard 0
for command in "join $TMP/parts/part-1-of-2 --out" "repair --store" "compact --out $TMP/x --store" "drop --shard 0 --store" "index --store"; do
    expect_usage "--devices takes all" "$index" $command "$TMP/joined" --devices 0,0
    expect_usage "leave out --device cpu" "$index" $command "$TMP/joined" --devices all --device cpu
done

words 150 7 >"$TMP/prompt"
generate() { "$1" "$GENERATE" --model "$TMP/m" --prompt-file "$TMP/prompt" --max-tokens 80 --seed 1 "${@:2}"; }
generate refused
for how in "" "--self-retrieval" "--store $TMP/s --corpus-retrieval"; do
    generate chosen $how
    cmp -s "$OUT" "$TMP/chosen" || die "drt-generate $how: another text"
done

# fit-memory divides its texts among GPUs.
expect_error "use --device cpu" "$EVAL" fit-memory --model "$TMP/m" --data "$TMP/c.jsonl" --memory own --out "$TMP/gate.json" --devices all
expect_usage "leave it out with --samples" "$EVAL" fit-memory --model "$TMP/m" --samples x --memory own --out "$TMP/gate.json" --devices all
expect_usage "leave out --device cpu" "$EVAL" fit-memory --model "$TMP/m" --data "$TMP/c.jsonl" --memory own --out "$TMP/gate.json" --devices all --device cpu
[ ! -e "$TMP/gate.json" ] || die "a refused fit left a configuration"

refused "$EVAL" ppl --model "$TMP/m" --data "$TMP/c.jsonl"
chosen "$EVAL" ppl --model "$TMP/m" --data "$TMP/c.jsonl" --store "$TMP/s" --modes none,self,corpus
same "$(sed 's/ *[0-9]* *$//' "$OUT")" "$(sed 's/ *[0-9]* *$//' "$TMP/chosen")" "figures, but for tokens a second"

"$BIN/drt-tokenizer" encode "$TMP/c.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/c.u16" --eod-id 268 >"$OUT" 2>"$ERR" || die "drt-tokenizer encode"
cat >"$TMP/config.json" <<END
{"model": $(sed 's/"chunk_id"/"mask_id": 267, "chunk_id"/' "$TINY/config.json"), "tokenizer": "$TINY/tokenizer.json",
 "data": ["$TMP/c.u16"], "sequences": 2, "length": 189, "steps": 2, "warmup": 1, "lr": 0.01, "pool": "batch", "save_every": 2}
END
refused "$BIN/drt-train" --config "$TMP/config.json" --out "$TMP/refused"
[ ! -e "$TMP/refused" ] || die "a refused run left a folder"
expect 0 "$BIN/drt-train" --config "$TMP/config.json" --out "$TMP/cpu" --device cpu
expect 0 "$BIN/drt-train" --config "$TMP/config.json" --out "$TMP/auto" --device auto
[ -z "$why" ] || err_has "$why"
cmp -s "$TMP/cpu/checkpoints/step-2/model.safetensors" "$TMP/auto/checkpoints/step-2/model.safetensors" || die "drt-train: other weights"
