#!/usr/bin/env bash
# drt-tokenizer train: the reference's file, any number of threads, any kind of corpus; encode and decode with it; reserved ids; every
# refusal, which leaves no file.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib.sh" || exit 1
needs drt-tokenizer
TOKENIZER=$BIN/drt-tokenizer
TEXTS=$SOURCE/tests/unit/data/tokenizer_train
train() { expect 0 "$TOKENIZER" train "$@" --out "$TMP/t.json"; }
reference() { cmp -s "$TMP/t.json" "$TEXTS/expected-$1.json" || die "not the reference's tokenizer: $1"; }

expect 0 "$TOKENIZER" train --help
out_has "Usage: drt-tokenizer train CORPUS... --out tokenizer.json"
out_has "--vocab-size N"
for threads in 1 2 5; do
    train "$TEXTS/docs.jsonl" --vocab-size 500 --threads $threads
    reference gpt2
done
err_has "vocabulary 500 (reserve 0), pattern gpt2"
out_has "500 tokens (243 merges) of 22 documents"
train "$TEXTS/docs.jsonl" --vocab-size 423 --reserve 3 --pattern llama3 --special '<|begin|>' --special '<|end|>' --special $'"\\\n\xc3\xa9'
reference llama3
out_has 'ids 420 to 422 are left to the model (its config.json: "vocab_size": 423)'
train "$TEXTS/odd.jsonl" --vocab-size 700 --pattern qwen2 --min-frequency 2 --no-special
reference qwen2
err_has "no pair is left that occurs 2 times"
train "$TEXTS/odd.jsonl" --vocab-size 700 --special abab --special a --special '<|endoftext|>'
reference odd

# Standard input; several files in any order; a folder of texts; an existing output is replaced.
expect_in 0 "$TEXTS/docs.jsonl" "$TOKENIZER" train - --format jsonl --vocab-size 500 --out "$TMP/t.json"
reference gpt2
head -n 9 "$TEXTS/docs.jsonl" >"$TMP/1.jsonl"
tail -n +10 "$TEXTS/docs.jsonl" >"$TMP/2.jsonl"
train "$TMP/2.jsonl" "$TMP/1.jsonl" --vocab-size 500
reference gpt2
mkdir "$TMP/folder"
printf 'ab ab\n' >"$TMP/folder/x.txt"
printf 'ab\377' >"$TMP/folder/y.txt"
printf 'a\0b' >"$TMP/folder/z.txt"
train "$TMP/folder" --vocab-size 300
out_has "of 2 documents"
err_has "1 files that are not text were passed over"
expect 0 "$TOKENIZER" encode "$TMP/folder" --tokenizer "$TMP/t.json" --out "$TMP/folder.u16"
err_has "1 files that are not text were passed over"
rm "$TMP/folder/z.txt" "$TMP/folder.u16"
[ ! -e "$TMP/t.json.tmp" ] || die "a temporary file is left"

# The tokenizer works: decoding restores the text, and the special token ends documents.
train "$TEXTS/docs.jsonl" --vocab-size 400
printf '{"text":"no such w\\u00f6rds \\ud83d\\ude00"}\n' >"$TMP/new.jsonl"
expect 0 "$TOKENIZER" encode "$TMP/new.jsonl" --tokenizer "$TMP/t.json" --out "$TMP/new.u16"
out_has "end of document 0"
expect 0 "$TOKENIZER" decode "$TMP/new.u16" --tokenizer "$TMP/t.json"
out_has "no such wörds 😀"

# Refusals.
none() { [ ! -e "$TMP/n.json" ] && [ ! -e "$TMP/n.json.tmp" ] || die "a refused training left a file: $*"; }
expect_usage "--out is missing" "$TOKENIZER" train "$TEXTS/docs.jsonl"
expect_usage "CORPUS" "$TOKENIZER" train --out "$TMP/n.json"
expect_usage "exclude each other" "$TOKENIZER" train "$TEXTS/docs.jsonl" --out "$TMP/n.json" --special x --no-special
expect_usage "--vocab-size" "$TOKENIZER" train "$TEXTS/docs.jsonl" --out "$TMP/n.json" --vocab-size 3e
expect_usage "--reserve" "$TOKENIZER" train "$TEXTS/docs.jsonl" --out "$TMP/n.json" --reserve -1
refuse() { local text=$1; shift; expect_error "$text" "$TOKENIZER" train "$@" --out "$TMP/n.json"; none "$text"; }
refuse "256 bytes and a reserve of 2 need 259" "$TEXTS/docs.jsonl" --vocab-size 258 --reserve 2
expect_usage "must be one of gpt2|llama3|qwen2" "$TOKENIZER" train "$TEXTS/docs.jsonl" --out "$TMP/n.json" --pattern bert
refuse "given twice" "$TEXTS/docs.jsonl" --special x --special x
refuse "is empty" "$TEXTS/docs.jsonl" --special ""
refuse "nowhere.jsonl" "$TMP/nowhere.jsonl"
: >"$TMP/empty.jsonl"
refuse "the corpus has no documents" "$TMP/empty.jsonl"
printf '{"text":"fine"}\n{"text":\n' >"$TMP/broken.jsonl"
refuse "broken.jsonl" "$TMP/broken.jsonl"
refuse "holds token ids already" "$TMP/new.u16"
# An output that would replace an input, also under another name.
ln -s docs.jsonl "$TMP/linked.jsonl"
cp "$TEXTS/docs.jsonl" "$TMP/docs.jsonl"
cp "$TEXTS/docs.jsonl" "$TMP/docs.u16"
expect_error "docs.jsonl: is read, and the output would replace it" "$TOKENIZER" train "$TEXTS/docs.jsonl" "$TMP/linked.jsonl" --out "$TMP/docs.jsonl"
expect_error "docs.u16: is read, and the output would replace it" "$TOKENIZER" encode "$TMP/docs.u16" --format jsonl --tokenizer "$TMP/t.json" --out "$TMP/docs.u16"
expect_error "docs.u16: is read, and the output would replace it" "$TOKENIZER" samples "$TMP/docs.u16" --tokenizer "$TMP/t.json" --out "$TMP/docs.u16"
mkdir "$TMP/inputs" && cp "$TEXTS/docs.jsonl" "$TMP/inputs/in.txt"
expect_error "inputs/in.txt: is read, and the output would replace it" "$TOKENIZER" train "$TMP/inputs" --out "$TMP/inputs/in.txt"
cmp "$TMP/inputs/in.txt" "$TEXTS/docs.jsonl" && cmp "$TMP/docs.jsonl" "$TEXTS/docs.jsonl" && cmp "$TMP/docs.u16" "$TEXTS/docs.jsonl" || die "an input was replaced"
expect_error "/dev/stdout: exists and is not a plain file" "$TOKENIZER" train "$TEXTS/docs.jsonl" --out /dev/stdout
expect_error "$TMP/no/n.json" "$TOKENIZER" train "$TEXTS/docs.jsonl" --out "$TMP/no/n.json"
