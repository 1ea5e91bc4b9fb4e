#!/usr/bin/env bash
# drt-index worker --listen: drt-index search, drt-eval, drt-generate and drt-serve give the same results with --workers as alone; a worker
# that is killed, stopped, answers wrongly, or is of another store or slice is one error line.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
needs drt-eval drt-generate drt-serve
command -v python3 >/dev/null || skip "python3 is missing"
command -v curl >/dev/null || skip "curl is not installed"
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 90 1
make_corpus "$TMP/b.jsonl" 60 2
make_corpus "$TMP/valid.jsonl" 12 3
s=$TMP/store
model=(--model "$TMP/model" --threads 1)
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$s" --index IVF4,SQ8 --lexical on --shard-chunks 40 "${model[@]}"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$s" --shard-chunks 40 "${model[@]}"
expect 0 "$INDEX" delete --store "$s" --document 5 --document 100

# ---- workers
pids=()
end_all() {
    kill -KILL "${pids[@]}" 2>/dev/null
    wait
    rm -rf "$TMP"
}
trap end_all EXIT
# listen NAME STORE i/N [OPTIONS...]: sets PORT and PID.
listen() {
    local i
    rm -f "$TMP/port.$1"
    "$INDEX" worker --store "$2" --slice "$3" --listen "127.0.0.1:${at:-0}" --port-file "$TMP/port.$1" --threads 1 "${@:4}" 2>"$TMP/log.$1" </dev/null &
    PID=$!
    pids+=("$PID")
    for ((i = 0; i < 300; i++)); do
        [ -s "$TMP/port.$1" ] && break
        kill -0 $PID 2>/dev/null || die "worker $1 ended: $(cat "$TMP/log.$1")"
        sleep 0.05
    done
    PORT=$(cat "$TMP/port.$1") || die "worker $1 does not listen"
}
listen a "$s" 1/3; one=127.0.0.1:$PORT
listen b "$s" 2/3; two=127.0.0.1:$PORT two_pid=$PID
listen c "$s" 3/3; three=localhost:$PORT
by=(--workers "$one,$two,$three")

# ---- the same results
bare() { sed -E 's/"searched_by":"[^"]*",?//g; s/, 3 workers//g'; }
python3 - "$TMP/q.txt" <<'PY'
import random, sys
random.seed(4)
words = "the river and stone winding north other sand ring on table under seven lights of a harbour".split()
open(sys.argv[1], "w").writelines(" ".join(random.choice(words) for _ in range(70)) + "\n" for _ in range(300))
PY
n=300 # several batches of queries; then a few for each other search
for how in "--exact --k 9" "--k 5 --nprobe 1" "--k 20" "--searcher hybrid --k 6" "--searcher hybrid --exact --k 6"; do
    head -n $n "$TMP/q.txt" >"$TMP/some.txt"
    "$INDEX" search --queries "$TMP/some.txt" --store "$s" "${model[@]}" --json $how 2>"$ERR" | bare >"$TMP/alone"
    [ "$(wc -l <"$TMP/alone")" = $n ] || die "one process answered $(wc -l <"$TMP/alone") of $n queries ($how)"
    "$INDEX" search --queries "$TMP/some.txt" --store "$s" "${model[@]}" --json $how "${by[@]}" 2>"$ERR" | bare | cmp -s - "$TMP/alone" || die "the workers find something else ($how)"
    err_has ", 3 workers"
    n=50
