#!/usr/bin/env bash
# Layers: which folder may include which (CONTRIBUTING.md). Every include is written from the repository's root.
set -u
cd "$DRT_SOURCE" || exit 1
files=$(git ls-files -co --exclude-standard 2>/dev/null) || { echo "skipped: not a git checkout"; exit 77; }
mapfile -t sources < <(grep -E '^(base|kernels|model|data|store|encoder|decoder|indexer|train|session|library|include|tools|tests)/.*\.(c|h|cu|cuh|cpp)$' <<<"$files" |
                       while read -r f; do [ -f "$f" ] && echo "$f"; done)
awk -v files="$files" '
function complain(what) { print FILENAME ":" FNR ": " what; bad = 1 }
BEGIN {
    may["base"] = "base"
    may["kernels"] = "base kernels"
    may["data"] = "base data"
    may["store"] = "base store"
    may["model"] = "base kernels model"
    may["encoder"] = "base kernels model encoder"
    may["decoder"] = "base kernels model decoder"
    may["indexer"] = "base kernels model data store encoder decoder indexer"
    may["train"] = "base kernels model data store encoder decoder train"
    may["session"] = "base kernels model data store encoder decoder indexer session"
    may["include"] = ""
    may["library"] = may["session"] " library include"
    may["tools"] = may["session"] " train tools include"
    may["tests"] = may["tools"] " library tests"
    # Third-party libraries that only one unit may include.
    wraps["faiss/"] = "store/index/vectors"
    wraps["lmdb.h"] = "store/catalog/catalog"
    wraps["cblas.h"] = "kernels/"
    n = split(files, all, "\n")
    for (i = 1; i <= n; i++) exists[all[i]] = 1
}
FNR == 1 { folder = FILENAME; sub(/\/.*/, "", folder) }
/^ *# *include *</ && folder != "tests" {
    for (header in wraps)
        if (index($0, "<" header) && index(FILENAME, wraps[header]) != 1) complain("only " wraps[header] " may include <" header)
}
/^ *# *include *"/ {
    target = $0
    sub(/^[^"]*"/, "", target)
    sub(/".*/, "", target)
    top = target
    sub(/\/.*/, "", top)
    if (index(" " may[folder] " ", " " top " ") == 0) complain(folder "/ may not include " target)
    if (target ~ /_internal\.h$/ && folder != "tests" && folder != top) complain(target " is internal to " top "/")
    if (!(target in exists)) complain(target " is not written from the repository'\''s root")
}
END { exit bad }' "${sources[@]}"
