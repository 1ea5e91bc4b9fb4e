#!/usr/bin/env bash
# Calls and names that are not allowed: see CONTRIBUTING.md, "Rules".
set -u
cd "$DRT_SOURCE" || exit 1
bad=0
forbid() { # pattern, reason, folders...
    local pattern=$1 reason=$2; shift 2
    if grep -rnE "$pattern" "$@" --include='*.c' --include='*.h' | grep -vE '^[^:]*:[0-9]+: *(/\*|\*|//)' | sed "s|\$|    <- $reason|" | grep .; then bad=1; fi
}
libraries="kernels model data store encoder decoder indexer train"
forbid '\b(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|rand|srand|strtok)\(' "unbounded or unchecked call" base $libraries tools
forbid '\b(malloc|calloc|realloc|strdup)\(' "memory comes from base/memory.h" $libraries
forbid '\b(printf|puts|perror|exit|abort|_exit|getenv)\(' "libraries neither print nor exit nor read the environment" base $libraries
forbid '\bfprintf\((stderr|stdout)' "libraries do not print" base $libraries
# What mpirun and torchrun say, they say in the environment.
forbid '\bgetenv\(' "no behaviour from environment variables" $(git ls-files 'tools/*.[ch]' | grep -v '/train_rank.c')
forbid '\bTODO\b|\bFIXME\b|\bXXX\b' "a TODO names an issue, and there is none open" base $libraries tools
# Mutable data of static lifetime: only the thread's last message (base/status.c) and the tools' signal flag. Read off the
# libraries themselves; builds with sanitizers, and objects of nvcc, have data of their own and are passed over.
if ls "$DRT_BIN"/../libdrt_base.a >/dev/null 2>&1 && ! nm "$DRT_BIN"/../libdrt_base.a 2>/dev/null | grep -qE '__(a|t|ub)san'; then
    # .data.rel.ro is constant (tables of pointers); what is left is written at run time.
    for library in "$DRT_BIN"/../libdrt_*.a; do
        objdump -t "$library" | awk -v lib="$(basename "$library")" \
            '/file format/ { file = $1 } $0 ~ / O (\.data|\.bss|\.tbss|\.tdata|\*COM\*)(\.[^r][^ ]*)?\t/ && file !~ /\.cu\.o/ && $NF != "last_message" { print lib file " " $NF "    <- mutable global" }' | grep . && bad=1
    done
fi
for file in $(git ls-files 2>/dev/null | grep -E '\.(c|h|cpp)$'); do
    case $(basename "$file") in
    util*|common*|misc*|helper*) echo "$file: a name that says nothing"; bad=1 ;;
    esac
done
git ls-files '*.c' '*.h' 2>/dev/null | grep -vE '^tests/' | xargs -n1 basename | sort | uniq -d | grep -vE '^$' | sed 's|$|: two files of this name|' | grep -v '^retriever.h' | grep . && bad=1
exit $bad