done
# agrees COMMAND...: its standard output, with and without workers; timings and names of searches aside.
agrees() {
    expect 0 "$@"
    bare <"$OUT" >"$TMP/alone"
    expect 0 "$@" "${by[@]}"
    bare <"$OUT" | cmp -s - "$TMP/alone" || { diff <(bare <"$OUT") "$TMP/alone" | head -5 >&2; die "the workers give something else: $*"; }
    [ -s "$TMP/alone" ] || die "nothing was printed: $*"
}
ppl=("$BIN/drt-eval" ppl --data "$TMP/valid.jsonl" --context 504 --skip 64 --store "$s" "${model[@]}" --json)
agrees "${ppl[@]}" --modes none,corpus,both
grep -qF ', 3 workers' "$OUT" || die "drt-eval ppl does not name the workers"
agrees "${ppl[@]}" --corpus-retrieval --nprobe 1 --exact-fallback
agrees "${ppl[@]}" --corpus-retrieval --searcher hybrid
agrees "${ppl[@]}" --modes none --memory corpus,both --memory-searcher landmark --memory-k 4 --memory-every 16
agrees "$BIN/drt-eval" fit-memory --data "$TMP/valid.jsonl" --context 504 --skip 64 --store "$s" "${model[@]}" --memory corpus --memory-searcher hybrid \
    --memory-k 4 --memory-every 16 --json --out "$TMP/memory.json"
agrees "$BIN/drt-generate" --prompt "$(head -n 1 "$TMP/q.txt")" --max-tokens 130 --greedy --ignore-eos --store "$s" --corpus-retrieval "${model[@]}"
agrees "$BIN/drt-generate" --prompt "$(head -n 1 "$TMP/q.txt")" --max-tokens 40 --greedy --ignore-eos --store "$s" --memory corpus --memory-searcher landmark "${model[@]}"

expect 0 "${ppl[@]}" --modes none --memory corpus --memory-k 4 --memory-every 16 "${by[@]}"
err_has "by words, which this process does without the workers"

