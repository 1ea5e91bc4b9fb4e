#!/usr/bin/env bash
# drt-index search --workers and --worker: hits, order, ties and scores are those of one process, exact and with an index
# of several segments, with deleted documents and dropped shards; a worker that is lost, hangs or answers wrongly is one error line.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
command -v python3 >/dev/null || skip "python3 is missing"
make_model "$TMP/model"
model=(--model "$TMP/model" --threads 2)
s=$TMP/store
# Documents with the same first chunk or chunks have landmarks that are equal bit for bit: ties.
python3 - "$TMP" <<'PY'
import json, random, sys
random.seed(3)
words = "the river and stone winding north other sand ring on table under seven lights of a harbour".split()
text = lambda n: " ".join(random.choice(words) for _ in range(n))
same = [text(80) for _ in range(5)]
for part in range(5):
    with open(f"{sys.argv[1]}/part{part}.jsonl", "w") as f:
        for i in range(60):
            f.write(json.dumps({"id": f"{part}-{i}", "text": (same[i % 5] if i % 3 == 0 else text(80)) + f" and {part} {i} " + text(20)}) + "\n")
PY
expect 0 "$INDEX" build "$TMP/part0.jsonl" "$TMP/part1.jsonl" "$TMP/part2.jsonl" --out "$s" --index IVF8,SQ8 --shard-chunks 40 "${model[@]}"
expect 0 "$INDEX" add "$TMP/part3.jsonl" --store "$s" --shard-chunks 40 "${model[@]}"
expect 0 "$INDEX" drop --store "$s" --shard 3 --threads 1
expect 0 "$INDEX" add "$TMP/part4.jsonl" --store "$s" --shard-chunks 40 "${model[@]}"
expect 0 "$INDEX" delete --store "$s" --document 5 --document 100 --document 101
expect 0 "$INDEX" stats --store "$s" --json
segments=$(json_int "$OUT" segments) dim=$(json_int "$OUT" dim) chunks=$(json_int "$OUT" chunks)
[ "$segments" -ge 3 ] || die "$segments segments: too few to slice"
python3 - "$TMP" "$dim" <<'PY'
import array, random, struct, sys
for name, n in (("q", 600), ("few", 3)):
    r = random.Random(n)
    with open(f"{sys.argv[1]}/{name}.fbin", "wb") as f:
        f.write(struct.pack("<ii", n, int(sys.argv[2])))
        array.array("f", (r.gauss(0, 1) for _ in range(n * int(sys.argv[2])))).tofile(f)
PY
search() { "$INDEX" search --queries "${q:-$TMP/q.fbin}" --store "$s" "${model[@]}" --json "$@" 2>"$ERR" | sed -E 's/"searched_by":"[^"]*",?//'; }

tied=0 numbers="1 2 3 7"
sanitized && numbers=3
for how in "--exact --k 9" "--k 5 --nprobe 2" "--k 40 --nprobe 1" "--k 3"; do
    search $how >"$TMP/one"
    [ "$(wc -l <"$TMP/one")" = 600 ] || die "one process answered $(wc -l <"$TMP/one") of 600 queries ($how)"
    tied=$((tied + $(grep -oE '"score":[-0-9.e]+' "$TMP/one" | uniq -d | wc -l)))
    for n in $numbers; do
        search $how --workers $n >"$TMP/several"
        cmp -s "$TMP/one" "$TMP/several" || die "$n workers find something else than one process ($how)"
        err_has ", $n workers"
    done
done
[ $tied -gt 50 ] || die "only $tied ties: this test shows nothing of their order"
# More hits than chunks, and lists with too few chunks.
q=$TMP/few.fbin
for how in "--k 1000" "--k $((chunks - 2)) --nprobe 1"; do
    search $how >"$TMP/one"
    search $how --workers 3 | cmp -s - "$TMP/one" || die "3 workers find something else than one process ($how)"
done
unset q
# One query, by text, with excluded chunks, and hybrid.
for how in "--from-chunk 7" "--from-chunk 60 --exclude window=3 --exact" "--searcher hybrid"; do
    case $how in --from*) text=() ;; *) text=("the river and the harbour") ;; esac
    expect 0 "$INDEX" search "${text[@]}" --store "$s" "${model[@]}" $how --json
    sed -E 's/"searched_by":"[^"]*",?//' "$OUT" >"$TMP/one"
    expect 0 "$INDEX" search "${text[@]}" --store "$s" "${model[@]}" $how --json --workers 3
    sed -E 's/"searched_by":"[^"]*",?//' "$OUT" | cmp -s - "$TMP/one" || die "3 workers find something else ($how)"
    [ -s "$TMP/one" ] || die "nothing is found ($how)"
