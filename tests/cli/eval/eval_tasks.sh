#!/usr/bin/env bash
# drt-eval tasks and drt-eval niah: layouts, scores, samples that are written and read again, a model that has learnt an answer.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-train
tiny_model "$TMP/model"
corpus "$TMP/text.jsonl" 8 200

# An untrained model answers: one line for each sample, figures in [0, 1], the same in a second run.
cat >"$TMP/ruler.jsonl" <<'END'
{"input": "the river and", "outputs": ["stone", "e"], "answer_prefix": " the"}

{"input": "seven", "outputs": ["no such text"]}
END
expect 0 "$EVAL" tasks "$TMP/ruler.jsonl" --model "$TMP/model" --max-tokens 9 --answers "$TMP/answers.jsonl"
out_has "ruler "
[ "$(wc -l <"$TMP/answers.jsonl")" = 2 ] || die "an answer a sample"
grep -q '"line":3,' "$TMP/answers.jsonl" || die "lines of the file"
cp "$TMP/answers.jsonl" "$TMP/first"
{ printf '\357\273\277'; cat "$TMP/ruler.jsonl"; } >"$TMP/marked.jsonl"
expect 0 "$EVAL" tasks "$TMP/marked.jsonl" --model "$TMP/model" --max-tokens 9 --answers "$TMP/marked.answers.jsonl"
cmp -s <(sed 's/"file":"[^"]*"//' "$TMP/first") <(sed 's/"file":"[^"]*"//' "$TMP/marked.answers.jsonl") || die "a byte order mark changes the answers"
expect 0 "$EVAL" tasks "$TMP/ruler.jsonl" --model "$TMP/model" --max-tokens 9 --answers "$TMP/answers.jsonl" --json
cmp -s "$TMP/first" "$TMP/answers.jsonl" || die "another answer to the same prompt"
out_has '"samples": 2'
# The answer equals that of drt-generate.
expect 0 "$BIN/drt-generate" --model "$TMP/model" -p "the river and the" -n 9 --greedy
answer=$(cat "$OUT")
command -v python3 >/dev/null && { python3 - "$TMP/first" "$answer" <<'P' || die "another answer than drt-generate gives"; }
import json, sys
first = json.loads(open(sys.argv[1]).readline())["answer"]
assert first.strip() == sys.argv[2].strip(), (first, sys.argv[2])
P
# An answer that repeats the outputs contains each of them; a summary against itself scores 1.
printf '{"document": "the river", "summary": "%s"}\n' "$(tr -d '"\\\n' <"$OUT")" >"$TMP/sum.jsonl"
expect 0 "$EVAL" tasks "$TMP/sum.jsonl" --model "$TMP/model" --max-tokens 4
out_has "rougeL"
expect_in 0 "$TMP/sum.jsonl" "$EVAL" tasks - --metric rouge --model "$TMP/model" --max-tokens 1
# RULER's two scores: outputs that are all wanted, and outputs that are alternatives. One of two is in the answer here.
python3 - "$TMP/first" >"$TMP/half.jsonl" <<'P' || die "no answer"
import json, sys
answer = json.loads(open(sys.argv[1]).readline())["answer"].encode("ascii", "ignore").decode()
part = max("".join(c if c.isalnum() else " " for c in answer).split(), key=len, default="")
assert part, answer
print(json.dumps({"input": "the river and", "answer_prefix": " the", "outputs": [part.upper(), "no such text"]}))
P
expect 0 "$EVAL" tasks "$TMP/half.jsonl" --model "$TMP/model" --max-tokens 9 --json
grep -A 1 '"ruler": {' "$OUT" | grep -q '"score": 0.5' || die "one of two outputs"
expect 0 "$EVAL" tasks "$TMP/half.jsonl" --model "$TMP/model" --max-tokens 9 --json --metric ruler-part
grep -A 1 '"ruler-part": {' "$OUT" | grep -q '"score": 1' || die "one of two alternatives"
# The interval of a share has a width also if no sample has its output.
for n in 1 2 3; do sed 's/"outputs": .*\]/"outputs": ["no such text"]/' "$TMP/half.jsonl"; done >"$TMP/none.jsonl"
expect 0 "$EVAL" tasks "$TMP/none.jsonl" --model "$TMP/model" --max-tokens 9
out_has "0.0000 .. 0.5615"
# A file without samples, and files of two kinds without --metric.
printf '\n \n' >"$TMP/blank.jsonl"
expect_error "blank.jsonl: has no samples" "$EVAL" tasks "$TMP/blank.jsonl" --model "$TMP/model"
expect_error 'sum.jsonl: line 1 has "summary" or "highlights", unlike the first sample' "$EVAL" tasks "$TMP/ruler.jsonl" "$TMP/sum.jsonl" --model "$TMP/model" --max-tokens 2
expect 0 "$EVAL" tasks "$TMP/ruler.jsonl" "$TMP/sum.jsonl" --model "$TMP/model" --max-tokens 2 --metric rouge
# An empty summary is in every answer.
printf '{"document": "the river", "summary": "x"}\n{"document": "the river", "summary": ""}\n' >"$TMP/empty.jsonl"
for metric in ruler ruler-part; do
    expect_error "empty.jsonl: line 2: the summary is empty, and $metric asks" "$EVAL" tasks "$TMP/empty.jsonl" --model "$TMP/model" --max-tokens 2 --metric $metric
