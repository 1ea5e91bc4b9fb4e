#!/usr/bin/env bash
# Rooms that a reader can hold in mind: files to 600 lines, headers to 120, functions to 80, programs' mains to 200.
# An exception is listed here with its reason.
set -u
cd "$DRT_SOURCE" || exit 1
exceptions="
store/store.h       the store's whole public face, read as one page
tests/test.h        every check in one header
tests/bench/op_clock.h   a wrapper for each op of a training step
"
bad=0
for file in $(git ls-files '*.c' '*.h' '*.cu' '*.cuh' 2>/dev/null || find base kernels model data store encoder decoder indexer train tools tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh'); do
    [ -f "$file" ] || continue
    grep -q "^$file " <<<"$exceptions" && continue
    lines=$(wc -l <"$file")
    limit=600
    case $file in *.h) limit=120 ;; tools/*/drt_*.c) limit=200 ;; esac
    [ "$lines" -le $limit ] || { echo "$file: $lines lines, limit $limit"; bad=1; }
done
# A function's body starts with a line that ends in ") {" at column 0 and ends with "}" at column 0.
for file in $(git ls-files 'base/*.c' 'kernels/*.c' 'model/*.c' 'data/*.c' 'store/*.c' 'encoder/*.c' 'decoder/*.c' 'indexer/*.c' 'train/*.c' 'tools/*.c' 2>/dev/null); do
    [ -f "$file" ] || continue
    awk -v file="$file" '/^[^ \t#}].*\) \{$/ || /^[^ \t#].*\{$/ && /\)/ { start = NR; name = $0 }
        /^    .*\) \{$/ && start == 0 { start = NR; name = $0 }
        /^}/ { if (start && NR - start + 1 > 80) { print file ":" start ": function of " NR - start + 1 " lines, limit 80"; bad = 1 } start = 0 }
        END { exit bad }' "$file" || bad=1
done
# CUDA: a function begins with the first line at column 0 (template, static, ...), a struct's with its name, four columns in.
for file in $(git ls-files 'kernels/*.cu' 'kernels/*.cuh' 2>/dev/null); do
    [ -f "$file" ] || continue
    awk -v file="$file" 'function check(name) { if (NR - start + 1 > 80) { print file ":" start ": " name " of " NR - start + 1 " lines, limit 80"; bad = 1 } }
        /^[a-z]/ && !start { start = NR; kind = /struct [a-z_]+( :.*)? \{$/ ? "struct" : "function" }
        /^    [a-z_].*\{$/ && kind == "struct" { start = NR; kind = "method" }
        /^    }$/ && kind == "method" { check("method"); kind = "struct" }
        /^[a-z].*;$/ && kind == "function" { start = 0 }
        /^}/ { if (kind == "function") check("function"); start = 0; kind = "" }
        END { exit bad }' "$file" || bad=1
done
exit $bad
