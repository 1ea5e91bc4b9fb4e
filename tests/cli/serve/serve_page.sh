#!/usr/bin/env bash
# The page at / in headless Chromium, with a corpus that tries to run scripts: page.py has the checks.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
command -v chromium >/dev/null || skip "chromium is not installed"
command -v python3 >/dev/null || skip "python3 is not installed"
tiny_model "$TMP/model"
hostile='<script>hacked=1</script><img src=x onerror=hacked=1>'  # shorter than a chunk: every chunk has a part of it
for i in $(seq 6); do
    printf '{"id": "<img src=x onerror=hacked=1> %d", "text": "%s"}\n' "$i" "$(for k in $(seq 12); do printf 'hostile %d%d %s ' "$i" "$k" "$hostile"; done)"
done >"$TMP/corpus.jsonl"
tiny_store "$TMP/store" "$TMP/model" "$TMP/corpus.jsonl"
serve_start --model "$TMP/model" --store "$TMP/store"
mkdir -p "${SCREENSHOTS:=$TMP/screenshots}"
timeout 150 python3 "$SOURCE/tests/cli/serve/page.py" "$URL" "$SCREENSHOTS" || die "the page"
for i in $(seq 100); do                                  # the stopped stream's session ends
    [ "$(metric drt_cancelled_total)" -ge 1 ] && break
    sleep 0.1
done
[ "$(metric drt_cancelled_total)" -ge 1 ] || die "a stream that was stopped in the page is not cancelled"
serve_stop
exit 0
