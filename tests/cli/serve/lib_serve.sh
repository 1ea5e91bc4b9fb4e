# lib_serve.sh -- shared by the drt-serve scripts: a server on a free port of loopback, which is stopped when the script ends.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_model.sh" || exit 1
SERVE=$BIN/drt-serve
needs drt-serve drt-index drt-generate
command -v curl >/dev/null || skip "curl is not installed"
SERVE_PID=

# serve_start OPTIONS...: sets URL, PORT and SERVE_PID; the log is $TMP/log.
serve_start() {
    local i
    rm -f "$TMP/port"
    "$SERVE" --port 0 --port-file "$TMP/port" --threads 2 --log-json "$@" 2>"$TMP/log" &
    SERVE_PID=$!
    for ((i = 0; i < 600; i++)); do
        [ -s "$TMP/port" ] && break
        kill -0 "$SERVE_PID" 2>/dev/null || { cat "$TMP/log" >&2; die "drt-serve ended at once"; }
        sleep 0.1
    done
    PORT=$(cat "$TMP/port") || die "drt-serve did not start in a minute"
    URL=http://127.0.0.1:$PORT
}
# log_whole: each line of the log is an object of docs/logs.md; requests have all members.
log_whole() {
    command -v python3 >/dev/null || return 0
    python3 - "$TMP/log" <<'P' || die "the log is wrong"
import json, sys
for line in open(sys.argv[1], encoding="utf-8"):
    o = json.loads(line)
    assert o["time"].endswith("Z") and o["level"] in ("info", "warning", "error") and o["program"] == "drt-serve", line
    if o["event"] == "request":
        assert 0 <= o["status"] < 600 and o["ms"] >= 0 and o["bytes"] >= 0 and "?" not in o["path"], line
        assert o["complete"] in (True, False) and (o["level"] == "error") == (o["status"] >= 500), line
        if o["path"] == "/v1/completions" and o["status"] == 200 and o["complete"]:
            assert o["queue_ms"] <= o["ms"] and o["prompt_tokens"] >= 1 and o["tokens"] >= 0, line
    else:
        assert o["event"] in ("started", "stopping", "stopped", "message") and o["message"], line
P
}
# serve_stop [CODE]: SIGTERM, and its exit code.
serve_stop() {
    local code=0
    kill -TERM "$SERVE_PID" 2>/dev/null || die "the server has ended already: $(tail -n 3 "$TMP/log")"
    wait "$SERVE_PID" || code=$?
    SERVE_PID=
    [ "$code" = "${1:-0}" ] || { tail -n 30 "$TMP/log" >&2; die "drt-serve left with $code"; }
    log_whole
}
serve_end() {
    [ -z "$SERVE_PID" ] || { kill -KILL "$SERVE_PID"; wait "$SERVE_PID"; } 2>/dev/null
    rm -rf "$TMP"
}
trap serve_end EXIT

# ask STATUS PATH [BODY [CURL OPTIONS...]]: the body of the answer is in $OUT, its headers in $TMP/headers.
ask() {
    local want=$1 path=$2 got
    local -a data=()
    [ $# -lt 3 ] || data=(--data-binary "$3")
    got=$(curl -sS -m 60 -o "$OUT" -D "$TMP/headers" -w '%{http_code}' "${data[@]}" "${@:4}" "$URL$path" 2>"$ERR")
    [ "$got" = "$want" ] || die "$path ${3:-}: status $got, wanted $want"
}
header_has() { grep -qiF -- "$1" "$TMP/headers" || { cat "$TMP/headers" >&2; die "the answer lacks the header \"$1\""; }; }
# text_of: the texts of all events or choices in $OUT, joined.
text_of() { grep -o '"text":"\([^"\\]\|\\.\)*"' "$OUT" | sed 's/^"text":"//; s/"$//' | tr -d '\n'; }
metric() { curl -sS -m 10 "$URL/metrics" | awk -v name="$1" '$1 == name { print $2 }'; }
