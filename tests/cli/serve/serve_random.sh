#!/usr/bin/env bash
# Random requests to every endpoint, valid and damaged: the answer of the idle server equals the one among other clients.
# serve_random.sh [REQUESTS [SEED [MODEL STORE]]]: 120 by default. Environment: SECONDS_MAX.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
command -v python3 >/dev/null || skip "python3 is not installed"
model=${3:-$TMP/model} store=${4:-$TMP/store}
if [ $# -lt 4 ]; then
    tiny_model "$model"
    corpus "$TMP/corpus.jsonl" 12 150
    tiny_store "$store" "$model" "$TMP/corpus.jsonl"
    corpus "$TMP/fit.jsonl" 4 65 100
    expect 0 "$EVAL" fit-memory --model "$model" --data "$TMP/fit.jsonl" --context 252 --skip 64 --store "$store" --memory own,corpus,both --memory-k 4 \
        --memory-every 16 --out "$model/memory.json"
fi
serve_start --model "$model" --store "$store" --sessions 6 --batch 4 --sample-threads 2 --prefill-chunks 1
expect 0 timeout "${SECONDS_MAX:-200}" python3 "$SOURCE/tests/cli/serve/random_requests.py" "$URL" --requests "${1:-120}" --seed "${2:-1}"
cat "$OUT"
serve_stop
! grep -qE 'runtime error|Sanitizer' "$TMP/log" || { cat "$TMP/log" >&2; die "a sanitizer complains"; }
exit 0
