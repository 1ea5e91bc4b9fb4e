#!/usr/bin/env bash
# Calls of the system's allocator that fail, one after another, also those of LMDB and the C library (the fault point memory:allocate is of this
# program's calls alone): no command crashes, each that fails says so, and a store is whole after it.
#
#   allocation_fault.sh [STRIDE]        every 5th call by default
[ -w /dev/shm ] && export DRT_TEST_TMP=/dev/shm
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_model.sh" || exit 1
needs drt-index drt-tokenizer drt-generate
! grep -q __asan_init "$BIN/drt-index" && ! grep -q __tsan_init "$BIN/drt-index" || skip "a sanitizer has an allocator of its own"
command -v cc >/dev/null || skip "no C compiler"
stride=${1:-5}
expect 0 cc -O1 -shared -fPIC "$SOURCE/tests/crash/allocation_fault.c" -o "$TMP/fault.so" -ldl
export OPENBLAS_NUM_THREADS=1
tiny_model "$TMP/m"
tiny_base "$TMP/base"
corpus "$TMP/train.jsonl" 6 80
tiny_store "$TMP/s" "$TMP/m" "$TMP/train.jsonl"

# sweep NAME STORE COMMAND...: runs the command on a copy of the store until 20 calls in a row succeed.
sweep() {
    local name=$1 store=$2 call=0 fine=0 failed=0 code
    shift 2
    while [ $fine -lt 20 ]; do
        rm -rf "$TMP/x" "$TMP/y"
        [ -z "$store" ] || cp -r "$store" "$TMP/x"
        code=0
        MALLOC_PERTURB_=85 LD_PRELOAD=$TMP/fault.so ALLOCATION_FAULT=$call "$@" >"$OUT" 2>"$ERR" </dev/null || code=$?
        case $code in
        0) fine=$((fine + 1)) ;;
        1) fine=0 failed=$((failed + 1)); [ -s "$ERR" ] || die "$name fails without a word at call $call" ;;
        *) die "$name: exit code $code at call $call" ;;
        esac
        [ -z "$store" ] || [ $code = 0 ] || expect 0 "$BIN/drt-index" verify --store "$TMP/x"
        call=$((call + stride))
    done
    [ $failed -ge 5 ] || die "$name: only $failed calls failed"
    echo "$name: $failed of the calls up to $call"
}
sweep search "$TMP/s" "$BIN/drt-index" search "the river" --store "$TMP/x" --model "$TMP/m" --searcher hybrid --threads 1
sweep get "$TMP/s" "$BIN/drt-index" get --store "$TMP/x" --model "$TMP/m" --document 2 --json
sweep delete "$TMP/s" "$BIN/drt-index" delete --store "$TMP/x" --document 2
sweep compact "$TMP/s" "$BIN/drt-index" compact --store "$TMP/x" --out "$TMP/y" --threads 1
sweep generate "$TMP/s" "$BIN/drt-generate" --model "$TMP/m" --prompt "the river" --max-tokens 3 --store "$TMP/x" --corpus-retrieval --self-retrieval \
    --trace "$TMP/trace.jsonl" --threads 1
sweep train "" "$BIN/drt-tokenizer" train "$TMP/train.jsonl" --vocab-size 300 --out "$TMP/t.json" --threads 1