# ---- a server, whose worker is killed and restarted
serve() { # NAME [OPTIONS...]: sets URL and PID
    rm -f "$TMP/port.$1"
    "$BIN/drt-serve" --port 0 --port-file "$TMP/port.$1" --store "$s" "${model[@]}" --retrieval corpus "${@:2}" 2>"$TMP/log.$1" </dev/null &
    PID=$!
    pids+=("$PID")
    local i
    for ((i = 0; i < 300; i++)); do [ -s "$TMP/port.$1" ] && break; sleep 0.1; done
    URL=http://127.0.0.1:$(cat "$TMP/port.$1") || die "drt-serve does not start: $(cat "$TMP/log.$1")"
}
ask() { curl -sS -m 60 -o "$OUT" -w '%{http_code}' -d "$2" "$URL$1" 2>"$ERR" >"$TMP/code" || die "curl: $(cat "$ERR")"; }
body='{"prompt": "'$(head -n 1 "$TMP/q.txt")'", "max_tokens": 70, "temperature": 0, "ignore_eos": true}'
answers() { # all results of a server
    local kind
    ask /v1/completions "$body"
    grep -o '"text":"[^"]*"' "$OUT"
    for kind in landmark lexical hybrid; do
        ask /search '{"text": "'"$(head -n 1 "$TMP/q.txt")"'", "k": 7, "searcher": "'$kind'"}'
        same 200 "$(cat "$TMP/code")" "status of a $kind search: $(cat "$OUT")" >&2
        bare <"$OUT" | sed -E 's/"[a-z_]*(ms|seconds)":[0-9.e-]+,?//g'
    done
}
serve alone
answers >"$TMP/alone"
[ "$(wc -c <"$TMP/alone")" -gt 2000 ] || die "the server found little: $(cat "$TMP/alone")"
kill $PID
serve several "${by[@]}" --worker-timeout 20
serve_pid=$PID
answers | cmp -s - "$TMP/alone" || die "drt-serve --workers answers something else"
search='{"text": "the river and the harbour", "k": 3}'
kill -KILL $two_pid
ask /search "$search"
same 500 "$(cat "$TMP/code")" "status without a worker"
out_has "worker 2 of 3 ($two): Connection refused; start drt-index worker --listen there"
ask /search '{"text": "the river and the harbour", "k": 3, "searcher": "lexical"}'
same 200 "$(cat "$TMP/code")" "status of a search by words, which needs no worker"
at=${two#*:} listen b "$s" 2/3
two_pid=$PID
ask /search "$search"
same 200 "$(cat "$TMP/code")" "status with the worker back"
kill -TERM $two_pid                     # between two searches: the next one connects again
wait $two_pid || die "a worker left with $? after SIGTERM"
grep -q "stopped" "$TMP/log.b" || die "a worker does not say that it stopped"
at=${two#*:} listen b "$s" 2/3
two_pid=$PID
ask /search "$search"
same 200 "$(cat "$TMP/code")" "status after a worker was replaced"
kill $serve_pid
wait $serve_pid || die "drt-serve left with $?"

# ---- failures: one line, no hang
lost() { # TEXT WORKERS [OPTIONS...]
    local begin=$SECONDS code=0
    timeout 60 "$INDEX" search "the river" --store "$s" "${model[@]}" --workers "$2" "${@:3}" >"$OUT" 2>"$ERR" || code=$?
    same 1 $code "exit code with --workers $2"
    tail -n 1 "$ERR" | grep -q "^drt-index: " && tail -n 1 "$ERR" | grep -qF -- "$1" || die "the last line lacks \"$1\": --workers $2"
    [ "$(grep -c '^drt-index: ' "$ERR")" = 1 ] || die "more than one error line: --workers $2"
    [ $((SECONDS - begin)) -lt 30 ] || die "it hung for $((SECONDS - begin)) seconds: --workers $2"
}
lost "worker 2 of 3 ($one) has slice 1/3: give the workers in the order of slices" "$one,$one,$three"
lost "worker 3 of 3 ($two) has slice 2/3" "$one,$two,$two"
lost "worker 1 of 2 ($one) has slice 1/3" "$one,$two"
lost "worker 1 of 3 ($three) has slice 3/3" "$three,$two,$one"
lost 'worker "nowhere": an address is HOST:PORT' "$one,nowhere,$three"
lost "worker 2 of 3 (127.0.0.1:1): Connection refused" "$one,127.0.0.1:1,$three"
cp -r "$s" "$TMP/newer"
expect 0 "$INDEX" delete --store "$TMP/newer" --document 9
listen newer "$TMP/newer" 2/3
lost "run the search again, or search a snapshot" "$one,127.0.0.1:$PORT,$three"
expect 0 "$INDEX" build "$TMP/b.jsonl" --out "$TMP/other" "${model[@]}"
sed 's/number/nombre/' "$TMP/b.jsonl" >"$TMP/d.jsonl"
expect 0 "$INDEX" build "$TMP/d.jsonl" --out "$TMP/alike" "${model[@]}"
listen other "$TMP/other" 1/1
own=$s s=$TMP/alike
lost "of other text, another model or another index" "127.0.0.1:$PORT"
s=$own
# Other programs at a worker's address: one that answers noise, one that accepts connections and answers nothing.
python3 - "$TMP/noise" "$TMP/silent" <<'PY' &
import os, socket, sys, threading
def server(path, answer):
    listener = socket.create_server(("127.0.0.1", 0))
    with open(path + ".new", "w") as f: f.write(str(listener.getsockname()[1]))
    os.rename(path + ".new", path)
    kept = []
    while True:
        c, _ = listener.accept()
        if answer: c.sendall(answer)
        kept.append(c)
threading.Thread(target=server, args=(sys.argv[1], b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" * 4)).start()
server(sys.argv[2], b"")
PY
pids+=($!)
for ((i = 0; i < 100; i++)); do [ -s "$TMP/noise" ] && [ -s "$TMP/silent" ] && break; sleep 0.1; done
lost "worker 2 of 3 (127.0.0.1:$(cat "$TMP/noise")) does not speak the protocol of this program" "$one,127.0.0.1:$(cat "$TMP/noise"),$three"
lost "was lost: no answer in 1 seconds" "$one,127.0.0.1:$(cat "$TMP/silent"),$three" --worker-timeout 1
# A worker reports a client that does not speak its protocol, and continues.
curl -s -m 5 "http://$one/" >/dev/null && die "a worker speaks HTTP"
for ((i = 0; i < 50; i++)); do grep -q "speaks another protocol" "$TMP/log.a" && break; sleep 0.1; done
grep -q "connection from 127.0.0.1:[0-9]*: a connection that speaks another protocol" "$TMP/log.a" || die "no line about a strange connection"
# Killed and stopped between two searches of one program.
slow() {
    head -n 300 "$TMP/q.txt"
    for ((i = 0; i < 400; i++)); do [ -e "$TMP/hit" ] && break; sleep 0.1; done
    cat "$TMP/q.txt"
}
hit() { # SIGNAL, after a hundred lines of hits
    for ((i = 0; i < 300; i++)); do [ "$(wc -l <"$OUT")" -gt 100 ] && break; sleep 0.1; done
    kill -$1 $two_pid
    touch "$TMP/hit"
}
for signal in KILL STOP; do
    code=0
    rm -f "$TMP/hit"
    : >"$OUT"
    mkfifo "$TMP/pipe.$signal"
    slow >"$TMP/pipe.$signal" &
    hit $signal &
    timeout 100 "$INDEX" search --queries - --store "$s" "${model[@]}" --worker-timeout 3 "${by[@]}" <"$TMP/pipe.$signal" >"$OUT" 2>"$ERR" || code=$?
    same 1 $code "exit code after SIG$signal of a worker"
    tail -n 1 "$ERR" | grep -qE "^drt-index: worker 2 of 3 \($two\)( was lost: no answer|: Connection refused)" || die "SIG$signal of a worker: another message"
    [ "$(wc -l <"$OUT")" -gt 100 ] || die "SIG$signal: no query was answered before it"
    [ $signal = STOP ] || { at=${two#*:} listen b "$s" 2/3; two_pid=$PID; }
done
kill -CONT $two_pid

# ---- keys
echo "a key of sixteen bytes or more" >"$TMP/key"
echo "another key, as long as that" >"$TMP/wrong"
chmod 600 "$TMP/key" "$TMP/wrong"
listen key "$s" 1/1 --api-key-file "$TMP/key"
lost "this is another: give --worker-key-file" "127.0.0.1:$PORT"
lost "this is another: give --worker-key-file" "127.0.0.1:$PORT" --worker-key-file "$TMP/wrong"
expect 0 "$INDEX" search "the river" --store "$s" "${model[@]}" --workers "127.0.0.1:$PORT" --worker-key-file "$TMP/key"
chmod 644 "$TMP/wrong"
lost "others can read this key" "127.0.0.1:$PORT" --worker-key-file "$TMP/wrong"

expect_usage "open to other machines: give --api-key-file" "$INDEX" worker --store "$s" --slice 1/2 --listen 0.0.0.0:0
expect_usage "a worker listens at IP:PORT" "$INDEX" worker --store "$s" --slice 1/2 --listen localhost:0
expect_usage "need --listen" "$INDEX" worker --store "$s" --slice 1/2 --port-file x
expect_usage "a number from 1 to 1024, or HOST:PORT" "$INDEX" search x --store "$s" --workers 2000
expect_usage "need --workers" "$BIN/drt-generate" --store "$s" --corpus-retrieval --worker-timeout 3
expect_usage "--workers search a store" "$BIN/drt-generate" --workers "$one"
expect_usage "--workers search a store" "$BIN/drt-eval" ppl --data "$TMP/valid.jsonl" --workers "$one"
expect_usage "--workers search a store" "$BIN/drt-serve" --workers "$one"
expect_usage "leave out the workers" "$BIN/drt-generate" --store "$s" --corpus-retrieval --searcher lexical --workers "$one"
expect_error "no store here" "$INDEX" worker --store "$TMP/none" --slice 1/2 --listen 127.0.0.1:0
expect_error "another program listens there" "$INDEX" worker --store "$s" --slice 1/2 --listen "$one"
echo ok
