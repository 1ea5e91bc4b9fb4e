#!/usr/bin/env bash
# compare.sh -- decoding, GCA, a training step, encode and search of two builds on this GPU, in turns: the ratio and its
# interval of 95 %.
#
#   tests/device/bench/compare.sh OLD_FOLDER NEW_FOLDER [--pairs N] [--case decode|gca|train|encode|search] [--json FILE]
#
# Each folder has the output of one commit's tests/device/portable.sh:
#   tests/device/portable.sh --out FOLDER bench_device bench_device_corpus bench_train bench_attention
# For a commit whose CMake files do not build bench_attention, `tests/device/run_attention.sh FOLDER` makes it; without it the case gca is
# skipped. The GPU machine needs python3, the driver and CUDA 13's libraries. See tests/bench/compare.py.
set -eu
[ $# -ge 2 ] || { sed -n '5s/^# *//p' "$0" >&2; exit 2; }
DRT_GPU=${DRT_GPU:-$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)}
export DRT_GPU PYTHONDONTWRITEBYTECODE=1
exec python3 "$(dirname "$0")/../../bench/compare.py" gpu "$@"
