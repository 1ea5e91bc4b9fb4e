#!/usr/bin/env bash
# After SIGTERM running and waiting requests finish, and a second one ends them; the exit code is 0 both times, and the port is free at
# once.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
tiny_model "$TMP/model"
# long STREAM-FILE TOKENS: a stream in the background.
long() {
    curl -sS -N -m 100 -o "$1" -d "{\"prompt\": \"the river\", \"max_tokens\": $2, \"temperature\": 0, \"ignore_eos\": true, \"stream\": true}" "$URL/v1/completions" 2>"$ERR" &
    STREAMS+=($!)
}
# begun STREAM-FILE: its session runs, and its first event has come. waits N: so many requests wait for a session.
begun() { for _ in $(seq 600); do grep -q '^data: ' "$1" 2>/dev/null && return; sleep 0.05; done; die "$1 never begins"; }
waits() { for _ in $(seq 200); do [ "$(metric drt_queue_waiting)" = "$1" ] && return; sleep 0.05; done; die "$1 requests never wait"; }

STREAMS=()
serve_start --model "$TMP/model" --sessions 1 --max-tokens 1000000
long "$TMP/one" 3000
begun "$TMP/one"
long "$TMP/two" 20                                        # waits for the first one's session
for _ in $(seq 200); do [ "$(metric drt_queue_waiting)" = 1 ] && break; sleep 0.05; done # or the first one has ended
kill -TERM "$SERVE_PID"
for _ in $(seq 100); do grep -q '"event":"stopping"' "$TMP/log" && break; sleep 0.05; done
! curl -s -m 5 "$URL/health" >/dev/null || die "the port is open while the server stops"
wait "${STREAMS[@]}" || die "a stream was cut off"
wait "$SERVE_PID" || die "drt-serve left with $?"
SERVE_PID=
for f in one two; do same "$(tail -n 2 "$TMP/$f" | head -n 1)" "data: [DONE]" "the end of stream $f"; done
same "$(grep -c '"text":' "$TMP/one")" "$(grep -c '^data: {' "$TMP/one")"
grep -q '"event":"stopped"' "$TMP/log" || die "the log lacks the end"

STREAMS=()
serve_start --model "$TMP/model" --sessions 1 --max-tokens 1000000
long "$TMP/three" 1000000
begun "$TMP/three"
long "$TMP/four" 1000000
waits 1
kill -TERM "$SERVE_PID"
for _ in $(seq 100); do grep -q '"event":"stopping"' "$TMP/log" && break; sleep 0.05; done
kill -TERM "$SERVE_PID"
wait "$SERVE_PID" || die "drt-serve left with $? after two signals"
SERVE_PID=
wait "${STREAMS[@]}"
tail -n 2 "$TMP/three" | grep -q '^data: {"error":{"message":"the request was cancelled","type":"overloaded_error"' || die "the stream lacks its error"
grep -q '^{"error":{"message":"the request was cancelled"' "$TMP/four" || die "the request that waited lacks its error"

# A port in use and a missing key file are errors before the model is loaded.
expect_error "nowhere" "$SERVE" --model "$TMP/model" --api-key-file "$TMP/nowhere"
exit 0
