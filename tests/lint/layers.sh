#!/usr/bin/env bash
# Layers: which folder may include which (CONTRIBUTING.md). Every include is written from the repository's root.
set -u
cd "$DRT_SOURCE" || exit 1
declare -A may=([base]="base" [kernels]="base kernels" [data]="base data" [store]="base store"
    [model]="base kernels model" [encoder]="base kernels model encoder" [decoder]="base kernels model decoder"
    [indexer]="base kernels model data store encoder decoder indexer"
    [train]="base kernels model data encoder decoder train"
    [tools]="base kernels model data store encoder decoder indexer train tools"
    [tests]="base kernels model data store encoder decoder indexer train tools tests")
bad=0
while IFS=: read -r file line text; do
    folder=${file%%/*}
    target=$(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' <<<"$text")
    [ -z "$target" ] && continue
    case " ${may[$folder]} " in
    *" ${target%%/*} "*) ;;
    *) echo "$file:$line: $folder/ may not include $target"; bad=1 ;;
    esac
    case $target in
    *_internal.h)
        [ "$folder" = tests ] || [ "${target%%/*}" = "$folder" ] || { echo "$file:$line: $target is internal to ${target%%/*}/"; bad=1; } ;;
    esac
    [ -f "$target" ] || { echo "$file:$line: $target is not written from the repository's root"; bad=1; }
done < <(grep -rnE '^ *# *include *"' base kernels model data store encoder decoder indexer train tools tests --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.cpp')
# libfaiss and lmdb each have one door.
for pair in "faiss/:store/index/vectors" "lmdb.h:store/catalog/catalog" "cblas.h:kernels/"; do
    grep -rlE "include *<${pair%%:*}" base kernels model data store encoder decoder indexer train tools --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.cpp' |
        grep -vE "^(${pair#*:})" | sed "s#\$#: only ${pair#*:} may include <${pair%%:*}>#" | grep . && bad=1
done
exit $bad
