#!/usr/bin/env bash
# The released lm-evaluation-harness against drt-serve, on a local task of unseen texts: its log-probabilities equal those of drt-eval. The
# harness is installed once in .deps/lm-eval of the sources; without network the test is skipped. DRT_LM_EVAL: another Python with lm_eval.
# serve_lm_eval.sh [MODE...]: both, or any of none, self, corpus, both.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
needs drt-eval
grep -qE '__(asan|tsan)_init' "$SERVE" && skip "the harness is run against the release build"
VERSION=0.4.13
harness() { # installs it, and sets PYTHON
    local folder=$SOURCE/.deps/lm-eval
    PYTHON=${DRT_LM_EVAL:-$folder/bin/python}
    [ -z "${DRT_LM_EVAL:-}" ] || return 0
    mkdir -p "$SOURCE/.deps"
    exec 9>"$SOURCE/.deps/lm-eval.lock"
    flock -w 200 9 || skip "another test installs lm_eval"
    [ -e "$folder/complete" ] && return
    command -v python3 >/dev/null || skip "python3 is not installed"
    rm -rf "$folder"
    python3 -m venv "$folder" >"$OUT" 2>&1 || skip "python3 cannot make a virtual environment (Debian: python3-venv)"
    timeout 250 "$folder/bin/python" -m pip install -q --no-compile --no-input --retries 1 --timeout 10 "lm_eval[api]==$VERSION" >"$OUT" 2>&1 ||
        skip "pip cannot install lm_eval $VERSION in 250 s: $(grep -m 1 ERROR "$OUT")"
    touch "$folder/complete"
    [ $SECONDS -lt 100 ] || skip "installing lm_eval took $SECONDS s of the test's time: the next run uses it"
}
harness
exec 9>&-
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HOME=$TMP/hf TOKENIZERS_PARALLELISM=false PYTHONWARNINGS=ignore

task() { "$PYTHON" "$SOURCE/tests/cli/serve/lm_eval_task.py" "$@" >"$OUT" 2>"$ERR"; }
"$BIN/drt-index" build "$SOURCE/docs" --out "$TMP/store" >"$OUT" 2>"$ERR" || die "drt-index build"
mkdir "$TMP/task"
[ $# -gt 0 ] || set -- both
for mode; do
    flags=()
    case $mode in corpus | both) flags=(--store "$TMP/store") ;; esac
    serve_start "${flags[@]}" --retrieval $mode
    if [ ! -s "$TMP/cuts" ]; then
        task write "$URL" "$TMP/task" "$SOURCE/README.md" "$SOURCE/CONTRIBUTING.md" "$SOURCE/kernels/README.md" || die "the task"
        cp "$OUT" "$TMP/cuts"
    fi
    [ ${#flags[@]} = 0 ] || flags+=(--exclude none)
    while read -r i skipped; do
        "$EVAL" ppl --data "$TMP/task/text-$i.jsonl" --modes $mode "${flags[@]}" --skip "$skipped" --json --threads 2 2>"$ERR" || die "drt-eval"
    done <"$TMP/cuts" >"$TMP/measured-$mode"
    timeout 200 "$PYTHON" -m lm_eval run --model local-completions --tasks held_out --include_path "$TMP/task" --log_samples --output_path "$TMP/samples-$mode" \
        --model_args "base_url=$URL/v1/completions,model=drt-28m,tokenizer_backend=remote,max_length=8192,num_concurrent=2" >"$OUT" 2>"$ERR" || die "lm_eval, mode $mode"
    task compare "$TMP/task" "$TMP/samples-$mode" "$TMP/measured-$mode" $mode || die "mode $mode"
    cat "$OUT"
    serve_stop
done
exit 0
