#!/usr/bin/env bash
# clang-format on .c files. Headers and CUDA sources are laid out by hand, because their comments are tables; sizes.sh limits
# the width of all of them.
set -u
cd "$DRT_SOURCE" || exit 1
command -v clang-format >/dev/null || { echo "skipped: clang-format is not installed"; exit 77; }
[ "$(clang-format --version | sed 's/.*version \([0-9]*\).*/\1/')" = 14 ] || { echo "skipped: the layout is clang-format 14's"; exit 77; }
git ls-files '*.c' | while read -r f; do [ -f "$f" ] && echo "$f"; done |
    xargs -P "$(nproc)" -n 32 clang-format --dry-run -Werror 2>&1 | head -20
[ "${PIPESTATUS[2]}" = 0 ]