done

# Workers that a command starts; and workers of a snapshot.
worker() { echo "$INDEX worker --store $s --slice $1 --threads 1"; }
search --exact >"$TMP/one"
search --exact --worker "$(worker 1/3)" --worker "exec $(worker 2/3)" --worker "$(worker 3/3) 2>/dev/null" | cmp -s - "$TMP/one" || die "workers by commands"

# Each failure is one line, without a hang, and no process is left.
lost() { # TEXT OPTIONS...
    local begin=$SECONDS
    expect_error "$1" timeout 60 "$INDEX" search --queries "$TMP/q.fbin" --store "$s" "${model[@]}" "${@:2}"
    [ "$(grep -c '^drt-index: ' "$ERR")" = 1 ] || die "more than one error line: ${*:2}"
    [ $((SECONDS - begin)) -lt 30 ] || die "it hung for $((SECONDS - begin)) seconds: ${*:2}"
}
expect_error() {                        # as in lib.sh, but for `timeout`
    local text=$1
    shift
    expect 1 "$@"
    tail -n 1 "$ERR" | grep -qF "drt-index: " && tail -n 1 "$ERR" | grep -qF -- "$text" || die "the last line lacks \"$text\": $*"
}
lost "worker 2 of 2 (exit 3) was lost: it ended before it answered" --worker "$(worker 1/2)" --worker "exit 3"
lost "was lost: no answer in 1 seconds" --worker "$(worker 1/2)" --worker "exec sleep 40" --worker-timeout 1
lost "does not speak the protocol" --worker "$(worker 1/2)" --worker "echo this is no greeting of any kind; cat >/dev/null"
lost "has slice 2/2: give the workers in the order" --worker "$(worker 2/2)" --worker "$(worker 1/2)"
lost "has slice 1/1" --worker "$(worker 1/1)" --worker "$(worker 2/2)"
lost "no store here" --worker "$(worker 1/2)" --worker "$INDEX worker --store $TMP/none --slice 2/2"
cp -r "$s" "$TMP/newer"
expect 0 "$INDEX" delete --store "$TMP/newer" --document 9
lost "run the search again, or search a snapshot" --worker "$(worker 1/2)" --worker "$INDEX worker --store $TMP/newer --slice 2/2"
# Killed after its greeting, between two searches, and stopped.
slow() { # FILE: the second half comes when it exists
    for i in $(seq 300); do echo "the river and number $i"; done
    until [ -e "$1" ]; do sleep 0.1; done
    for i in $(seq 300); do echo "the harbour $i"; done
}
mkfifo "$TMP/pipe"
signalled() { # SIGNAL SECONDS: after so many seconds of the worker's
    local feeder code=0 pidfile=$TMP/pid.$1.$2 sent=$TMP/sent.$1.$2
    slow "$sent" >"$TMP/pipe" &
    feeder=$!
    (until [ -s "$pidfile" ]; do sleep 0.1; done; sleep "$2"; kill -"$1" "$(cat "$pidfile")"; touch "$sent") &
    timeout 60 "$INDEX" search --queries - --store "$s" "${model[@]}" --worker-timeout 3 --worker "$(worker 1/2)" \
        --worker "echo \$\$ >$pidfile; exec $(worker 2/2)" <"$TMP/pipe" >"$OUT" 2>"$ERR" || code=$?
    kill $feeder 2>/dev/null
    wait
    same 1 $code "exit code after SIG$1"
    tail -n 1 "$ERR" | grep -q "^drt-index: worker 2 of 2 .* was lost" || die "SIG$1 of a worker: another message"
    [ "$(wc -l <"$OUT")" -gt 100 ]
}
for signal in KILL STOP; do # on a busy machine the first half may take longer
    signalled $signal 1 || signalled $signal 8 || signalled $signal 30 || die "SIG$signal: no query was answered before it"
done
sleep 0.2
! pgrep -f -- "worker --store $TMP" >/dev/null || die "workers are left: $(pgrep -fa -- "worker --store $TMP")"

expect_usage "give one" "$INDEX" search x --store "$s" --workers 2 --worker "x"
expect_usage "leave out the workers" "$INDEX" search x --store "$s" --workers 2 --searcher lexical
expect_usage "--slice takes i/N" "$INDEX" worker --store "$s" --slice 3/2
expect_usage "--store STORE is missing" "$INDEX" worker --slice 1/2
echo "ok; $segments segments, $tied ties"
