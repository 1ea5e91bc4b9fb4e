#!/usr/bin/env bash
# Calls and names that are not allowed: see CONTRIBUTING.md, "Rules".
set -u
cd "$DRT_SOURCE" || exit 1
bad=0
forbid() { # pattern, reason, folders...
    local pattern=$1 reason=$2; shift 2
    if grep -rnE "$pattern" "$@" --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' --include='*.cpp' |
        grep -vE '^[^:]*:[0-9]+: *(/\*|\*|//)' | sed "s|\$|    <- $reason|" | grep .; then bad=1; fi
}
libraries="kernels model data store encoder decoder indexer train session library"
forbid '\b(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|rand|srand|strtok)\(' "unbounded or unchecked call" base $libraries tools
forbid '\b(malloc|calloc|realloc|strdup)\(' "memory comes from base/memory.h" $libraries
forbid '\b(printf|puts|perror|exit|abort|_exit|getenv)\(' "libraries neither print nor exit nor read the environment" base $libraries
forbid '\bfprintf\((stderr|stdout)' "libraries do not print" base $libraries
# mpirun and torchrun describe a process in its environment, and CUDA_VISIBLE_DEVICES is the list that --devices selects from.
forbid '\bgetenv\(' "no behaviour from environment variables" $(git ls-files 'tools/*.[ch]' | grep -vE '/(train_rank|devices).c')
forbid '\bTODO\b|\bFIXME\b|\bXXX\b' "a TODO names an issue, and there is none open" base $libraries tools
forbid '^(\[\[[a-z_]*\]\] *|template *<[^>]*> *)?static [^=;]*[ *](run|body|forward|backward|open|close|init)\(' \
    "stack traces and profiles need the unit's name, as in topk_forward" base $libraries tools tests
if grep -nE '^static [^=;(]*[ *][a-z0-9]+\(' $(git ls-files '*.c' | grep -vE '^(tests|docs|kernels/memory)/') |
    sed "s|\$|    <- a static function of one word: begin with the unit's name, as in topk_forward|" | grep .; then bad=1; fi
# Mutable data of static lifetime: only the thread's last message (base/status.c) and the tools' signal flag. Read from the
# libraries themselves; builds with sanitizers, and objects of nvcc, have data of their own and are skipped.
if ls "$DRT_BIN"/../libdrt_base.a >/dev/null 2>&1 && ! nm "$DRT_BIN"/../libdrt_base.a 2>/dev/null | grep -qE '__(a|t|ub)san'; then
    # .data.rel.ro is constant (tables of pointers); the other sections are written at run time.
    for library in "$DRT_BIN"/../libdrt_*.a; do
        objdump -t "$library" | awk -v lib="$(basename "$library")" \
            '/file format/ { file = $1 } $0 ~ / O (\.data|\.bss|\.tbss|\.tdata|\*COM\*)(\.[^r][^ ]*)?\t/ && file !~ /\.cu\.o/ && $NF != "last_message" { print lib file " " $NF "    <- mutable global" }' | grep . && bad=1
    done
fi
# Names of files: each names its subject, and each occurs once.
git ls-files 2>/dev/null | awk -F/ '
    /\.(c|h|cu|cuh|cpp)$/ && $NF ~ /^(util|common|misc|helper)/ { print $0 ": a name without a subject"; bad = 1 }
    /\.(c|h|cu|cuh|cpp)$/ && !/^tests\// && seen[$NF]++ && $NF !~ /^retriever\.h/ { print $NF ": two files of this name"; bad = 1 }
    END { exit bad }' || bad=1
exit $bad
