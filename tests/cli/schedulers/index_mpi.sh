#!/usr/bin/env bash
# docs/examples/mpi: four ranks of Open MPI on one machine search together, and have the same hits for 10^4 queries as one process; a killed
# worker ends the job with an error.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
command -v mpirun >/dev/null && mpirun --version 2>/dev/null | grep -q "Open MPI" || skip "Open MPI is not installed"
command -v python3 >/dev/null || skip "python3 is missing"
PATH=$BIN:$PATH
export DRT_MPI_FOLDER=$TMP WORKER_OPTIONS="--threads 1"
mpi=(mpirun -n 4 --oversubscribe)
[ "$(id -u)" != 0 ] || mpi+=(--allow-run-as-root)
"${mpi[@]}" true 2>"$ERR" || skip "Open MPI does not start here: $(tail -n 1 "$ERR")"
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 150 1
make_corpus "$TMP/b.jsonl" 90 2
s=$TMP/store
model=(--model "$TMP/model" --threads 1)
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$s" --index IVF8,SQ8 "${model[@]}"
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$s" "${model[@]}"
expect 0 "$INDEX" stats --store "$s" --json
python3 - "$TMP/q.fbin" "$(json_int "$OUT" dim)" <<'PY'
import array, random, struct, sys
r, n, dim = random.Random(1), 10000, int(sys.argv[2])
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<ii", n, dim))
    array.array("f", (r.gauss(0, 1) for _ in range(n * dim))).tofile(f)
PY
for how in "--exact --k 8" "--k 8 --nprobe 2"; do
    search=(drt-index search --queries "$TMP/q.fbin" --store "$s" "${model[@]}" --json $how)
    "${search[@]}" 2>"$ERR" | sed -E 's/"searched_by":"[^"]*",?//' >"$TMP/one"
    [ "$(wc -l <"$TMP/one")" = 10000 ] || die "one process answered $(wc -l <"$TMP/one") of 10000 queries ($how)"
    expect 0 timeout 120 "${mpi[@]}" "$SOURCE/docs/examples/mpi/search.sh" "$s" "${search[@]}"
    sed -E 's/"searched_by":"[^"]*",?//' "$OUT" | cmp -s - "$TMP/one" || die "four ranks find something else ($how)"
    err_has ", 4 workers"
done
# A worker is killed while the program of rank 0 waits for its queries.
mkfifo "$TMP/pipe"
(sleep 60 >"$TMP/pipe" & echo $! >"$TMP/feeder"; wait) &
(for ((i = 0; i < 100; i++)); do [ -s "$TMP/began" ] && break; sleep 0.1; done; kill -KILL $(pgrep -f -- "worker --store $s --slice 3/4")) &
code=0
timeout 60 "${mpi[@]}" "$SOURCE/docs/examples/mpi/search.sh" "$s" bash -c "echo x >'$TMP/began'; exec drt-index search --queries '$TMP/pipe' --queries-format txt --store '$s' --model '$TMP/model' \"\$@\"" _ \
    >"$OUT" 2>"$ERR" || code=$?
kill "$(cat "$TMP/feeder")"
wait
[ $code != 0 ] && [ $code != 124 ] || die "exit code $code with a worker killed"
# Rank 2 notices it, or rank 0 if the worker was killed before the search had connected: either ends the job.
grep -qE "search.sh: the worker of rank 2 has ended|drt-index: worker 3 of 4 " "$ERR" || die "no rank names the worker: $(tail -n 3 "$ERR")"
for ((i = 0; i < 50; i++)); do pgrep -f -- "worker --store $s" >/dev/null || break; sleep 0.1; done
! pgrep -f -- "worker --store $s" >/dev/null || die "workers are left"
echo ok
