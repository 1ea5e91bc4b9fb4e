#!/usr/bin/env bash
# Words that are not used: the table of CONTRIBUTING.md names a pattern and the files that it applies to.
set -u
cd "$DRT_SOURCE" || exit 1
bad=0 rows=0
files() { git ls-files -- "$@" | grep -E '\.(c|h|cu|cuh|cpp|inc|sh|md|py|cmake|html)$|^(check|quickstart)$' |
          grep -vE '^(CONTRIBUTING|CHANGELOG)\.md$|^data/models/|^tests/bench/results/'; }
while IFS=$'\t' read -r not but pattern where; do
    rows=$((rows + 1))
    [ "$where" = '*' ] && where=.
    # shellcheck disable=SC2086
    if files $where | xargs -d '\n' grep -HniP -- "$pattern" | cut -c1-160 | sed "s/\$/    <- \"$but\", not \"$not\"/" | grep .; then bad=1; fi
done < <(sed -n '/^### Words that are not used/,/^## /p' CONTRIBUTING.md | grep -E '^\| .*\| `' |
         sed -E 's/\\\|/\x01/g; s/^\| //; s/ \|$//; s/ \| /\t/g; s/\x01/|/g; s/`//g')
[ $rows -ge 20 ] || { echo "CONTRIBUTING.md: the table of words has $rows rows that can be read"; exit 1; }
exit $bad
