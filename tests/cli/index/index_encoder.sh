# A store of an external encoder: built, stopped and resumed, added to, searched by text, by chunk
# and by many queries, refused if the encoder is missing or another one; read by drt-generate and drt-eval.
. "$DRT_SOURCE/tests/cli/lib_index.sh" || exit 1
needs drt-generate drt-eval
BERT=$SOURCE/tests/oracles/bert
make_model "$TMP/model"
make_corpus "$TMP/corpus.jsonl" 60
make_corpus "$TMP/more.jsonl" 20 2
model=(--model "$TMP/model")
expect 0 "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/s" "${model[@]}" --encoder "$BERT"
expect 0 "$INDEX" verify --store "$TMP/s" --deep
expect 0 "$INDEX" stats --store "$TMP/s" --json
out_has '"dim":32'
expect 0 "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/s" "${model[@]}" --encoder "$BERT"
out_has "already built"

# The same landmarks with one thread, in small shards and from torch's file.
cp -r "$BERT" "$TMP/torch" && rm "$TMP/torch/model.safetensors"
expect 0 "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/t" "${model[@]}" --encoder "$TMP/torch" --threads 1 --shard-chunks 40
for s in s t; do expect 0 "$INDEX" export --store "$TMP/$s" --landmarks values; cp "$OUT" "$TMP/export-$s"; done
cmp -s "$TMP/export-s" "$TMP/export-t" || die "landmarks depend on threads, shards or the kind of file"

# Each chunk is nearest to itself, with cosine 1 (landmarks are stored as float16).
for chunk in 0 7 31; do
    expect 0 "$INDEX" search --from-chunk $chunk --exclude none --store "$TMP/s" "${model[@]}" --encoder "$BERT" --k 1 --json
    out_has "\"chunk\":$chunk"
    grep -Eq '"score":(1[,.}]|1\.000|0\.999)' "$OUT" || die "a chunk's score with itself is not 1"
done
printf 'the river and the harbour\n\nseven lights\n' >"$TMP/q.txt"
expect 0 "$INDEX" search --queries "$TMP/q.txt" --store "$TMP/s" "${model[@]}" --encoder "$BERT" --k 3 --json
same "$(wc -l <"$OUT")" 3 "queries"
first=$(head -n 1 "$OUT" | grep -o '"chunk":[0-9]*,' | head -n 1)
expect 0 "$INDEX" search "the river and the harbour" --store "$TMP/s" "${model[@]}" --encoder "$BERT" --k 1 --json
out_has "${first%,}"

# Kinds: the store records its own; prefixes give other landmarks.
expect 0 "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/e5" "${model[@]}" --encoder "$BERT" --encoder-kind e5
expect 0 "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/dot" "${model[@]}" --encoder "$BERT" --encoder-kind dot
for s in e5 dot; do
    expect 0 "$INDEX" export --store "$TMP/$s" --landmarks values
    cmp -s "$OUT" "$TMP/export-s" && die "kind $s gives the landmarks of cosine"
    expect 0 "$INDEX" search "seven lights" --store "$TMP/$s" "${model[@]}" --encoder "$BERT" --k 1
    expect_error "encoder weights" "$INDEX" search "seven lights" --store "$TMP/$s" "${model[@]}" --encoder "$BERT" --encoder-kind cosine
    expect 0 "$INDEX" add "$TMP/more.jsonl" --store "$TMP/$s" "${model[@]}" --encoder "$BERT"
done

# Refusals, each in one line.
expect_error "or name the external encoder that made it" "$INDEX" search "x" --store "$TMP/s" "${model[@]}"
expect_error "encoder weights" "$INDEX" add "$TMP/more.jsonl" --store "$TMP/s" "${model[@]}"
expect_error "no such folder" "$INDEX" search "x" --store "$TMP/s" "${model[@]}" --encoder "$TMP/nowhere"
sed -i 's/"bert"/"roberta"/' "$TMP/torch/config.json"
expect_error 'model_type is "roberta"' "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/x" "${model[@]}" --encoder "$TMP/torch"
[ -e "$TMP/x" ] && die "a build that was refused made a folder"
cp -r "$BERT" "$TMP/cased"
echo '{"do_lower_case": true}' >"$TMP/cased/sentence_bert_config.json"
expect 0 "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/lower" "${model[@]}" --encoder "$TMP/cased"
echo '{"do_lower_case": false}' >"$TMP/cased/tokenizer_config.json"
expect_error "do_lower_case true, and the tokenizer keeps case" "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/x" "${model[@]}" --encoder "$TMP/cased"
[ -e "$TMP/x" ] && die "a build that was refused made a folder"
cp -r "$BERT" "$TMP/cut"
head -n 20 "$BERT/vocab.txt" >"$TMP/cut/vocab.txt"
expect_error "vocab.txt has 20 tokens, but config.json says vocab_size" "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/x" "${model[@]}" --encoder "$TMP/cut"
expect_usage "--encoder-kind needs --encoder" "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/x" --encoder-kind e5
expect_usage "give one of them" "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/x" --encoder "$BERT" --vectors a.npy

# Retrieval: the encoder finds the chunks, the model reads them.
cut -c 11-1500 "$TMP/more.jsonl" | head -n 8 | tr -d '{}":' >"$TMP/prompt"
generate=("$BIN/drt-generate" --store "$TMP/s" "${model[@]}" --corpus-retrieval --prompt-file "$TMP/prompt" --max-tokens 20 --greedy)
expect 0 "${generate[@]}" --encoder "$BERT" --show-retrieved 2
err_has "corpus.jsonl"
expect_error "name the external encoder" "${generate[@]}"
expect_usage "--encoder needs --corpus-retrieval" "$BIN/drt-generate" "${model[@]}" --encoder "$BERT" --prompt x
evaluate=("$BIN/drt-eval" ppl --data "$TMP/more.jsonl" --store "$TMP/s" "${model[@]}" --modes none,corpus,both,random --context 256 --skip 32 --json)
expect 0 "${evaluate[@]}" --encoder "$BERT"
for mode in none corpus both random; do out_has "\"$mode\""; done
grep -q nan "$OUT" && die "a perplexity is no number"
expect_error "name the external encoder" "${evaluate[@]}"
echo ok
