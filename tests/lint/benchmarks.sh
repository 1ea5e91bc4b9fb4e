#!/usr/bin/env bash
# BENCHMARKS.md, its plots and the tables of README.md have the figures of the result files.
set -u
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 "$DRT_SOURCE/tests/bench/report.py" --check --root "$DRT_SOURCE"
