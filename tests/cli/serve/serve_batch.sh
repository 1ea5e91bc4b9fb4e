#!/usr/bin/env bash
# Sessions in one batch have the answers, log-probabilities and provenance that each has alone, also those that join later and those beside
# a client that leaves; --batch bounds the batches, and 1 turns them off. Some servers sample a batch with several threads, as on a GPU.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
command -v python3 >/dev/null || skip "python3 is not installed"
expect_usage "--batch 0: must be between 1 and 64" "$SERVE" --batch 0
expect_usage "--sample-threads -1: must be between 0 and 256" "$SERVE" --sample-threads -1
tiny_model "$TMP/model"
corpus "$TMP/corpus.jsonl" 40 150
tiny_store "$TMP/store" "$TMP/model" "$TMP/corpus.jsonl"
corpus "$TMP/fit.jsonl" 4 65 100
expect 0 "$EVAL" fit-memory --model "$TMP/model" --data "$TMP/fit.jsonl" --context 252 --skip 64 --store "$TMP/store" --memory own,corpus,both --memory-k 4 \
    --memory-every 16 --out "$TMP/model/memory.json"
for batch in 1 3 63 64; do
    serve_start --model "$TMP/model" --store "$TMP/store" --sessions 6 --batch $batch --sample-threads $((batch % 8 + 1)) $([ $batch != 63 ] || echo --same-answers)
    expect 0 timeout 100 python3 "$SOURCE/tests/cli/serve/batch.py" "$URL" "$batch" "$TMP/answers"
    cat "$OUT"
    serve_stop
done
exit 0
