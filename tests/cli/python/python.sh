#!/usr/bin/env bash
# The Python package: its test suite, in the layout of a wheel (the sources with libdrt and the bundled model beside them).
. "$DRT_SOURCE/tests/cli/lib.sh"
BUILD=$(dirname "$BIN")
[ -e "$BUILD/libdrt.so.1" ] || skip "libdrt is not built (builds with sanitizers have none)"
needs drt-index drt-model drt-generate drt-eval
python=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import numpy, pytest' >/dev/null 2>&1 && { python=$candidate; break; }
done
[ -n "$python" ] || skip "no python3 with numpy and pytest: run cmake/setup.sh"

expect 0 cmake --install "$BUILD" --component python --prefix "$TMP/site"
cp "$SOURCE"/library/python/drt/*.py "$TMP/site/drt/"
# The library is stripped, complete, and the only one.
same "$(cd "$TMP/site/drt" && find . -name 'lib*' -o -name '*.safetensors' | sort | tr '\n' ' ')" \
    "./libdrt.so.1 ./share/drt/models/drt-28m/model.safetensors "
! readelf -S "$TMP/site/drt/libdrt.so.1" | grep -q '\.debug_info' || die "libdrt.so.1 is not stripped"

# Type hints, if mypy is installed.
if "$python" -c 'import mypy' >/dev/null 2>&1; then
    (cd "$SOURCE" && "$python" -m mypy --cache-dir "$TMP/mypy") >"$OUT" 2>&1 || die "mypy --strict"
fi

export PYTHONPATH=$TMP/site PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=2
unset DRT_LIBRARY
"$python" -m pytest -q --tb=short -p no:cacheprovider --basetemp "$TMP/pytest" "$SOURCE/tests/cli/python" >"$OUT" 2>&1 ||
    { tail -n 80 "$OUT" >&2; die "the Python package's tests"; }
tail -n 1 "$OUT"
exit 0