done
expect 0 "$EVAL" tasks "$TMP/empty.jsonl" --model "$TMP/model" --max-tokens 2 --metric rouge
expect_error "cannot be read twice" "$EVAL" tasks - --model "$TMP/model"
expect_error "line 1 is no sample" "$EVAL" tasks "$TMP/text.jsonl" --model "$TMP/model"
# An output that would replace an input is refused.
cp "$TMP/ruler.jsonl" "$TMP/same.jsonl"
expect_error "same.jsonl: is read, and the output would replace it" "$EVAL" tasks "$TMP/ruler.jsonl" "$TMP/same.jsonl" --model "$TMP/model" --answers "$TMP/same.jsonl"
cmp "$TMP/ruler.jsonl" "$TMP/same.jsonl" || die "an input was replaced by answers"
expect_error "text.jsonl: is read, and the output would replace it" "$EVAL" niah --data "$TMP/text.jsonl" --model "$TMP/model" --context 256 --trials 1 --answers "$TMP/text.jsonl"
mkdir "$TMP/texts" && cp "$TMP/text.jsonl" "$TMP/texts/in.jsonl"
expect_error "texts/in.jsonl: is read, and the output would replace it" "$EVAL" niah --data "$TMP/texts" --model "$TMP/model" --context 256 --trials 1 --answers "$TMP/texts/in.jsonl"
cmp "$TMP/text.jsonl" "$TMP/texts/in.jsonl" || die "an input in a folder was emptied"
expect_error "no-such.jsonl" "$EVAL" tasks "$TMP/no-such.jsonl" --model "$TMP/model"
expect_usage "needs --store" "$EVAL" tasks "$TMP/ruler.jsonl" --corpus-retrieval

# Pads change nothing where a prompt ends with the first token of a chunk: here with the 64th byte.
tokens() { printf '%064d' 0 | tr 0 "$1"; }
printf '{"input": "%s", "outputs": ["x"]}\n{"input": "%s", "outputs": ["x"]}\n' "$(tokens q)" "$(tokens q | cut -c1-50)" >"$TMP/pads.jsonl"
expect 0 "$EVAL" tasks "$TMP/pads.jsonl" --model "$TMP/model" --self-retrieval --max-tokens 30 --answers "$TMP/plain"
expect 0 "$EVAL" tasks "$TMP/pads.jsonl" --model "$TMP/model" --self-retrieval --max-tokens 30 --answers "$TMP/padded" --align
[ "$(head -1 "$TMP/plain")" = "$(head -1 "$TMP/padded")" ] || die "pads before a prompt that needs none"
[ "$(tail -1 "$TMP/plain")" != "$(tail -1 "$TMP/padded")" ] || die "no pads before a prompt that needs some"

