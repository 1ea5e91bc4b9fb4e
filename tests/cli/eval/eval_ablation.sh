# drt-eval ablation: every row from one config; the figures of the table are those of the commands run by hand; killed and stopped
# runs give the same bytes; wrong configs are refused before anything is made.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-index drt-train drt-tokenizer

# Texts of this repository, in pieces of whole lines: two held-out kinds, and a third for the store of other text.
pieces() { # FOLDER FILE...
    mkdir -p "$TMP/$1"
    cat "${@:2}" | split -C 8000 -d -a 3 --additional-suffix=.txt - "$TMP/$1/"
}
cd "$SOURCE/docs" || exit 1
pieces train architecture.md cli.md external-encoders.md inputs.md library.md model.md store-format.md
pieces valid-a tasks.md token-memory.md
pieces 'valid-<b>&' training.md research/retrieval.md
pieces other serve.md
cd "$TMP" || exit 1

# config ROWS [KEY VALUE]...: the config, with keys replaced or added. With a higher rate the scores of so small a model may differ so
# much that one chunk has all weight, and then K changes nothing.
config() {
    local rows=$1 text key
    shift
    text='"train": ["train"], "valid": ["valid-a", "valid-<b>&"], "other": ["other"],
 "tokenizer": {"vocab_size": 600}, "device": "cpu", "threads": 1,
 "model": {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "decoder_layers": [1, 2], "encoder_layers": 1,
           "enc_chunk_size": 63, "chunk_topk": 2, "slide_window": 64, "rms_norm_eps": 1e-5, "encoder_input": "tokens"},
 "training": {"sequences": 1, "length": 504, "warmup": 2, "lr": 0.003, "min_lr": 0.001, "mlm": {"rate": 0.15, "until": 0.5},
              "contrastive": {"weight": 0.03}},
 "budget": {"steps": 12}, "memory": {"k": 2}, "score": {"context": 252, "skip": 64, "document_tokens": 30, "max_documents": 3}'
    while [ $# -gt 1 ]; do
        key=$1
        text=$(tr -d '\n' <<<"$text" | sed -E "s#\"$key\": ([^][{},]+|\[[^]]*\]|\{[^{}]*\})#\"$key\": $2#")
        grep -qF "\"$key\": $2" <<<"$text" || text="$text, \"$key\": $2"
        shift 2
    done
    echo "{$text, \"rows\": [$rows]}" >config.json
}
some='"drt-none", "drt-corpus", "drt-self", "drt-both", "no-mlm", "k-4", "memory-self"'

# ---- a run, and its estimate
config "$some"
expect 0 "$EVAL" ablation config.json --out estimated --estimate
out_has "parts are left: about"
[ -z "$(find estimated -type f ! -name lock)" ] || die "an estimate made something"
expect 0 "$EVAL" ablation config.json --out run
out_has "DRT, random chunks"
for file in txt json html; do [ -s "run/table.$file" ] || die "no table.$file"; done
cp run/table.json first.json
cmp -s "$OUT" run/table.txt || die "table.txt is not what was printed"
expect 0 "$EVAL" ablation config.json --out run
err_lacks "done in"
cmp -s run/table.json first.json || die "a finished run changes its table"

# ---- the figures equal those of the commands
# row NAME KEY: of table.json
row() { awk -v row="\"$1\"," -v key="\"$2\":" '$1 == "\"row\":" { on = $2 == row } on && $1 == key { sub(/,$/, "", $2); print $2; exit }' run/table.json; }
ends() { awk -v row="\"$1\"," '$1 == "\"row\":" { on = $2 == row } on && $1 == "\"interval\":" { getline a; getline b; gsub(/[ ,]/, "", a); gsub(/[ ,]/, "", b); print a "," b; exit }' run/table.json; }
figure() { sed 's/.*"modes":{//; s/.*"'"$1"'":{"perplexity":\([0-9.e+]*\).*/\1/' "$OUT"; }
gain() { sed -n 's/.*"mode":"'"$1"'","against":"base","gain_percent":\([-0-9.e+]*\),"interval":\[\([^]]*\)\].*/\1 \2/p' "$OUT"; }
scope=(--data "$TMP/valid-a" --data "$TMP/valid-<b>&" --context 252 --skip 64 --document-tokens 30 --max-documents 3 --device cpu --threads 1)
drt=run/models/drt/checkpoints/step-12 base=run/models/base/checkpoints/step-12
expect 0 "$EVAL" ppl --model $drt --base $base --store run/stores/drt --modes none,self,corpus,both,random "${scope[@]}" --json
same "$(row base perplexity)" "$(figure base)" "perplexity of the Base LM"
for pair in drt-none:none drt-self:self drt-corpus:corpus drt-both:both random:random; do
    same "$(row "${pair%:*}" perplexity)" "$(figure "${pair#*:}")" "perplexity of ${pair%:*}"
    same "$(row "${pair%:*}" change_percent) $(ends "${pair%:*}")" "$(gain "${pair#*:}")" "change of ${pair%:*}"
done
expect 0 "$EVAL" ppl --model $drt --store run/stores/drt-other --modes corpus "${scope[@]}" --json
same "$(row drt-other perplexity)" "$(figure corpus)" "perplexity with other text"
expect 0 "$EVAL" fit-memory --model $base --store run/stores/drt --memory own,corpus,random --memory-k 2 --memory-every 16 --out memory.json "${scope[@]}" --json
same "$(row memory-self perplexity)" "$(figure memory-own)" "perplexity of a memory"
# A line of commands.txt gives the same figure.
grep -q '^drt-eval ppl --model models/k-4 ' run/commands.txt || die "no command of k-4"
(cd run && PATH=$BIN:$PATH && eval "$(grep '^drt-eval ppl --model models/k-4 ' commands.txt)") >"$OUT" 2>"$ERR" || die "command of k-4"
same "$(row k-4 perplexity)" "$(figure both)" "perplexity of k-4"
[ "$(row k-4 perplexity)" != "$(row drt-both perplexity)" ] || die "K 4 is K 2"
same "$(row base change_percent)" 0 "change of the Base LM"

# ---- stopped by time, and killed repeatedly: the same bytes
kills="0.1 0.3 0.5 0.2 0.7 0.4 0.6 0.3"
sanitized && kills=0.5
for seconds in $kills; do
    "$EVAL" ablation config.json --out killed >"$OUT" 2>"$ERR" &
    pid=$!
    sleep $seconds
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    # On a fast machine the kills would leave nothing for the run without time.
    [ "$(ls killed/parts 2>/dev/null | wc -l)" -le $(($(ls run/parts | wc -l) / 2)) ] || break
done
# A part that was just started needs a moment to notice its parent's end, and keeps the run's lock until then.
part_left() { for p in /proc/[0-9]*; do [ "$(readlink "$p/cwd" 2>/dev/null)" != "$TMP/killed" ] || return 0; done; return 1; }
for _ in $(seq 100); do part_left || break; sleep 0.1; done
! part_left || die "a part outlives its killed parent: $(tr '\0' ' ' <"$p/cmdline")"
for _ in $(seq 100); do
    code=0
    "$EVAL" ablation config.json --out killed --max-minutes 0.001 >"$OUT" 2>"$ERR" || code=$?
    grep -q "another drt-eval ablation works on this run" "$ERR" || break
    sleep 0.1
done
same "$code" 1 "exit code of a run without time"
err_has "not finished: the same command continues"
expect 0 "$EVAL" ablation config.json --out killed
cmp -s killed/table.json first.json || die "a killed run gives another table"
cmp -s killed/table.html run/table.html || die "a killed run gives another page"

# Two parts at once: the same bytes. No GPU has the number -1, so both compute on the CPU.
sed 's/"device": "cpu"/"device": "auto", "gpus": ["-1", "-1"]/' config.json >two.json
sanitized && sed -i 's/"rows": .*/"rows": ["drt-none"]}/' two.json
expect 0 "$EVAL" ablation two.json --out two
sanitized || cmp -s two/table.json first.json || die "two parts at once give another table"

# ---- more rows of the same run: finished parts stay, and all rows are in the table. With sanitizers one of each kind of part.
names=$("$EVAL" ablation --list-rows | sed -n 's/^  \([a-z0-9-]*\) .*/\1/p') rows='"all"'
sanitized && names="external-corpus own own-taught gca-memory drt-memory base-deep" && rows="\"${names// /\", \"}\", $some"
config "$rows" external "\"$SOURCE/tests/oracles/bert\""
expect 0 "$EVAL" ablation config.json --out run
err_lacks "train-base: done"
for name in $names; do
    [ -n "$(row "$name" perplexity)" ] || die "no row $name"
    grep -q "<td>$name</td>" run/table.html || die "no row $name in the page"
done
[ "$(row external-corpus perplexity)" != "$(row drt-corpus perplexity)" ] || die "an external encoder finds the same chunks"
if ! sanitized; then
    same "$(row gca perplexity)" "$(row drt-both perplexity)" "GCA alone"
    same "$(row every-16 perplexity)" "$(row memory perplexity)" "a search every 16"
    same "$(row groups-1 perplexity)" "$(row drt-both perplexity)" "one group"
fi
same "$(row own perplexity)" "$(row drt-self perplexity)" "DRT that is trained on its own past"
[ "$(row own-taught perplexity)" != "$(row own perplexity)" ] || die "a reader teaches nothing"
grep -q '"teach_loss"' run/models/own-taught/log.jsonl || die "no teacher in the training"
[ "$(row gca-memory perplexity)" != "$(row drt-memory perplexity)" ] || die "GCA changes nothing under a memory"
awk -v a="$(row base-deep parameters)" -v b="$(row drt-both parameters)" 'BEGIN { exit !(a >= b && a < 1.4 * b) }' || die "parameters of base-deep"
grep -qF '&lt;b&gt;&amp;' run/table.html || die "the name of a text is not in the page"
! grep -qF '<b>&' run/table.html || die "the name of a text is not escaped"
! grep -qE 'https?://[^w]|src=|href=' run/table.html || die "the page needs other files"

# ---- refused, before anything is made
refused() { # TEXT [ROWS [KEY VALUE]...]
    local text=$1
    shift
    config "$@"
    expect_error "$text" "$EVAL" ablation config.json --out none
    [ "$(wc -l <"$ERR")" = 1 ] || die "more than one line"
    [ ! -e none ] || die "something was made"
}
refused 'rows: there is no row "drt-corpsu"' '"drt-corpsu"'
refused 'config.json: train: ./missing' "$some" train '["missing"]'
refused 'budget: give steps or tokens, not both' "$some" budget '{"steps": 3, "tokens": 4}'
refused 'no such key: score.contxt (did you mean "score.context"?' "$some" context '252, "contxt": 3'
refused 'no such key: budgets' "$some" budgets '{}'
refused 'row external-corpus needs an encoder' '"external-corpus"'
mkdir other-encoder && echo '{}' >other-encoder/config.json
refused 'not the config of a BERT-type encoder' '"all"' external '"other-encoder"'
refused 'DRT trains without it already: set training.mlm.rate' '"no-mlm"' mlm '{"rate": 0}'
refused 'warmup is 20: must be at most steps, 12' "$some" warmup 20
refused 'model.vocab_size follows from tokenizer.vocab_size' "$some" hidden_size '32, "vocab_size": 600'
refused 'training.data is set by this command' "$some" warmup '2, "data": ["x"]'
refused 'score.skip is 252: must be smaller' "$some" skip 252
refused 'a step takes' "$some" sequences 100000
refused 'models.drtt: there is no such model' "$some" models '{"drtt": "run"}'
refused 'is no Base LM' "$some" models "{\"base\": \"$drt\"}"
refused 'budget.tokens is 0: must be from 1' "$some" budget '{"tokens": 0}'
mkdir tiny
for i in $(seq 100); do echo "text number $i is too short to be scored" >tiny/$i.txt; done
config "$some" valid '["tiny"]'
expect_error "score-base: drt-eval: no document has more than 64 tokens" "$EVAL" ablation config.json --out failed
[ -z "$(find failed/scores failed/parts -name 'score*.json')" ] || die "a failed part has a result"
echo '{"train": [' >config.json
expect_error "config.json" "$EVAL" ablation config.json --out none
config "$some" budget '{"steps": 500000, "seconds": 20}'
expect_error "budget.seconds is 20, and all parts take about" "$EVAL" ablation config.json --out short
[ -z "$(find short -type f ! -name lock)" ] || die "something was made in spite of the budget"
config "$some" budget '{"steps": 13}'
expect_error "was made with other settings" "$EVAL" ablation config.json --out run
echo "one more line" >>train/000.txt
config "$some"
expect_error "tokenizer.json: was made with other settings or texts" "$EVAL" ablation config.json --out killed
config "$some" text_field '"body"'
expect_error "tokenizer.json: was made with other settings" "$EVAL" ablation config.json --out killed
rm killed/parts/train-no-mlm.json
config "$some" lr 0.02
sed -i 's/"rows".*/"rows": []}/' config.json
expect_error "was made with other settings" "$EVAL" ablation config.json --out killed

# ---- finished models, and the names in the table
config '"drt-corpus"' models "{\"drt\": \"$drt\", \"base\": \"$base\"}" tokenizer '"run/tokenizer.json"'
sed -i 's/"hidden_size"/"vocab_size": 600, "chunk_id": 599, "pad_id": 598, "mask_id": 597, "eos_id": 0, "hidden_size"/' config.json
expect 0 "$EVAL" ablation config.json --out taken
err_lacks "train-"
taken=$(awk '$1 == "\"row\":" { on = $2 == "\"drt-corpus\"," } on && $1 == "\"perplexity\":" { sub(/,$/, "", $2); print $2; exit }' taken/table.json)
same "$taken" "$(row drt-corpus perplexity)" "a model that was taken"

expect 0 "$EVAL" ablation --help
help_is_smooth
expect_usage "CONFIG is missing" "$EVAL" ablation --out x
expect_usage "--out RUN is missing" "$EVAL" ablation config.json
