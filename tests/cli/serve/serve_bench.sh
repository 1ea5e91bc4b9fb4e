#!/usr/bin/env bash
# bench_serve against a small server: every answer has its tokens, in streams and whole; the stages of /metrics add up to less than the time
# that has passed, and those that must have had work had some.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
BENCH=$BIN/../bench/bench_serve
[ -x "$BENCH" ] || skip "bench_serve was not built"
tiny_model "$TMP/model"
serve_start --model "$TMP/model" --sessions 4 --batch 4
for kind in stream whole both; do
    expect 0 timeout 100 "$BENCH" --port "$PORT" --clients 1,6 --requests 24 --tokens 400 --kind $kind
    grep -q '^serve,1 clients,.*,24 requests of 400 tokens,' "$OUT" && grep -q '^serve,6 clients,' "$OUT" || die "bench_serve --kind $kind printed: $(cat "$OUT")"
    grep -q '^# seconds of .* batch 0\..* batches of [0-4]\.' "$OUT" || die "no stages: $(cat "$OUT")"
done
curl -sS -m 10 "$URL/metrics" >"$OUT"
awk '$1 == "drt_uptime_seconds" { up = $2 }
     /^drt_stage_seconds_total/ { split($1, part, "\""); stage[part[2]] = $2; if (part[2] != "text") sum += $2 }
     END { exit !(sum > 0 && sum < up && stage["wait"] > 0 && stage["open"] > 0 && stage["prompt"] > 0 && stage["batch"] > 0 && stage["pick"] > 0 && stage["alone"] > 0 && stage["text"] > 0) }' "$OUT" ||
    die "the stages are wrong: $(grep -E 'stage|uptime' "$OUT")"
expect 1 timeout 100 "$BENCH" --port "$PORT" --clients 1 --requests 1 --tokens 100000
grep -q "not 200" "$ERR" || die "a refusal is not reported: $(cat "$ERR")"
serve_stop
exit 0
