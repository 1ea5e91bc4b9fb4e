# lib.sh -- for scripts in tests/cli and tests/crash: source it first.
#
# Sets $BIN (folder of programs) and $TMP (an empty folder of this script, removed at the end), and defines the checks below. A failed check
# prints the command, the expected and the actual result, and the script exits with 1; 77 means skipped.
set -u
BIN=${DRT_BIN:?folder of programs}
SOURCE=${DRT_SOURCE:?root of the sources}
SHARED=${DRT_SHARED:-}
mkdir -p "${DRT_TEST_TMP:=/tmp}"
TMP=$(mktemp -d "$DRT_TEST_TMP/cli-XXXXXX") || exit 1
trap 'rm -rf "$TMP"' EXIT
OUT=$TMP/.stdout ERR=$TMP/.stderr

# sanitized: the programs have sanitizers, which look for other faults than wrong results. A run that is repeated only for its result
# (other numbers of threads or parts) is then left to the release build.
sanitized() { [ "${DRT_TEST_SANITIZED:-0}" = 1 ]; }
skip() { echo "skipped: $*"; exit 77; }
die() {
    echo "FAILED: $*" >&2
    [ -s "$OUT" ] && { echo "--- stdout (head)" >&2; head -n 20 "$OUT" >&2; }
    [ -s "$ERR" ] && { echo "--- stderr (tail)" >&2; tail -n 20 "$ERR" >&2; }
    exit 1
}
needs() {                               # needs PROGRAM...: skips if one of them was not built
    local p
    for p in "$@"; do [ -x "$BIN/$p" ] || skip "$p is not built"; done
}

# expect CODE COMMAND...: runs it (stdout in $OUT, stderr in $ERR) and checks its exit code.
expect() {
    local want=$1 code=0
    shift
    "$@" >"$OUT" 2>"$ERR" </dev/null || code=$?
    [ "$code" = "$want" ] || die "exit code $code, wanted $want: $*"
}
# expect_in CODE FILE COMMAND...: the same with standard input from FILE.
expect_in() {
    local want=$1 file=$2 code=0
    shift 2
    "$@" >"$OUT" 2>"$ERR" <"$file" || code=$?
    [ "$code" = "$want" ] || die "exit code $code, wanted $want: $* < $file"
}
# faulty kill|fail POINT COMMAND...: COMMAND with this active fault point (N, or N:NAME). It is killed, or it fails with one line; or it
# does not reach the point and succeeds: passed=1.
faulty() {
    local mode=$1 point=$2 code=0
    shift 2
    { DRT_FAULT=$mode:$point "$@" >"$OUT" 2>"$ERR" </dev/null || code=$?; } 2>/dev/null
    passed=$((code == 0))
    case $mode:$code in
    *:0 | kill:137) ;;
    fail:1) grep -q '^drt-[a-z]*: ' "$ERR" || die "a failure at fault point $point says nothing: $*" ;;
    *) die "fault point $point ($mode): exit code $code: $*" ;;
    esac
}
# count_passes COMMAND...: runs it without a fault; passes[NAME] is how often it passes each fault point. Up to a fault a
# command passes the same ones, so those that it does not pass here need no try.
declare -A passes
count_passes() {
    local name n
    DRT_FAULT=count expect 0 "$@"
    passes=()
    while IFS=' ' read -r name n; do passes[$name]=$n; done < <(sed -n 's/^fault point \(.*\): \([0-9]*\)$/\1 \2/p' "$ERR")
    [ ${#passes[@]} -gt 0 ] || die "no fault point is passed: $*"
}
# each_fault_point LEAST JOB NAMES: calls `try MODE N NAME JOB` for each of the fault points, killed and failing, the first three times that
# it is reached (until try sets passed=1). LEAST of them must have fired: try counts those in $tried. `begin JOB` makes what the job
# starts with, and sets `command`, which has live fault points.
each_fault_point() {
    local least=$1 job=$2 names=$3 before=$tried name mode n
    begin $job
    count_passes "${command[@]}"
    for name in $names; do
        for mode in kill fail; do
            passed=0
            for ((n = 1; n <= 3 && n <= ${passes[$name]:-0} && !passed; n++)); do try $mode $n "$name" $job; done
        done
    done
    [ $((tried - before)) -ge "$least" ] || die "$job: only $((tried - before)) fault points fired"
}
# expect_error TEXT COMMAND...: exit code 1, and the last line of stderr is "<program>: ...TEXT...".
expect_error() {
    local text=$1 program last
    shift
    expect 1 "$@"
    program=$(basename "$1")
    last=$(tail -n 1 "$ERR")
    case $last in
    "${program%-fault}: "*"$text"*) ;;
    *) die "the last line of stderr is not \"${program%-fault}: ...$text...\": $*" ;;
    esac
}
# expect_usage TEXT COMMAND...: exit code 2, TEXT on stderr, nothing on stdout.
expect_usage() {
    local text=$1
    shift
    expect 2 "$@"
    err_has "$text"
    [ ! -s "$OUT" ] || die "a usage error wrote to stdout: $*"
}
out_has() { grep -qF -- "$1" "$OUT" || die "stdout lacks \"$1\""; }
out_lacks() { ! grep -qF -- "$1" "$OUT" || die "stdout has \"$1\""; }
err_has() { grep -qF -- "$1" "$ERR" || die "stderr lacks \"$1\""; }
err_lacks() { ! grep -qF -- "$1" "$ERR" || die "stderr has \"$1\""; }
same() { [ "$1" = "$2" ] || die "${3:-values differ}: \"$1\" against \"$2\""; }
# json_int FILE KEY: the integer of a key in one line of JSON (for flat objects).
json_int() { sed -n 's/.*"'"$2"'":[ ]*\(-\{0,1\}[0-9][0-9]*\).*/\1/p' "$1" | head -n 1; }
# help_is_smooth: the help text in $OUT is wrapped at 100 columns, and no line of its prose is shorter than necessary.
help_is_smooth() {
    awk '
        length > 100 { print "longer than 100: " $0; bad = 1 }
        prose && prev != "" && $0 != "" && length(prev) + 1 + length($1) <= 100 { print "ends early: " prev; bad = 1 }
        /^(Options|Commands|Examples|[A-Z][a-z ]*):$/ { prose = 0 }
        /^Usage/ { prose = 1 }
        { prev = /^Usage/ || /^       / ? "" : $0 }
        END { exit bad }' "$OUT" || die "the help text is rough"
}
