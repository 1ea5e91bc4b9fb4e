#!/usr/bin/env bash
# run_all.sh -- all tests that need a GPU, in one call of a few minutes: twins, towers, golden cases, a training run that is stopped and
# resumed, compute-sanitizer on a short run, benchmarks. It prints a summary at the end and packs all logs into run_all.tgz in $OUT (or
# /tmp).
#
#   tests/device/portable.sh --out FOLDER drt-train drt-tokenizer drt-index drt-generate test_golden \
#       test_runtime_on_device test_ops_on_device test_landmark_on_device test_topk_on_device test_loss_on_device test_ivf_scan_on_device test_lexical_scan_on_device test_hybrid_on_device test_candidates_on_device \
#       test_token_memory_on_device test_next_token_on_device test_packed_keys_on_device test_decode_rows_on_device test_pick_on_device test_step_pick_on_gpu test_generation_on_gpu test_towers_on_gpu test_batch_on_gpu test_memory_training_on_gpu test_flat_index test_list_index test_clustering test_assignment \
#       bench_train bench_device bench_device_corpus                              (where the libraries are)
#   tests/device/run_all.sh FOLDER GOLDEN [ATTENTION]                             (where the GPU is)
#
# GOLDEN: the folder of golden cases. ATTENTION: the folder of run_attention.sh's programs (built if it is empty).
set -u
cd "$(dirname "$0")/../.." || exit 1
programs=$(realpath "$1") golden=$(realpath "$2") attention=${3:-}
log=$(mktemp -d)
shopt -s nullglob
cases=("$golden"/{drt_,gca_op_,lm_base}*.safetensors) # the repository's own folder has fewer kinds
[ ${#cases[@]} -gt 0 ] || { echo "run_all.sh: no golden cases in $golden" >&2; exit 2; }
export LD_LIBRARY_PATH=$programs:/usr/local/cuda/lib64 PATH=$PATH:/usr/local/cuda/bin:$programs
summary=() failed=0
step() { # name, seconds at most, command...
    local name=$1 limit=$2 begin=$SECONDS result; shift 2
    timeout "$limit" "$@" >"$log/$name.txt" 2>&1
    result=$?
    if [ $result = 0 ]; then summary+=("ok      $name ($((SECONDS - begin)) s)")
    elif [ $result = 77 ]; then summary+=("skipped $name: $(tail -n 1 "$log/$name.txt")")
    else summary+=("FAILED  $name ($((SECONDS - begin)) s, exit $result): $(grep -E 'FAIL|rror' "$log/$name.txt" | tail -n 3 | tr '\n' ' ')"); failed=1; fi
    echo "${summary[-1]}" # at once: a run that is cut off shows what it reached
}
# A tiny model on random ids: a run, a second run, and one that is stopped after step 7 and resumed have the same weights and losses.
# Arguments: more keys of its model and of the config; base: a Base LM.
resume() { # MODEL CONFIG [base]
    local work; work=$(mktemp -d)
    python3 - "$work" <<'END' || return 1
import random, struct, sys
random.seed(1)
ids = [random.randrange(1, 250) if i % 400 else 0 for i in range(60000)]
open(sys.argv[1] + "/x.u16", "wb").write(struct.pack("<%dH" % len(ids), *ids))
END
    cat >"$work/c.json" <<END
{"model": {"vocab_size": 272, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 2, "decoder_layers": [2, 2],
 "encoder_layers": 1, "enc_chunk_size": 63, "chunk_topk": 8, "slide_window": 512, "chunk_id": 270, "pad_id": 269, "mask_id": 268,
 "eos_id": 0, "rms_norm_eps": 1e-5, "encoder_input": "tokens"$1}, "tokenizer": "tests/cli/tiny/tokenizer.json",
 "data": ["$work/x.u16"], "sequences": 4, "length": 1008, "steps": 16, "warmup": 2, "lr": 0.003, "pool": "corpus",
 "refresh": 7, "candidates": 8, "copies": {"rate": 0.5}, "mlm": {"rate": 0.15}, "contrastive": {"weight": 0.05}, "save_every": 100$2}
END
    [ "${3:-}" != base ] || sed -i 's/"decoder_layers": \[2, 2\]/"decoder_layers": [3]/; s/"encoder_layers": 1/"encoder_layers": 0/
        s/, "encoder_input": "tokens"//; s/"pool": "corpus"/"pool": "none"/; s/"refresh".*"save_every"/"save_every"/' "$work/c.json"
    local run
    for run in whole again; do drt-train --device cuda --config "$work/c.json" --out "$work/$run" || return 1; done
    drt-train --device cuda --config "$work/c.json" --out "$work/parts" --until 7 || return 1
    drt-train --device cuda --out "$work/parts" --resume || return 1
    for run in again parts; do
        cmp "$work/whole/checkpoints/step-16/model.safetensors" "$work/$run/checkpoints/step-16/model.safetensors" || return 1
        diff <(sed 's/"tokens_per_second".*//' "$work/whole/log.jsonl") <(sed 's/"tokens_per_second".*//' "$work/$run/log.jsonl") || return 1
    done
    tail -n 1 "$work/whole/log.jsonl"
    echo "a second run and a resumed run equal the first, bit for bit"
}
# A store of this repository's documents, searched on the CPU and on the GPU: the same chunks; text generated with it: the same words.
corpus() {
    local work where model=$PWD/data/models/drt-28m query="How a store is laid out: token shards, landmark shards, and the catalog that names every file and its bytes"
    work=$(mktemp -d)
    drt-index build README.md docs CONTRIBUTING.md CHANGELOG.md BENCHMARKS.md --format txt --device cuda --index IVF8_HNSW32,SQ8 \
        --model "$model" --out "$work/s" || return 1
    drt-index verify --store "$work/s" --deep || return 1
    drt-index recall --store "$work/s" --device cuda --nprobe 1,1000 --queries 100 --json | tee "$work/recall" || return 1
    grep '"index":"gpu-ivf","nprobe":1000' "$work/recall" | grep -qE '"recall":(1[,.]|0.99)' || { echo "FAIL: all lists lose neighbours"; return 1; }
    for where in "cpu --exact" "cuda --exact" "cuda --nprobe 1000"; do
        drt-index search "$query" --model "$model" --store "$work/s" --dtype f32 --k 4 --json --device $where | grep -o '"chunk":[0-9]*' >"$work/hits ${where//[^a-z]/}"
    done
    cmp "$work/hits cpuexact" "$work/hits cudaexact" && cmp "$work/hits cpuexact" "$work/hits cudanprobe" || return 1
    for where in "cpu --exact" "cuda --exact" "cuda --nprobe 1000"; do
        drt-generate --model "$model" --store "$work/s" --corpus-retrieval --dtype f32 --prompt-file data/quickstart-prompt.txt --max-tokens 130 --temperature 0 \
            --device $where >"$work/text ${where//[^a-z]/}" || return 1
    done
    cmp "$work/text cpuexact" "$work/text cudaexact" && cmp "$work/text cpuexact" "$work/text cudanprobe" || return 1
    echo "GPU and CPU find the same chunks and write the same text"
}
export -f resume corpus
for test in runtime ops landmark loss topk ivf_scan lexical_scan hybrid candidates token_memory next_token packed_keys decode_rows pick; do step "test_$test" 200 "$programs/test_${test}_on_device"; done
step towers 100 "$programs/test_towers_on_gpu"
step step_pick 100 "$programs/test_step_pick_on_gpu"
step generation 100 env "DRT_SOURCE=$PWD" "$programs/test_generation_on_gpu"
step batch 200 "$programs/test_batch_on_gpu"
step memory_training 100 "$programs/test_memory_training_on_gpu"
step golden_f32 100 "$programs/test_golden" --device cuda --dtype f32 "${cases[@]}"
step golden_bf16 100 "$programs/test_golden" --device cuda --dtype bf16 "${cases[@]}"
step resume 100 bash -c resume
# shellcheck disable=SC2016 # for the inner shell
step resume_memory 100 bash -c 'resume "$@"' bash ', "retrieval_proj": true, "memory_layer": 3, "memory_size": 64' \
    ', "memory": {"weight": 0.5, "past": 504, "drop_past": 0.5, "group": 2, "pack": true, "passages": 2, "read": 8}, "teach": {"weight": 0.1}'
step resume_recurrent 100 bash -c 'resume "$@"' bash ', "recurrent_layer": 2, "recurrent_states": 100, "recurrent_block": 252' "" base
step resume_landmark 100 bash -c 'resume "$@"' bash ', "landmark_block": 63, "landmark_topk": 4' "" base
for test in flat_index list_index clustering assignment; do step "test_$test" 60 "$programs/test_$test"; done
step corpus 60 bash -c corpus
if command -v compute-sanitizer >/dev/null; then
    for test in runtime ops landmark loss topk ivf_scan lexical_scan hybrid candidates token_memory next_token decode_rows pick; do # errors of kernels count: test_ops makes calls fail
        step "memcheck_$test" 100 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
            "$programs/test_${test}_on_device" 5 short
    done
    step racecheck_topk 100 compute-sanitizer --tool racecheck --error-exitcode 9 "$programs/test_topk_on_device" 5 short
fi
[ -z "$attention" ] || step attention 200 bash tests/device/run_attention.sh "$attention"
for model in base drt; do step "bench_train_$model" 60 "$programs/bench_train" --device cuda --type bf16 --model $model; done
step bench_encode 60 "$programs/bench_device" --device cuda encode
step bench_decode 60 "$programs/bench_device" --device cuda decode
step bench_batch 100 "$programs/bench_device" --device cuda batch
step bench_corpus 60 "$programs/bench_device_corpus" --device cuda decode
for name in attention bench_train_base bench_train_drt bench_encode bench_decode bench_batch bench_corpus; do
    [ ! -s "$log/$name.txt" ] || { echo "== $name"; tail -n 40 "$log/$name.txt"; }
done
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
tar czf "${OUT:-/tmp}/run_all.tgz" -C "$log" .
printf '%s\n' "${summary[@]}"
exit $failed
