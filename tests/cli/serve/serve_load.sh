#!/usr/bin/env bash
# 32 clients at once, one request in ten cut off or malformed: every answer equals the one without load, and the memory stays flat.
# serve_load.sh [REQUESTS]: 400, or as many as a measurement wants.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
command -v python3 >/dev/null || skip "python3 is not installed"
tiny_model "$TMP/model"
corpus "$TMP/corpus.jsonl" 40 150
tiny_store "$TMP/store" "$TMP/model" "$TMP/corpus.jsonl"
# Under a sanitizer freed memory is kept for a while, and resident memory says nothing.
growth=12
grep -qE '__(asan|tsan)_init' "$SERVE" && growth=0
serve_start --model "$TMP/model" --store "$TMP/store"
expect 0 timeout 200 python3 "$SOURCE/tests/cli/serve/load.py" "$URL" --requests "${1:-400}" --max-growth $growth
cat "$OUT"
ask 200 /health
serve_stop
! grep -qE 'runtime error|Sanitizer' "$TMP/log" || { cat "$TMP/log" >&2; die "a sanitizer complains"; }
exit 0
