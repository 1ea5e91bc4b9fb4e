#!/usr/bin/env bash
# Slow, silent, excessive and wrong clients against short limits, then HTTP with random damage. serve_hostile.sh [MUTATIONS]
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
command -v python3 >/dev/null || skip "python3 is not installed"
tiny_model "$TMP/model"
corpus "$TMP/corpus.jsonl" 12 150
tiny_store "$TMP/store" "$TMP/model" "$TMP/corpus.jsonl"
serve_start --model "$TMP/model" --store "$TMP/store" --receive-seconds 2 --request-seconds 3 --connections 16 --sessions 1 --queue 2 --max-tokens 1000000
expect 0 timeout 200 python3 "$SOURCE/tests/cli/serve/hostile.py" "$URL" "${1:-300}"
cat "$OUT"
serve_stop
! grep -qE 'runtime error|Sanitizer' "$TMP/log" || { cat "$TMP/log" >&2; die "a sanitizer complains"; }
exit 0
