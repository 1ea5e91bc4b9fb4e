#!/usr/bin/env bash
# ROUGE equals that of the Python package rouge-score, on random texts.
. "$DRT_SOURCE/tests/cli/lib.sh" || exit 1
PROGRAM=$BIN/../tests/test_rouge
[ -x "$PROGRAM" ] || skip "test_rouge is not built"
python3 -c 'import rouge_score' 2>/dev/null || skip "python3 has no rouge_score (pip install rouge-score)"
expect 0 python3 "$SOURCE/tests/oracles/rouge.py" "$PROGRAM" 500
