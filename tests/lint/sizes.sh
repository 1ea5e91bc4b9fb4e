#!/usr/bin/env bash
# Limits of sizes (CONTRIBUTING.md, "Rules"): lines, functions, parameters, files, folders, and units that are too small for a separate
# file. Each exception is listed here with its reason.
set -u
cd "$DRT_SOURCE" || exit 1
# file or folder/         reason
exceptions="
store/store.h             the store's whole public face, read as one page
include/drt.h             the library's whole public face, one header without others
tests/bench/op_clock.h    a wrapper for each op of a training step
kernels/attention/backward/attend_wgmma_dq.cuh    nine parameters: fewer change the machine code of the kernel
kernels/attention/backward/persistent_dkv.cuh  ten parameters, likewise
kernels/pointwise/norm_cuda.cu           norm_backward_rows has nine parameters for the same reason
kernels/linear/symmetric.c               the parameters of a function of LAPACK
kernels/attention/attention.c            the one formula that the code of the CPU and of CUDA share
kernels/decode_step/decode_step_nocuda.c in place of decode_step_cuda.cu in a build without CUDA
kernels/decode_rows/decode_rows_nocuda.c in place of decode_rows_cuda.cu, likewise
kernels/device/device_nocuda.c           in place of device_cuda.cu
kernels/device/collective_nonccl.c       in place of collective_cuda.cu in a build without NCCL
kernels/linear/matmul_noamx.c            in place of matmul_amx.c where the compiler has no AMX
kernels/linear/matmul_nobf16.c           in place of matmul_bf16.c where the compiler has no AVX512_BF16
kernels/linear/matmul_novnni.c           in place of matmul_vnni.c where the compiler has no VNNI
kernels/ops_cpu.c                        the table of the CPU's ops, which no single op can hold
train/step/pool.c                        names that readers of configs and logs need without a training step
tests/device/bench/gca_library.cu              C functions that Python calls, which passes plain arguments
base/system/fault.c       one symbol, so that the linker takes a test's definition instead
base/system/processors.c  the processors alone; control groups and threads both stand apart from it
tools/shared/report.c     lines that several programs print
cmake/faiss_compat.cpp    symbols that a newer system's FAISS needs
cmake/faiss_error.cpp     in place of a member of FAISS's archive
tests/fuzz/corpus/*       inputs of the fuzz targets
"
files=$(git ls-files -co --exclude-standard 2>/dev/null) || { echo "skipped: not a git checkout"; exit 77; }
mapfile -t sources < <(grep -E '\.(c|h|cu|cuh|cpp)$' <<<"$files" | while read -r f; do [ -f "$f" ] && echo "$f"; done)
LC_ALL=C awk -v files="$files" -v exceptions="$exceptions" '
function complain(what) { print what; bad = 1 }
function excepted(path,    parent) {
    if (path in exception) return 1
    parent = path
    while (sub(/[^\/]*\/?$/, "", parent) && parent != "") if ((parent "*") in exception) return 1
    return 0
}
function folder_of(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/)) : "" }
function file_limit(path) {
    if (path ~ /\.h$/) return 120
    return path ~ /^tools\/[^\/]*\/drt_[^\/]*\.c$/ ? 200 : 600
}
function end_file() {
    if (current == "") return
    if (lines > file_limit(current) && !excepted(current)) complain(current ": " lines " lines, limit " file_limit(current))
    length_of[current] = lines
}

# ---- lengths of functions, outside of tests
# C: a body starts with a line that ends in ") {" at column 0 or on a continued line of the head, and ends with "}" at column 0.
# CUDA and C++: a function starts with the first line at column 0 (template, static, ...), a method four columns in.
function check_length(name) {
    if (FNR - start + 1 > 80) complain(FILENAME ":" start ": " name " of " FNR - start + 1 " lines, limit 80")
}
function measure_c() {
    if (/^[^ \t#}].*\) \{$/ || (/^[^ \t#].*\{$/ && /\)/) || (/^    .*\) \{$/ && !start)) start = FNR
    if (/^}/) { if (start) check_length("function"); start = 0 }
}
function measure_cuda() {
    if (/^[a-z]/ && !start) { start = FNR; kind = /struct [a-z_]+( :.*)? \{$/ ? "struct" : "function" }
    if (/^    [a-z_].*\{$/ && kind == "struct") { start = FNR; kind = "method" }
    if (/^    }$/ && kind == "method") { check_length("method"); kind = "struct" }
    if (/^[a-z].*;$/ && kind == "function") start = 0
    if (/^}/) { if (kind == "function") check_length("function"); start = 0; kind = "" }
}

# ---- parameters: of functions (at column 0) and of methods and function pointers (members of a struct, four columns in)
function count_parameters(text,    i, c, depth, angle, count) {
    gsub(/\/\*[^*]*\*\//, "", text)
    gsub(/__(launch_bounds|align|attribute)__ *\(+[^()]*\)+/, "", text)
    gsub(/alignas\([^()]*\)/, "", text)
    if (match(text, /\(\*[a-z0-9_]+\)\(/)) text = substr(text, RSTART + RLENGTH - 1)
    else if (match(text, /[a-zA-Z0-9_]\(/)) text = substr(text, RSTART + 1)
    else return 0
    if (text ~ /^\( *(void)? *\)/) return 0
    count = 1
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "(") depth++
        else if (c == ")") { if (--depth == 0) break }
        else if (c == "<") angle++
        else if (c == ">" && angle > 0) angle--
        else if (c == "," && depth == 1 && angle == 0) count++
    }
    return count
}
function end_declaration(    count) {
    count = declaration ~ /,.*,.*,.*,.*,.*,.*,/ ? count_parameters(declaration) : 0
    if (count > 8 && !excepted(FILENAME)) complain(FILENAME ":" begun ": " count " parameters, limit 8")
    declaration = ""
}
function read_declaration(    text) {
    text = $0
    if (text ~ /\/\*/) gsub(/\/\*.*\*\//, "", text)
    sub(/\/\/.*/, "", text)
    gsub(/[<>]=/, "", text)                                # a comparison in __launch_bounds__ ends no declaration
    if (declaration == "") {
        if (/^[a-z_].*\(/ && !/^(typedef|return|case|else|enum [a-z_]* \{)/) begun = FNR
        else if (member && /^    [a-z_].*\(/) begun = FNR
        else begun = 0
        if (!begun && /^[a-z]/) begun = FNR
        if (/^[a-z].*struct [a-z0-9_]+( :[^(]*)? \{/ || /^struct [a-z0-9_]+( :[^(]*)? \{/)
            member = !/};$/                                # a struct of one line has ended
        if (/^}/) member = 0
        if (!begun) return
    }
    declaration = declaration " " text
    if (text ~ /[;{}=]/) end_declaration()
    else if (length(declaration) > 4000) declaration = ""
}

BEGIN {
    n = split(exceptions, rows, "\n")
    for (i = 1; i <= n; i++) { split(rows[i], word, " "); if (word[1] != "") exception[word[1]] = 1 }
    n = split(files, all, "\n")
    for (i = 1; i <= n; i++)
        for (path = all[i]; path != ""; path = parent) {
            parent = path
            sub(/[^\/]*\/?$/, "", parent)
            if (!(path in seen) && path !~ /^\./) { seen[path] = 1; entries[parent]++ }     # of the root what ls shows
        }
}
FNR == 1 {
    end_file()
    current = FILENAME; start = member = 0; kind = declaration = ""
    cuda = FILENAME ~ /\.(cu|cuh)$/; tests = FILENAME ~ /^tests\//
}
{
    lines = FNR
    if (length($0) > 120) {
        text = $0
        gsub(/[\200-\277]/, "", text)                      # bytes of a character after its first
        if (length(text) > 120) complain(FILENAME ":" FNR ": line of " length(text) " columns, limit 120")
    }
    if (continued) { continued = /\\$/; next }             # macros have as many parameters as they like
    if (/^ *#/) { continued = /\\$/; next }
    if (!tests && cuda) measure_cuda()
    else if (!tests && FILENAME ~ /\.c$/) measure_c()
    read_declaration()
}
END {
    end_file()
    # A unit is a source file and its header.
    for (path in length_of) {
        if (path ~ /^tests\// || path !~ /\.(c|cu|cpp)$/ || excepted(path)) continue
        header = path
        sub(/\.[a-z]*$/, ".h", header)
        size = length_of[path] + length_of[header]
        if (size < 40) complain(path ": a unit of " size " lines: join it with its neighbour")
    }
    for (path in entries)
        if (entries[path] > 25 && !excepted(path)) complain((path == "" ? "the root" : path) ": " entries[path] " entries, limit 25")
    exit bad
}' "${sources[@]}"