# A Base LM has no queries: pads are refused, and nothing retrieves a needle.
tiny_base "$TMP/base"
expect_error "which has no queries" "$EVAL" tasks "$TMP/pads.jsonl" --model "$TMP/base" --align
expect 0 "$EVAL" niah --data "$TMP/text.jsonl" --model "$TMP/base" --context 256 --trials 1 --json
out_has '"retrieved": 0'

# Wrong options are refused before a model is read.
niah() { "$EVAL" niah --data "$TMP/text.jsonl" --model "$TMP/model" "$@"; }
expect_usage "--data FILE is missing" "$EVAL" niah
expect_usage "--tasks takes" niah --tasks hay
expect_usage "--context takes" niah --context 4Q
expect_usage "--context: each number must be greater" niah --context 4K,1K
expect_usage "as many as --context" niah --context 1K,4K,8K --trials 3,2
expect_usage "--trials takes" niah --trials 3x
expect_usage "--plot FILE ends in .svg" niah --plot p.png
expect_usage "needs --wording ruler" niah --write "$TMP/x.jsonl"
expect_usage "run no model" niah --write "$TMP/x.u32" --self-retrieval
expect_usage "one kind of retrieval" niah --self-retrieval --corpus-retrieval --store "$TMP/s"

# Samples of every task, with the model's own past, and the picture.
expect 0 niah --self-retrieval --context 512,1K --trials 3 --tasks single,multi-key,multi-value,two-hop --heat-map "$TMP/map.svg"
[ "$(grep -c '^\(single\|multi-key\|multi-value\|two-hop\) ' "$OUT")" = 8 ] || die "a row for each task and context"
grep -q '</svg>' "$TMP/map.svg" || die "the map is not whole"
! command -v xmllint >/dev/null || xmllint --noout "$TMP/map.svg" || die "the map is no XML"
expect 0 niah --json --context 512 --trials 2
out_has '"one_id": '
out_has '"retrieved": 0'

