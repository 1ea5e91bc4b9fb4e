#!/usr/bin/env bash
# drt-index from corpus to hit: build, add, stats, export, search, recall, verify, repair, doctor; every input format.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 100
build() { expect 0 "$INDEX" build "$@" --model "$TMP/model"; }

build "$TMP/a.jsonl" --out "$TMP/store" --shard-chunks 50 --json
same "$(json_int "$OUT" documents)" 100 documents
same "$(json_int "$OUT" empty)" 5 empty
same "$(json_int "$OUT" duplicates)" 3 duplicates
same "$(json_int "$OUT" generation)" 1 generation
chunks=$(json_int "$OUT" chunks)
[ "$chunks" -gt 150 ] || die "only $chunks chunks"
err_has "shard-chunks 50"

expect 0 "$INDEX" stats --store "$TMP/store" --json
same "$(json_int "$OUT" chunks)" "$chunks" "chunks of stats"
same "$(json_int "$OUT" documents)" 92 "documents of stats"
same "$(json_int "$OUT" duplicates)" 3 "duplicates of stats"
[ "$(json_int "$OUT" shards)" -gt 2 ] || die "one shard only"
expect 0 "$INDEX" stats --store "$TMP/store"
out_has "index        exact"

expect 0 "$INDEX" export --store "$TMP/store"
same "$(wc -l <"$OUT")" "$chunks" "lines of export"
out_has '"key":"doc-0"'
expect 0 "$INDEX" export --store "$TMP/store" --first 3 --count 2 --landmarks values
same "$(wc -l <"$OUT")" 2 "lines of a part"
out_has '"landmark":['

# A chunk's own text as the query gives k hits with falling scores, and never an excluded document.
expect 0 "$INDEX" search "the river and the stone" --store "$TMP/store" --model "$TMP/model" --k 4 --json
same "$(wc -l <"$OUT")" 4 hits
sed -n 's/.*"score":\([^,]*\),.*/\1/p' "$OUT" >"$TMP/scores"
sort -rgc "$TMP/scores" 2>/dev/null || die "scores do not fall: $(tr '\n' ' ' <"$TMP/scores")"
document=$(json_int "$OUT" document)
chunk=$(json_int "$OUT" chunk)
search() { expect 0 "$INDEX" search --store "$TMP/store" --model "$TMP/model" --k 1000 --json "$@"; }
search "the river and the stone" --from-document "$document"
out_lacks "\"document\":$document,"
search "the river and the stone" --from-document "$document" --exclude none
out_has "\"document\":$document,"
# A stored chunk as the query, with its document's text before it; its document, itself, or neither is excluded.
search --from-chunk "$chunk"
out_lacks "\"document\":$document,"
search --from-chunk "$chunk" --exclude window=0
out_lacks "\"chunk\":$chunk,"
same "$(wc -l <"$OUT")" $((chunks - 1)) "hits without one chunk"
search --from-chunk "$chunk" --exclude none
out_has "\"chunk\":$chunk,"
same "$(wc -l <"$OUT")" "$chunks" "hits without any exclusion"
search "the river and the stone" --from-chunk "$chunk" --exclude window=0
out_lacks "\"chunk\":$chunk,"
expect 0 "$INDEX" search "the river and the stone" --store "$TMP/store" --model "$TMP/model" --k 2 --exact
out_has "1. score"
out_has "a.jsonl  [doc-"

