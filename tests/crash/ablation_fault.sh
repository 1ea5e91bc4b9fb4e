#!/usr/bin/env bash
# drt-eval ablation is killed at each step that makes a part durable (its result, its record, the tables), one after the other in one run.
# The same command continues each time, nothing half-written becomes a result, and the table has the bytes of an uninterrupted run. Then the
# same with steps that fail: one line, exit code 1.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-eval-fault drt-index drt-train drt-tokenizer
cd "$TMP" || exit 1
for name in train valid other; do mkdir -p $name; done
split -C 6000 -d -a 2 --additional-suffix=.txt "$SOURCE/docs/model.md" train/
split -C 6000 -d -a 2 --additional-suffix=.txt "$SOURCE/docs/serve.md" valid/
split -C 6000 -d -a 2 --additional-suffix=.txt "$SOURCE/docs/tasks.md" other/
cat >config.json <<'END'
{"train": ["train"], "valid": ["valid"], "other": ["other"], "tokenizer": {"vocab_size": 600}, "device": "cpu", "threads": 1,
 "model": {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "decoder_layers": [1, 1], "encoder_layers": 1,
           "enc_chunk_size": 63, "chunk_topk": 2, "slide_window": 64, "rms_norm_eps": 1e-5, "encoder_input": "tokens"},
 "training": {"sequences": 1, "length": 252, "warmup": 2}, "budget": {"steps": 4},
 "score": {"context": 252, "skip": 64, "document_tokens": 50, "max_documents": 3}, "rows": ["drt-corpus", "k-4"]}
END
expect 0 "$EVAL" ablation config.json --out whole

# Every pass of one point, in one run: n counts within a command, so the last of them finish the run.
each() { # kill|fail POINT PASSES
    local n
    rm -rf run
    for n in $(seq "$3"); do
        faulty "$1" "$n:$2" "$EVAL-fault" ablation config.json --out run
        [ $1:$passed != fail:0 ] || tail -n 1 "$ERR" | grep -q "^drt-eval: .*injected fault" || die "$2 fails without a line"
        [ ! -e run/table.json ] || grep -q '"row": "base"' run/table.json || die "$1 at pass $n of $2: a table without a Base LM"
    done
    expect 0 "$EVAL" ablation config.json --out run
    cmp -s run/table.json whole/table.json || die "$1 at each pass of $2: another table"
    cmp -s run/table.html whole/table.html || die "$1 at each pass of $2: another page"
}
for point in ablation:publish ablation:renamed ablation:record; do
    each kill $point 14
    each fail $point 4
done
each kill file:before-rename 20
each kill file:after-rename 20
