# drt-generate: seeds, stop strings, ends, prompts of every kind, long prompts, usage errors.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-generate
tiny_model "$TMP/m"
gen() { expect 0 "$GENERATE" --model "$TMP/m" "$@"; }

# The same seed gives the same text, another seed another text; greedy decoding ignores the seed.
gen --prompt "the river" --max-tokens 60 --seed 4 && cp "$OUT" "$TMP/first"
grep -v "^device " "$ERR" && die "a plain run wrote to stderr"         # the line that names the device is allowed
gen --prompt "the river" --max-tokens 60 --seed 4 && cmp -s "$OUT" "$TMP/first" || die "one seed gave two texts"
gen --prompt "the river" --max-tokens 60 --seed 4 --threads 1 && cmp -s "$OUT" "$TMP/first" || die "the number of threads changed the text"
gen --prompt "the river" --max-tokens 60 --seed 5 && ! cmp -s "$OUT" "$TMP/first" || die "two seeds gave one text"
gen --prompt "the river" --max-tokens 60 --greedy --seed 4 && cp "$OUT" "$TMP/greedy"
gen --prompt "the river" --max-tokens 60 --temperature 0 --seed 9 && cmp -s "$OUT" "$TMP/greedy" || die "temperature 0 is not greedy"
gen --prompt "the river" --max-tokens 60 --top-k 1 --seed 9 && cmp -s "$OUT" "$TMP/greedy" || die "top-k 1 is not greedy"
gen --prompt "the river" --max-tokens 0 --echo && same "$(cat "$OUT"; echo .)" "$(printf 'the river\n.')" "an echoed prompt alone, its line ended"
gen --prompt "the river" --max-tokens 60 --min-p 1 --top-p 1 --seed 9 && cmp -s "$OUT" "$TMP/greedy" || die "min-p 1 is not greedy"
gen --prompt "the river" --max-tokens 60 --greedy --repeat-penalty 100 --repeat-last-n 0 && cmp -s "$OUT" "$TMP/greedy" || die "a penalty of nothing changes the text"
gen --prompt "the river" --max-tokens 60 --greedy --repeat-penalty 100 && ! cmp -s "$OUT" "$TMP/greedy" || die "the penalty changes nothing"
# The CPU reads weights that were saved in bf16 as bf16 or as float32: the same text.
"$MODEL" init --config "$TINY/config.json" --tokenizer "$TINY/tokenizer.json" --out "$TMP/bf16" --seed 3 --dtype bf16 >/dev/null 2>"$ERR" || die "drt-model init"
for how in auto f32; do
    expect 0 "$GENERATE" --model "$TMP/bf16" --prompt "the river" --max-tokens 90 --seed 4 --self-retrieval --device cpu --dtype $how && cp "$OUT" "$TMP/$how"
done
cmp -s "$TMP/auto" "$TMP/f32" || die "--dtype f32: another text"
# Weights of 8 bits: the same text with any number of threads.
for threads in 1 2 3; do
    expect 0 "$GENERATE" --model "$TMP/bf16" --prompt "the river" --max-tokens 90 --seed 4 --self-retrieval --device cpu --dtype i8 --threads $threads && cp "$OUT" "$TMP/i8.$threads"
    cmp -s "$TMP/i8.1" "$TMP/i8.$threads" || die "--dtype i8: another text with $threads threads"
done
[ -s "$TMP/i8.1" ] || die "--dtype i8: no text"

