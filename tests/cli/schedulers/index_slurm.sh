#!/usr/bin/env bash
# docs/examples/slurm with a Slurm of four nodes on this machine: one task of an array fails and one is killed during its work. Both are
# requeued and succeed; the join waits for them and equals one build; search.sh on four nodes has the hits of one process.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
needs drt-index-fault
slurm=$SOURCE/docs/examples/slurm
if [ "${1:-}" != inside ]; then
    grep -qE '__(asan|tsan)_init' "$INDEX" && skip "Slurm is tested with the release build"
    # The daemon of munge runs as its own user and must reach its folder.
    BED=$(mktemp -d /tmp/drt-slurm-XXXXXX) || exit 1
    trap 'rm -rf "$TMP" "$BED"' EXIT
    code=0
    BED=$BED PORT=$((20000 + $$ % 2400 * 5)) "$slurm/test_bed.sh" bash "$0" inside || code=$?
    exit $code
fi

make_model "$TMP/model"
for i in 1 2 3 4; do make_corpus "$TMP/corpus-$i.jsonl" 90 "$i"; done
mkdir "$TMP/corpus" "$TMP/bin"
mv "$TMP"/corpus-*.jsonl "$TMP/corpus"
model=(--model "$TMP/model" --shard-chunks 20)
expect 0 "$INDEX" build "$TMP/corpus" --out "$TMP/whole" --threads 1 "${model[@]}"

# The first run of part 2 cannot write a file above 8 KiB; that of part 5 is killed after some of its shards.
cat >"$TMP/bin/drt-index" <<END
#!/usr/bin/env bash
case \${SLURM_ARRAY_TASK_ID:-0}.\${SLURM_RESTART_COUNT:-0} in
2.0) ulimit -f 8 ;;
5.0)
    DRT_FAULT=kill:5:file:before-rename "$BIN/drt-index-fault" "\$@"
    exit ;;
esac
exec "$INDEX" "\$@"
END
chmod +x "$TMP/bin/drt-index"
export PATH=$TMP/bin:$PATH
cd "$TMP" || exit 1
expect 0 "$slurm/submit.sh" "$TMP/corpus" "$TMP/store" 6 "${model[@]}"
read -r array join <"$OUT"
declare -A relaunched
for _ in $(seq 100); do
    state=$(scontrol show job "$join" -o | grep -oE 'JobState=[A-Z_]+')
    grep -qE '=(PENDING|RUNNING|COMPLETING)$' <<<"$state" || break
    # Slurm restarts a requeued task after two minutes, until the nodes have revoked the credential of the earlier run; three seconds are
    # enough for four nodes with one clock.
    for task in $(squeue -h -r -j "$array" -t PENDING -o '%i %r' 2>/dev/null | sed -n 's/ BeginTime$//p'); do
        [ -z "${relaunched[$task]:-}" ] && scontrol update JobId="$task" StartTime=now+3 && relaunched[$task]=1
    done
    sleep 0.3
done
{ cat "$TMP"/slurm-*.out && squeue -a -r && tail -n 12 "$BED/slurmctld.log"; } >"$ERR"
[ "$state" = JobState=COMPLETED ] || die "the join: $state"
[ ${#relaunched[@]} = 2 ] || die "${#relaunched[@]} tasks were relaunched, not 2"
for task in 2 5; do
    [ "$(scontrol show job "${array}_$task" -o | grep -oE 'Restarts=[0-9]+')" = Restarts=1 ] || die "task $task: restarts"
done
grep -q "part 2 failed with 1 " "$TMP/slurm-${array}_2.out" || die "part 2 did not fail"
grep -q "part 5 failed with 137 " "$TMP/slurm-${array}_5.out" || die "part 5 was not killed"

contents() { # STORE: duplicates in later parts leave gaps in the ids, so documents are compared by rank
    "$INDEX" export --store "$1" 2>"$ERR" | sed -E 's/"(chunk|document)":[0-9]+,//g'
}
contents "$TMP/whole" >"$TMP/whole.contents"
contents "$TMP/store" >"$TMP/store.contents"
[ "$(wc -l <"$TMP/whole.contents")" -gt 300 ] || die "the export is short"
cmp "$TMP/whole.contents" "$TMP/store.contents" || die "the joined store is another"
expect 0 "$INDEX" verify --store "$TMP/store" --deep

# Many queries, so that the messages have all byte values in both directions.
for i in $(seq 200); do echo "the river, the harbour and number $i"; done >"$TMP/queries"
search=(--queries "$TMP/queries" --exact --k 9 --json --model "$TMP/model")
expect 0 "$INDEX" search --store "$TMP/store" "${search[@]}"
sed -E 's/"searched_by":"[^"]*",?//' "$OUT" >"$TMP/one"
[ "$(wc -l <"$TMP/one")" = 200 ] || die "$(wc -l <"$TMP/one") answers of 200"
expect 0 salloc -Q -N 4 "$slurm/search.sh" "$TMP/store" "${search[@]}"
sed -E 's/"searched_by":"[^"]*",?//' "$OUT" | cmp - "$TMP/one" || die "four nodes find something else"
err_has ", 4 workers"
# The index: trained, filled by an array of which one task is killed and requeued, merged; it equals that of one process.
cat >"$TMP/bin/drt-index" <<END
#!/usr/bin/env bash
case \$2.\${SLURM_ARRAY_TASK_ID:-0}.\${SLURM_RESTART_COUNT:-0} in
fill.2.0)
    DRT_FAULT=kill:1:file:before-rename "$BIN/drt-index-fault" "\$@"
    exit ;;
esac
exec "$INDEX" "\$@"
END
cp -r "$TMP/store" "$TMP/by-one"
expect 0 "$INDEX" index --store "$TMP/by-one" --index IVF16,SQ8 --threads 1
SBATCH_TRAIN="--mem=400M" expect 0 "$slurm/submit_index.sh" "$TMP/store" IVF16,SQ8 2
read -r _ array merge <"$OUT"
relaunched=()
for _ in $(seq 150); do
    state=$(scontrol show job "$merge" -o | grep -oE 'JobState=[A-Z_]+')
    grep -qE '=(PENDING|RUNNING|COMPLETING)$' <<<"$state" || break
    for task in $(squeue -h -r -j "$array" -t PENDING -o '%i %r' 2>/dev/null | sed -n 's/ BeginTime$//p'); do
        [ -z "${relaunched[${task#*_}]:-}" ] && scontrol update JobId="$task" StartTime=now+3 && relaunched[${task#*_}]=1
    done
    sleep 0.3
done
cat "$TMP"/slurm-*.out >"$ERR"
[ "$state" = JobState=COMPLETED ] || die "the merge: $state"
[ "$(scontrol show job "${array}_2" -o | grep -oE 'Restarts=[0-9]+')" = Restarts=1 ] || die "the killed task was not requeued"
cmp "$TMP/by-one/index/00002.faiss" "$TMP/store/index/00002.faiss" || die "another index than that of one process"
expect 0 "$INDEX" verify --store "$TMP/store" --deep
if [ -n "${LOG:-}" ]; then { cat "$BED/slurmctld.log"; tail -n +1 "$TMP"/slurm-*.out; } >"$LOG"; fi
