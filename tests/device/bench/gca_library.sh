#!/usr/bin/env bash
# gca_library.sh OUT.so [NVCC OPTIONS] -- grouped cross-attention as a shared library, for tests/bench/peers/gca_peer.py.
set -eu
out=$(realpath -m "${1:?usage: tests/device/bench/gca_library.sh OUT.so [NVCC OPTIONS]}")
shift
cd "$(dirname "$0")/../../.."
nvcc -shared -Xcompiler -fPIC -std=c++20 -O3 -I. -gencode arch=compute_90a,code=sm_90a "$@" -o "$out" \
    tests/device/bench/gca_library.cu kernels/attention/gca_cuda.cu kernels/attention/attend_cuda.cu \
    kernels/attention/window/window_cuda.cu
