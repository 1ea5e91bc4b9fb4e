#!/usr/bin/env bash
# clang-format on sources (headers are laid out by hand: their comments are tables).
set -u
cd "$DRT_SOURCE" || exit 1
command -v clang-format >/dev/null || { echo "skipped: clang-format is not installed"; exit 77; }
[ "$(clang-format --version | sed 's/.*version \([0-9]*\).*/\1/')" = 14 ] || { echo "skipped: the layout is clang-format 14's"; exit 77; }
git ls-files '*.c' | xargs clang-format --dry-run -Werror 2>&1 | head -20
[ "${PIPESTATUS[1]}" = 0 ]