# A query of a text of four chunks reads them all, one of eight chunks reads four. Trials are counted by context.
expect 0 niah --self-retrieval --context 256,512 --trials 3,5 --json --answers "$TMP/needles.jsonl" --plot "$TMP/cost.svg"
out_has '"retrieved": 3'
[ "$(wc -l <"$TMP/needles.jsonl")" = 8 ] || die "a line for each sample"
! command -v xmllint >/dev/null || xmllint --noout "$TMP/cost.svg" || die "the plot is no XML"
grep -q 'microseconds a token' "$TMP/cost.svg" || die "the plot has no title"
! command -v python3 >/dev/null || python3 - "$TMP/needles.jsonl" "$OUT" <<'P' || die "retrieved is not what was read"
import json, sys
rows = json.load(open(sys.argv[2]))["rows"]
samples = [json.loads(line) for line in open(sys.argv[1])]
for s in samples:
    needed = {i // 63 for begin, end in s["values"] for i in range(begin, end)}
    assert s["retrieved"] == (needed <= set(s["read"])), s
    assert s["found"] == (s["answer"] == s["likeliest"]), s
    assert len(s["read"]) == min(4, s["tokens"] // 63 - 1) and len(s["answer"]) == 5, s
assert [r["retrieved"] for r in rows] == [sum(s["retrieved"] for s in part) for part in (samples[:3], samples[3:])]
# landmarks of 32 float32 and 63 ids of 16 bits for each chunk
assert [r["past_bytes"] for r in rows] == [c * (32 * 4 + 63 * 2) for c in (4, 8)], rows
P

# With an overlap the own past is read in passages, too; of 4 neighbours none extends beyond what a query sees.
expect 0 niah --self-retrieval --context 512 --trials 4 --continuation 1 --overlap 31 --json --answers "$TMP/passages.jsonl"
! command -v python3 >/dev/null || python3 - "$TMP/passages.jsonl" <<'P' || die "passages of the own past"
import json, sys
samples = [json.loads(line) for line in open(sys.argv[1])]
for s in samples:
    read = [63 * c + o for c, o in zip(s["read"], s["offsets"])]
    assert len(set(read)) == 4 and max(read) + 63 <= s["tokens"] // 63 * 63 - 63, s
    ids = {i for at in read for i in range(at, at + 63)}
    assert s["retrieved"] == ({i for begin, end in s["values"] for i in range(begin, end)} <= ids), s
assert any(32 in s["offsets"] for s in samples)
P
expect_usage "--searcher, --exact" niah --self-retrieval --continuation 1
# drt-generate shows the text of a passage: 63 tokens from its position on.
if command -v python3 >/dev/null; then
    head -c 500 "$TMP/text.jsonl" | tr -d '"{}\\' >"$TMP/prompt"
    expect 0 "$BIN/drt-generate" --model "$TMP/model" -f "$TMP/prompt" -n 1 --greedy --self-retrieval --continuation 1 --overlap 31 --trace "$TMP/trace.jsonl"
    python3 - "$TMP/trace.jsonl" "$TMP/prompt" <<'P' || die "text of a passage"
import json, sys
text = open(sys.argv[2]).read()
hits = [h for line in open(sys.argv[1]) for g in json.loads(line)["groups"] for h in g["retrieved"]]
assert any(h["offset"] % 63 for h in hits), hits
assert all(h["text"] in text for h in hits), hits
P
fi

# Values count in any order, each a quarter of a sample's four.
expect 0 niah --self-retrieval --context 512 --trials 3 --tasks multi-value --json --answers "$TMP/values.jsonl"
! command -v python3 >/dev/null || python3 - "$TMP/values.jsonl" "$OUT" <<'P' || die "values"
import json, sys
samples = [json.loads(line) for line in open(sys.argv[1])]
assert all(s["values_found"] in (0, 0.25, 0.5, 0.75, 1) and (s["values_found"] == 1 or not s["found"]) for s in samples)
assert abs(json.load(open(sys.argv[2]))["rows"][0]["values"] - sum(s["values_found"] for s in samples) / 3) < 1e-9
P

# Samples in RULER's layout can be read by drt-eval tasks.
expect 0 niah --wording ruler --context 1K --trials 2 --tasks multi-value,two-hop --write "$TMP/w.jsonl"
expect 0 "$EVAL" tasks "$TMP/w.jsonl" --model "$TMP/model" --max-tokens 2 --json
out_has '"samples": 4'

# A model that was trained on one sample knows its answer, and not those of other seeds.
expect 0 niah --context 256 --trials 1 --seed 5 --write "$TMP/one.u32"
model=$(sed 's/"chunk_id"/"mask_id": 267, "chunk_id"/' "$TINY/config.json")
cat >"$TMP/config.json" <<END
{"model": $model, "tokenizer": "$TINY/tokenizer.json", "data": ["$TMP/one.u32"], "valid": ["$TMP/one.u32"],
 "sequences": 4, "length": 126, "steps": 800, "warmup": 5, "lr": 0.01, "pool": "none", "save_every": 800, "eval_every": 800, "eval_windows": 1}
END
expect 0 "$BIN/drt-train" --device cpu --threads 2 --config "$TMP/config.json" --out "$TMP/run"
expect 0 "$EVAL" niah --data "$TMP/text.jsonl" --model "$TMP/run/checkpoints/step-800" --context 256 --trials 1 --seed 5 --json
out_has '"found": 1'
out_has '"one_id": 1'
out_has '"values": 1,'
expect 0 "$EVAL" niah --data "$TMP/text.jsonl" --model "$TMP/run/checkpoints/step-800" --context 256 --trials 4 --seed 6 --json
out_has '"found": 0'

# With a loss on answers alone a quarter of the steps suffices, since the text around a needle is not learnt.
sed 's/"length": 126, "steps": 800/"samples": true, "length": 315, "steps": 200/; s/800/200/g' "$TMP/config.json" >"$TMP/answers.json"
expect 0 "$BIN/drt-train" --device cpu --threads 2 --config "$TMP/answers.json" --out "$TMP/answered"
expect 0 "$EVAL" niah --data "$TMP/text.jsonl" --model "$TMP/answered/checkpoints/step-200" --context 256 --trials 1 --seed 5 --json
out_has '"found": 1'

# Needles in a store: their documents are added to a store of other text, and the search finds them there.
needs drt-index
tiny_store "$TMP/store" "$TMP/model" "$TMP/text.jsonl"
expect 0 niah --trials 3 --context 512 --write-documents "$TMP/needles.u32"
expect 0 "$BIN/drt-index" add "$TMP/needles.u32" --store "$TMP/store" --model "$TMP/model"
expect 0 niah --trials 3 --context 512 --store "$TMP/store" --corpus-retrieval
out_has "single "

# By words: the key's random ids are those of few chunks. Options of a search need a store.
expect 0 niah --tasks multi-key --trials 8 --seed 7 --context 512 --write-documents "$TMP/keys.u32"
expect 0 "$BIN/drt-index" add "$TMP/keys.u32" --store "$TMP/store" --model "$TMP/model"
for searcher in landmark hybrid lexical; do
    expect 0 niah --tasks multi-key --trials 8 --seed 7 --context 512 --store "$TMP/store" --corpus-retrieval --searcher $searcher --json
done
[ "$(json_int "$OUT" retrieved)" -ge 5 ] || die "words retrieved few of 8 keys: $(grep retrieved "$OUT")"
expect 0 niah --tasks multi-key --trials 8 --seed 7 --context 512 --store "$TMP/store" --corpus-retrieval --searcher lexical --continuation 1 --json
same "$(json_int "$OUT" retrieved)" 8 "with the chunk after each, a value beyond the end of its key's chunk is retrieved, too"
# With an overlap a value beyond the end of its key's chunk is in one neighbour with the key.
expect 0 niah --tasks multi-key --trials 8 --seed 7 --context 512 --store "$TMP/store" --corpus-retrieval --searcher lexical --query-tokens 64 \
    --continuation 1 --overlap 31 --json --answers "$TMP/overlap.jsonl"
same "$(json_int "$OUT" retrieved)" 8 "the same with an overlap"
! command -v python3 >/dev/null || python3 - "$TMP/overlap.jsonl" <<'P' || die "offsets of overlapping continuations"
import json, sys
samples = [json.loads(line) for line in open(sys.argv[1])]
assert all(len(s["offsets"]) == len(s["read"]) and set(s["offsets"]) <= {0, 32} for s in samples), samples
assert any(32 in s["offsets"] for s in samples)
P
expect_usage "give --continuation, too" niah --store "$TMP/store" --corpus-retrieval --overlap 31
expect_usage "give --searcher lexical or hybrid" niah --store "$TMP/store" --corpus-retrieval --query-tokens 16
expect_error "0 to 62" "$EVAL" niah --data "$TMP/text.jsonl" --model "$TMP/model" --store "$TMP/store" --corpus-retrieval --continuation 1 --overlap 63
expect_usage "--searcher, --exact" niah --searcher lexical
expect_usage "scans no landmarks" niah --store "$TMP/store" --corpus-retrieval --searcher lexical --exact

# In a store of one document, the chunks that are read tell whether its value is among them.
expect 0 niah --trials 1 --context 512 --write-documents "$TMP/one-needle.u32"
expect 0 "$BIN/drt-index" build "$TMP/one-needle.u32" --out "$TMP/needle-store" --model "$TMP/model"
expect 0 niah --trials 1 --context 512 --store "$TMP/needle-store" --corpus-retrieval --exact --answers "$TMP/stored.jsonl"
! command -v python3 >/dev/null || python3 - "$TMP/stored.jsonl" <<'P' || die "retrieved is not what was read of the store"
import json, sys
s = json.loads(open(sys.argv[1]).readline())
needed = {i // 63 for begin, end in s["values"] for i in range(begin, end)}
assert len(s["read"]) == 4 and s["retrieved"] == (needed <= set(s["read"])), s
P
