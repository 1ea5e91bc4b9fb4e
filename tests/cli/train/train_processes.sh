#!/usr/bin/env bash
# drt-train --processes: two processes with one micro-batch each take the steps of one process with two, up to the order of sums, and, with
# the contrastive loss, of one whose micro-batch is twice as large; a repeated run is equal bit for bit; a stopped run continues; if one
# process dies, the others end; mpirun's environment.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-eval drt-train drt-tokenizer
TRAIN=$BIN/drt-train
corpus "$TMP/train.jsonl" 12 150
expect 0 "$BIN/drt-tokenizer" encode "$TMP/train.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/train.u16" --eod-id 268
model=$(sed 's/"chunk_id"/"mask_id": 267, "chunk_id"/' "$TINY/config.json")
cat >"$TMP/config.json" <<END
{"model": $model, "tokenizer": "$TINY/tokenizer.json", "data": ["$TMP/train.u16"], "sequences": 2, "length": 189,
 "steps": 8, "warmup": 2, "lr": 0.01, "pool": "batch", "mlm": {"rate": 0.15}, "contrastive": {"weight": 0.05}, "save_every": 4}
END
train() { "$TRAIN" --device cpu --threads 1 --config "$TMP/config.json" "$@"; }
contrast() { sed -n 's/.*"tokens":\([0-9]*\),.*"contrastive_loss":\([0-9.]*\).*"gradient_norm":\([0-9.]*\).*/\1 \2 \3/p' "$1/log.jsonl"; }
losses() { sed -n 's/.*"tokens":\([0-9]*\),"loss":\([0-9.]*\).*"gradient_norm":\([0-9.]*\).*/\1 \2 \3/p' "$1/log.jsonl"; }

agree() { # which numbers, of which two runs
    local a b
    a=$("$1" "$TMP/$2") b=$("$1" "$TMP/$3")
    same "$(wc -l <<<"$a") $(wc -l <<<"$b")" "8 8" "lines of the logs: rank 0 alone writes them"
    paste <(echo "$a") <(echo "$b") | awk '
    function far(a, b) { d = a - b; return (d < 0 ? -d : d) > 2e-4 * a }
    $1 != $4 || far($2, $5) || far($3, $6) { print "step " NR ": " $0; bad = 1 } END { exit bad }'
}

# With two micro-batches the contrastive loss compares the landmarks of one each, so it is off here; its own comparison has no noise in the
# selections.
expect 0 train --out "$TMP/one" --set accumulate=2 --set contrastive.weight=0
expect 0 train --out "$TMP/plain" --processes 2 --set contrastive.weight=0
agree losses one plain || die "two processes and two micro-batches differ"
for run in "large --set sequences=4" "small --processes 2"; do
    read -r name how <<<"$run"
    # shellcheck disable=SC2086 # options
    expect 0 train --out "$TMP/$name" $how --set pool=own --set gumbel=false --set contrastive.weight=1 --set contrastive.cut_query=false
done
agree contrast large small || die "the contrastive loss of two processes is not that of one"
agree losses large small || die "two processes and twice the micro-batch differ"
# Samples: a positive of one process is not a negative of the other.
tiny_model "$TMP/model"
expect 0 "$BIN/drt-eval" niah --data "$TMP/train.jsonl" --model "$TMP/model" --context 256 --trials 32 --write "$TMP/needles.u32"
for run in "samples-large --set sequences=4" "samples-small --processes 2"; do
    read -r name how <<<"$run"
    # shellcheck disable=SC2086 # options
    expect 0 train --out "$TMP/$name" $how --data "$TMP/needles.u32" --set samples=true --set length=315 --set pool=own --set gumbel=false --set mlm.rate=0 \
        --set contrastive.weight=1 --set contrastive.cut_query=false
done
agree contrast samples-large samples-small || die "the contrastive loss of samples of two processes is not that of one"
expect 0 train --out "$TMP/two" --processes 2
expect 0 train --out "$TMP/again" --processes 2
cmp -s "$TMP/two/checkpoints/step-8/model.safetensors" "$TMP/again/checkpoints/step-8/model.safetensors" ||
    die "a second run gives other weights"
expect 0 train --out "$TMP/parts" --processes 2 --until 5
expect 0 train --out "$TMP/parts" --processes 2 --resume
cmp -s "$TMP/two/checkpoints/step-8/model.safetensors" "$TMP/parts/checkpoints/step-8/model.safetensors" ||
    die "a resumed run gives other weights"

# Started like by mpirun: two processes of one parent.
for rank in 0 1; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 "$TRAIN" --device cpu --threads 1 \
        --config "$TMP/config.json" --out "$TMP/mpi" >"$TMP/mpi.$rank" 2>&1 &
done
wait
cmp -s "$TMP/two/checkpoints/step-8/model.safetensors" "$TMP/mpi/checkpoints/step-8/model.safetensors" ||
    die "mpirun's way gives other weights: $(cat "$TMP"/mpi.?)"
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 expect_error "several hosts" "$TRAIN" --config "$TMP/config.json" --out "$TMP/hosts"

CUDA_VISIBLE_DEVICES=0 expect 0 train --out "$TMP/fewer-gpus" --processes 2 --until 1 # on the CPU GPUs are not counted

# After SIGTERM to the parent, or SIGHUP more than once, all stop after the same step, with a checkpoint. If one dies, the others do not
# wait for it.
start() {
    "$TRAIN" --device cpu --threads 1 --config "$TMP/config.json" --processes 2 --steps 4000 --set save_every=100000 "$@" \
        >"$OUT" 2>"$ERR" &
    pid=$!
}
for signals in TERM "HUP HUP"; do
    rm -rf "$TMP/term"
    start --out "$TMP/term"
    for _ in $(seq 400); do [ -s "$TMP/term/log.jsonl" ] && break; sleep 0.02; done
    for signal in $signals; do kill -$signal $pid; sleep 0.02; done
    code=0
    wait $pid || code=$?
    same $code 1 "exit code of a run stopped by $signals"
    err_has "stopped after step"
    [ "$(ls "$TMP/term/checkpoints")" ] || die "no checkpoint of the stopped run"
done
trap '' HUP
start --out "$TMP/nohup" --steps 40
for _ in $(seq 400); do [ -s "$TMP/nohup/log.jsonl" ] && break; sleep 0.02; done
kill -HUP $pid 2>/dev/null
wait $pid || die "a run that was started to ignore SIGHUP ended by it"
trap - HUP
start --out "$TMP/death"
for _ in $(seq 400); do [ -s "$TMP/death/log.jsonl" ] && break; sleep 0.02; done
read -r -a children <"/proc/$pid/task/$pid/children"
kill -KILL "${children[1]}"
code=0
wait $pid || code=$?
same $code 137 "exit code when a process was killed"
expect_usage "" "$TRAIN" --config "$TMP/config.json" --out "$TMP/none" --processes 65
