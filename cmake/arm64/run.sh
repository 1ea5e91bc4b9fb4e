#!/usr/bin/env bash
# run.sh [LABELS] -- builds for 64-bit ARM (preset arm64) and runs the tests of these labels under qemu-aarch64, by default
# "^(twins|golden)$". It is not a part of ./check, because it needs packages that cmake/setup.sh does not install.
#
#   apt-get install g++-aarch64-linux-gnu qemu-user-static
set -euo pipefail
cd "$(dirname "$0")/../.."
labels=${1:-^(twins|golden)$}
for program in aarch64-linux-gnu-gcc:g++-aarch64-linux-gnu aarch64-linux-gnu-g++:g++-aarch64-linux-gnu \
               qemu-aarch64-static:qemu-user-static; do
    command -v "${program%%:*}" >/dev/null ||
        { echo "run.sh: ${program%%:*} is missing: install the package ${program##*:}" >&2; exit 1; }
done
cmake/arm64/sysroot.sh
cmake --preset arm64
cmake --build build-arm64 -j "$(nproc)"
ctest --test-dir build-arm64 -j "$(nproc)" --output-on-failure --no-tests=error -L "$labels"