# A prompt from a file and from standard input is the same prompt; a prompt that begins with - is not an option.
printf 'the river' >"$TMP/prompt"
{ printf '\357\273\277'; cat "$TMP/prompt"; } >"$TMP/marked"
gen --prompt-file "$TMP/marked" --max-tokens 60 --seed 4 && cmp -s "$OUT" "$TMP/first" || die "a byte order mark is read as text"
gen --prompt-file "$TMP/prompt" --max-tokens 60 --seed 4 && cmp -s "$OUT" "$TMP/first" || die "--prompt-file differs"
gen --prompt-file <(cat "$TMP/prompt") --max-tokens 60 --seed 4 && cmp -s "$OUT" "$TMP/first" || die "--prompt-file of a pipe differs"
expect_error "$TMP/nothing: No such file" "$GENERATE" --model "$TMP/m" --prompt-file "$TMP/nothing"
expect_error "Is a directory" "$GENERATE" --model "$TMP/m" --prompt-file "$TMP"
expect_error "$TMP: has no config.json; a model folder" "$GENERATE" --model "$TMP" --prompt x
expect_error "$TMP/none/t.html: cannot create it: its folder does not exist" "$GENERATE" --model "$TMP/m" --prompt x -n 1 --trace "$TMP/none/t.html"
expect_in 0 "$TMP/prompt" "$GENERATE" --model "$TMP/m" - --max-tokens 60 --seed 4
cmp -s "$OUT" "$TMP/first" || die "standard input differs"
gen --prompt "the river" --max-tokens 60 --seed 4 --echo
case $(cat "$OUT") in "the river"*) ;; *) die "--echo did not print the prompt" ;; esac
gen --max-tokens 5
gen --prompt "" --max-tokens 5
gen --prompt "x" --max-tokens 0
[ ! -s "$OUT" ] || die "0 tokens printed something"

# The text before a stop string appears, never a part of the string; stop strings may span tokens (each token is one byte here).
text=$(tr -d '\n' <"$TMP/first")
gen --prompt "the river" --max-tokens 60 --seed 4 --stop "not in there at all" && cmp -s "$OUT" "$TMP/first" || die "a stop string that is not met changed the text"
LC_ALL=C awk 'BEGIN { RS = "\001" } { print substr($0, 12, 4) }' "$TMP/first" | head -c 4 >"$TMP/stop"
if [ "$(wc -c <"$TMP/stop")" = 4 ] && ! LC_ALL=C grep -q '[^ -~]' "$TMP/stop"; then
    stop=$(cat "$TMP/stop")
    gen --prompt "the river" --max-tokens 60 --seed 4 --stop "zzzz" --stop "$stop"
    out_lacks "$stop"
    [ "$(wc -c <"$OUT")" -lt "$(wc -c <"$TMP/first")" ] || die "the stop string did not stop"
fi

# A prompt of many passes, and --stats.
words 7000 >"$TMP/long"
gen --prompt-file "$TMP/long" --max-tokens 10 --self-retrieval --stats
err_has "decode (layers)"
err_has "re-encode chunks"
err_has "prompt 27562 tokens"
err_has "generated 10 tokens"
# Bytes that are not UTF-8 do not stop it.
printf 'a\377\376b' >"$TMP/bytes"
gen --prompt-file "$TMP/bytes" --max-tokens 5

expect 0 "$GENERATE" --help
help_is_smooth
out_has "(default: 0.95)"
expect_usage "did you mean --prompt?" "$GENERATE" --promt x
expect_usage "only one of" "$GENERATE" --prompt a --prompt-file b
expect_usage "--corpus-retrieval needs --store" "$GENERATE" --corpus-retrieval
expect_usage "--store needs --corpus-retrieval" "$GENERATE" --store x
expect_usage "need --store DIR --corpus-retrieval" "$GENERATE" --exact
expect_usage "--prompt TEXT" "$GENERATE" "a bare prompt"
expect_usage "the string is empty" "$GENERATE" --stop ""
expect_usage "must be between 1e-06 and 1" "$GENERATE" --top-p 1.5
expect_usage "must be between 1e-06 and 1" "$GENERATE" --top-p 0
expect_usage "must be between 0 and 1" "$GENERATE" --min-p 1.5
expect_usage "must be between 0.01 and 100" "$GENERATE" --repeat-penalty 0
expect_usage "not a whole number" "$GENERATE" --max-tokens ten
expect_error "no such folder" "$GENERATE" --model "$TMP/nowhere" --prompt x
expect_error "nowhere.txt" "$GENERATE" --model "$TMP/m" --prompt-file "$TMP/nowhere.txt"
expect_usage "auto|cpu|cuda" "$GENERATE" --model "$TMP/m" --prompt x --device tpu
