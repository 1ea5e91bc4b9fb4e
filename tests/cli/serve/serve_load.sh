#!/usr/bin/env bash
# 32 clients at once, one request in ten cut off or malformed: every answer equals the one without load, and the memory stays flat.
# serve_load.sh [REQUESTS [MODEL STORE [OPTIONS OF load.py...]]]: 400 by default. There are fewer sessions than clients and two batches in a
# round, so that some requests wait and the batches change. Environment: SESSIONS, BATCH, SAMPLE_THREADS, SECONDS_MAX (of the load), GROWTH
# (MiB resident: sessions that are used again map their memory as their texts get longer).
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
command -v python3 >/dev/null || skip "python3 is not installed"
model=${2:-$TMP/model} store=${3:-$TMP/store}
if [ $# -lt 3 ]; then
    tiny_model "$model"
    corpus "$TMP/corpus.jsonl" 40 150
    tiny_store "$store" "$model" "$TMP/corpus.jsonl"
fi
# A sanitizer keeps freed memory for a while, so resident memory cannot be checked.
growth=${GROWTH:-12}
grep -qE '__(asan|tsan)_init' "$SERVE" && growth=0
serve_start --model "$model" --store "$store" --sessions "${SESSIONS:-24}" --batch "${BATCH:-16}" --sample-threads "${SAMPLE_THREADS:-3}"
expect 0 timeout "${SECONDS_MAX:-200}" python3 "$SOURCE/tests/cli/serve/load.py" "$URL" --requests "${1:-400}" --max-growth $growth --min-batch 3 "${@:4}"
cat "$OUT"
ask 200 /health
serve_stop
! grep -qE 'runtime error|Sanitizer' "$TMP/log" || { cat "$TMP/log" >&2; die "a sanitizer complains"; }
exit 0