# The program prints the search method that it used: a store without an index is scanned, also with --nprobe.
err_has "searched by exact scan, threads"
expect 0 "$INDEX" search "the river and the stone" --store "$TMP/store" --model "$TMP/model" --k 2 --nprobe 3 --json
err_has "searched by exact scan, threads"
out_has '"searched_by":"exact scan"'
expect_usage "leave out --nprobe" "$INDEX" search x --store "$TMP/store" --exact --nprobe 3
expect 0 "$INDEX" recall --store "$TMP/store" --queries 20 --k 8 --json
out_has '"searched_by":"exact scan"'
out_has '"recall":1,'
out_has '"softmax_mass_recall":1,'
expect 0 "$INDEX" recall --store "$TMP/store" --queries 5 --exclude window=2
out_has "recall@8"
# The device: --device cpu gives the same result; an unknown device is refused in one line.
expect 0 "$INDEX" search "the river and the stone" --store "$TMP/store" --model "$TMP/model" --k 4 --exact --device cpu --json
sed -n 's/.*"score":\([^,]*\),.*/\1/p' "$OUT" | cmp - "$TMP/scores" || die "--device cpu --exact gives other scores"
expect 0 "$INDEX" recall --store "$TMP/store" --queries 3 --device cpu
err_has "device cpu"
expect_usage "auto|cpu|cuda" "$INDEX" search x --store "$TMP/store" --model "$TMP/model" --device tpu
expect_usage "auto|cpu|cuda" "$INDEX" recall --store "$TMP/store" --device tpu
expect_error "bf16: the CPU computes in float32" "$INDEX" search x --store "$TMP/store" --model "$TMP/model" --device cpu --dtype bf16
expect 0 "$INDEX" verify --store "$TMP/store" --deep
out_has "every byte is as recorded"
expect 0 "$INDEX" repair --store "$TMP/store"
# Only centroids need a device: a repair without them does not mention one.
expect 0 "$INDEX" repair --store "$TMP/store" --device cuda
grep -q "GPU" "$ERR" && die "repair looked for a GPU with nothing to do"
expect_usage "auto|cpu|cuda" "$INDEX" repair --store "$TMP/store" --device tpu
# Another kind of index, and the first one again; an unknown name changes nothing.
cp -r "$TMP/store" "$TMP/kinds"
expect 0 "$INDEX" repair --store "$TMP/kinds" --index IVF2,Flat
err_has "of another kind"
expect 0 "$INDEX" stats --store "$TMP/kinds"
out_has "IVF2,Flat"
expect 0 "$INDEX" repair --store "$TMP/kinds" --index IVF2,Flat
grep -q "of another kind" "$ERR" && die "the kind it has is made again"
expect 0 "$INDEX" search "the river and the stone" --store "$TMP/kinds" --model "$TMP/model" --k 4 --nprobe 2 --json
sed -n 's/.*"score":\([^,]*\),.*/\1/p' "$OUT" | cut -c 1-6 >"$TMP/here"
cut -c 1-6 "$TMP/scores" | cmp - "$TMP/here" || die "all lists of the new index give other scores"
expect_error "IVFxyz" "$INDEX" repair --store "$TMP/kinds" --index IVFxyz
expect_error "65536 lists" "$INDEX" repair --store "$TMP/kinds" --index IVF65536,Flat
expect 0 "$INDEX" repair --store "$TMP/kinds" --index exact
expect 0 "$INDEX" verify --store "$TMP/kinds" --deep
expect 0 "$INDEX" doctor --store "$TMP/store"
out_has "FAISS"
out_has "OpenBLAS"
out_has "products "

# The same corpus from standard input, and with other ends of shards, makes the same store (except for the source's name).
expect_in 0 "$TMP/a.jsonl" "$INDEX" build - --format jsonl --out "$TMP/stdin" --model "$TMP/model" --shard-chunks 7
"$INDEX" export --store "$TMP/store" 2>/dev/null | sed 's/"source":"[^"]*"//' >"$TMP/one"
"$INDEX" export --store "$TMP/stdin" 2>/dev/null | sed 's/"source":"[^"]*"//' >"$TMP/two"
cmp "$TMP/one" "$TMP/two" || die "standard input gives another store"
if command -v gzip >/dev/null; then
    gzip -k "$TMP/a.jsonl"
    build "$TMP/a.jsonl.gz" --out "$TMP/gz"
    "$INDEX" export --store "$TMP/gz" 2>/dev/null | sed 's/"source":"[^"]*"//' >"$TMP/two"
    cmp "$TMP/one" "$TMP/two" || die "a compressed corpus gives another store"
fi

