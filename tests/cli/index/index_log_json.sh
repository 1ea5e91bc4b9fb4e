#!/usr/bin/env bash
# --log-json: every line on standard error is a JSON object with time, level, program and event, for each command with the option, also
# after a failure, wrong usage, a stop, or findings; standard output is the same.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
command -v python3 >/dev/null || skip "python3 is missing"
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 80 1
make_corpus "$TMP/b.jsonl" 40 2
make_corpus "$TMP/c.jsonl" 20 3
model=(--model "$TMP/model" --threads 1)

# log_is EVENTS: every line of $ERR is an object; the different events, sorted, are these, and optionally "progress".
log_is() {
    python3 - "$ERR" "$1" <<'P' || die "the log is wrong"
import datetime, json, sys
events = set()
with open(sys.argv[1], encoding="utf-8") as log:
    lines = log.read().split("\n")
assert lines.pop() == "", "the last line has no end"
last = None
for line in lines:
    o = json.loads(line)
    when = datetime.datetime.strptime(o["time"], "%Y-%m-%dT%H:%M:%S.%fZ")
    assert o["time"].endswith("Z") and abs((datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - when).total_seconds()) < 120, line
    assert last is None or last <= when, "times fall"
    last = when
    assert o["level"] in ("info", "warning", "error") and o["program"] == "drt-index", line
    if o["event"] == "progress":
        assert o["stage"] and o["unit"] and o["done"] >= 0 and (o["total"] is None or o["total"] >= 0), line
        assert o["seconds"] >= 0 and o["per_second"] >= 0, line
    assert o["event"] == "done" or "message" in o or o["event"] in ("progress", "start"), line
    events.add(o["event"])
got = " ".join(sorted(events - {"progress", "message", "note"}))
assert got == sys.argv[2], "events: %s, wanted %s" % (got, sys.argv[2])
P
}
# log_has 'PYTHON OF o': the expression is true for an object o.
log_has() {
    python3 -c 'import json, sys
sys.exit(not any(eval(sys.argv[2], {"o": json.loads(l)}) for l in open(sys.argv[1])))' "$ERR" "$1" || { cat "$ERR" >&2; die "no object with $1"; }
}

expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/plain" "${model[@]}"
sed 's/[0-9.]* s\b//g' "$OUT" >"$TMP/plain.out"
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/store" "${model[@]}" --log-json
log_is "done start"
log_has 'o["event"] == "start" and o["corpus"] == ["'"$TMP"'/a.jsonl"] and o["threads"] == 1'
log_has 'o["event"] == "progress" and o["stage"] == "encode" and o["done"] > 100'
sed 's/[0-9.]* s\b//g; s/store: generation/plain: generation/' "$OUT" | grep -v chunks/s >"$TMP/log.out"
grep -v chunks/s "$TMP/plain.out" | cmp -s - "$TMP/log.out" || { diff "$TMP/plain.out" "$TMP/log.out" >&2; die "the option changes standard output"; }
same_store "$TMP/plain" "$TMP/store"

expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/store" "${model[@]}" --log-json && log_is "done start"
expect 0 "$INDEX" update "$TMP/c.jsonl" --store "$TMP/store" "${model[@]}" --log-json && log_is "done start"
for part in 1 2; do
    expect 0 "$INDEX" build "$TMP/a.jsonl" --part $part/2 --out "$TMP/parts" "${model[@]}" --log-json && log_is "done start"
done
expect 0 "$INDEX" join "$TMP"/parts/* --out "$TMP/joined" --threads 1 --log-json && log_is "done start"
expect 0 "$INDEX" search "the river" --store "$TMP/store" "${model[@]}" --log-json && log_is "done start"
printf 'the river\nthe harbour\n' >"$TMP/queries.txt"
expect 0 "$INDEX" search --queries "$TMP/queries.txt" --store "$TMP/store" "${model[@]}" --log-json && log_is "done searched start"
expect 0 "$INDEX" recall --store "$TMP/store" --queries 20 --threads 1 --log-json && log_is "done start"
expect 0 "$INDEX" lexical --store "$TMP/store" --remove --log-json && log_is "done"
expect 0 "$INDEX" lexical --store "$TMP/store" --log-json && log_is "done"
expect 0 "$INDEX" delete --store "$TMP/store" --document 3 --json --log-json && log_is "done report"
expect 0 "$INDEX" drop --store "$TMP/joined" --shard 0 --json --threads 1 --log-json && log_is "done report start"
expect 0 "$INDEX" compact --store "$TMP/store" --out "$TMP/compact" --threads 1 --log-json && log_is "done"
expect 0 "$INDEX" freeze --store "$TMP/store" --out "$TMP/snap" --log-json && log_is "done"
expect 0 "$INDEX" verify --store "$TMP/store" --deep --log-json && log_is "done start"
log_has 'o["event"] == "progress" and o["stage"] == "verify shards" and o["done"] == o["total"] > 0'

# Damage: each problem is an object with file and remedy. Repair encodes the landmarks again.
landmarks=$(ls "$TMP"/store/landmarks/* | head -n 1)
printf X | dd of="$landmarks" bs=1 seek=500 conv=notrunc status=none
expect 1 "$INDEX" verify --store "$TMP/store" --deep --log-json && log_is "problem problems start"
log_has 'o["event"] == "problem" and o["level"] == "error" and o["file"].endswith("'"${landmarks##*/}"'") and "run drt-index" in o["remedy"]'
expect 0 "$INDEX" repair --store "$TMP/store" "${model[@]}" --log-json && log_is "done start"

# Failures name the file and the position.
expect 1 "$INDEX" verify --store "$TMP/none" --log-json && log_is "error start"
log_has 'o["event"] == "error" and o["status"] == "not found" and o["file"].startswith("'"$TMP"'/none")'
printf '{"text": "good"}\n{"text": 5}\n' >"$TMP/bad.jsonl"
expect 1 "$INDEX" build "$TMP/bad.jsonl" --out "$TMP/bad" "${model[@]}" --log-json && log_is "error start"
log_has 'o["event"] == "error" and o["file"] == "'"$TMP"'/bad.jsonl" and o["line"] == 2'
# Wrong usage, also before the option is parsed; names with control characters do not break a line.
expect 2 "$INDEX" verify --nonsense --log-json && log_is "usage"
expect 2 "$INDEX" verify --log-json && log_is "usage"
expect 2 "$INDEX" build --log-json --out "$TMP/x" && log_is "usage"
expect 1 "$INDEX" verify --store "$TMP/new"$'\n'"line \"quoted\" "$'\xff' --log-json && log_is "error start"
# A signal: an object in place of the line.
make_corpus "$TMP/large.jsonl" 4000 4
"$INDEX" build "$TMP/large.jsonl" --out "$TMP/large" "${model[@]}" --log-json >"$OUT" 2>"$ERR" &
pid=$!
for _ in $(seq 400); do grep -q '"event":"start"' "$ERR" && break; sleep 0.02; done
kill -INT $pid 2>/dev/null
code=0
wait $pid || code=$?
if [ $code = 1 ]; then
    log_is "error start stopping"
    log_has 'o["event"] == "error" and o["status"] == "interrupted"'
fi
exit 0
