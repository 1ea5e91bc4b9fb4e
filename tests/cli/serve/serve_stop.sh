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

# A request that has arrived when the signal comes is answered, also if nothing was read of it yet. The main thread of a stopped process does not
# wait for signals, so that another one takes the signal.
for _ in 1 2 3; do
    serve_start --model "$TMP/model"
    exec 3<>"/dev/tcp/127.0.0.1/$PORT"
    printf 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n' >&3
    IFS= read -r -t 20 line <&3 || die "no answer on a connection that is kept"
    kill -STOP "$SERVE_PID"
    printf 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n' >&3
    kill -TERM "$SERVE_PID"
    kill -CONT "$SERVE_PID"
    timeout 20 cat <&3 >"$TMP/late" 2>/dev/null
    exec 3>&-
    grep -qa 'HTTP/1.1 [25]0' "$TMP/late" || die "a request that had arrived is not answered"
    wait "$SERVE_PID" || die "drt-serve left with $?: a thread of a library took the signal"
    SERVE_PID=
    grep -q '"event":"stopped"' "$TMP/log" || die "the log lacks the end"
done

# A port in use and a missing key file are errors before the model is loaded.
expect_error "nowhere" "$SERVE" --model "$TMP/model" --api-key-file "$TMP/nowhere"
exit 0