# A trained index: nearly all hits are found, and each has its exact score.
make_corpus "$TMP/large.jsonl" 1500 5
build "$TMP/large.jsonl" --out "$TMP/ivf" --index "IVF16,SQ8"
expect 0 "$INDEX" stats --store "$TMP/ivf" --json
out_has '"index":"IVF16,SQ8"'
expect 0 "$INDEX" recall --store "$TMP/ivf" --queries 50 --nprobe 1,16 --json
same "$(wc -l <"$OUT")" 2 "lines of the sweep"
out_has '"nprobe":1,"searched_by":"index IVF16,SQ8, 1 of 16 lists"'
search_ivf() { expect 0 "$INDEX" search "the river and the stone" --store "$TMP/ivf" --model "$TMP/model" "$@"; }
search_ivf
err_has "searched by index IVF16,SQ8, 8 of 16 lists"
search_ivf --nprobe 1000
err_has "searched by index IVF16,SQ8, 16 of 16 lists"
search_ivf --exact
err_has "searched by exact scan"
search_ivf --k 100000 --json
out_has '"searched_by":"exact scan"'
expect 0 "$INDEX" recall --store "$TMP/ivf" --queries 50 --nprobe 0,16
out_has "index IVF16,SQ8, 8 of 16 lists"
expect 0 "$INDEX" recall --store "$TMP/ivf" --queries 50 --nprobe 1,16 --json
tail -n 1 "$OUT" | grep -qE '"recall":(0\.9|1[,.])' || die "visiting all lists finds too little"

# A folder of text files; a token file; more documents for an existing store.
mkdir -p "$TMP/texts/deep"
echo "the river winds to the north" >"$TMP/texts/one.txt"
echo "stone and sand" >"$TMP/texts/deep/two.md"
build "$TMP/texts" --out "$TMP/folder" --json
same "$(json_int "$OUT" documents)" 2 "documents of a folder"
printf '\101\000\102\000\014\001\103\000' >"$TMP/tokens.u16"
build "$TMP/tokens.u16" --format u16 --out "$TMP/tokens" --json
same "$(json_int "$OUT" tokens)" 3 "tokens (without the eos_id of the model, 268)"
same "$(json_int "$OUT" documents)" 2 "documents of a token file"
expect 0 "$INDEX" add "$TMP/texts" --store "$TMP/store" --model "$TMP/model" --json
same "$(json_int "$OUT" generation)" 2 "generation after add"
expect 0 "$INDEX" stats --store "$TMP/store" --json
same "$(json_int "$OUT" documents)" 94 "documents after add"
expect 0 "$INDEX" verify --store "$TMP/store" --deep

expect 0 "$INDEX" doctor
out_has "default of --max-ram"

# Help of the program and of every command; usage errors.
expect 0 "$INDEX" --help
help_is_smooth
for command in build add search stats verify repair drop recall export doctor; do
    out_has "  $command"
done
for command in build add search stats verify repair drop recall export doctor; do
    expect 0 "$INDEX" "$command" --help
    out_has "drt-index $command"
    help_is_smooth
done
expect 0 "$INDEX" search --help
out_has "until it fills one"
expect_usage "there is no command" "$INDEX" conquer
expect 2 "$INDEX"
expect_usage "--out STORE is missing" "$INDEX" build "$TMP/a.jsonl"
expect_usage "drt-index build" "$INDEX" build --out "$TMP/x"
expect_usage "--max-ram" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/x" --max-ram lots
expect_usage "--store STORE is missing" "$INDEX" stats
for rule in some window= window=-1 window=x window=1e3 doc,none; do
    expect_usage "--exclude is doc, window=N or none" "$INDEX" recall --store "$TMP/store" --exclude "$rule"
    expect_usage "--exclude is doc, window=N or none" "$INDEX" search x --store "$TMP/store" --exclude "$rule"
done
expect_usage "which one?" "$INDEX" search x --store "$TMP/store" --exclude doc
expect_usage "needs --from-chunk ID" "$INDEX" search x --store "$TMP/store" --from-document 1 --exclude window=1
expect_usage "leave out --from-document" "$INDEX" search x --store "$TMP/store" --from-document 1 --from-chunk 1
expect_usage "TEXT, --from-chunk ID or --queries FILE is missing" "$INDEX" search --store "$TMP/store"
expect_error "no document 100000" "$INDEX" search x --store "$TMP/store" --model "$TMP/model" --from-document 100000
expect_error "no chunk 100000" "$INDEX" search --store "$TMP/store" --model "$TMP/model" --from-chunk 100000
expect_error "no chunk 100000" "$INDEX" export --store "$TMP/store" --first 100000
expect_usage "--max-ram 0: must be at least 1" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/none" --max-ram 0
expect_usage "--max-ram 0: must be at least 1" "$INDEX" repair --store "$TMP/store" --max-ram 0
expect_usage "--landmarks" "$INDEX" export --store "$TMP/store" --landmarks all
echo ok
