#!/usr/bin/env bash
# cmake --install, as users of the library see it. The examples and the code of docs/library.md are built with pkg-config and with CMake, in
# C and in C++, shared and static, and give the results of the programs; the library exports the functions of drt.h alone.
. "$DRT_SOURCE/tests/cli/library/lib_library.sh"

first=$TMP/first
expect 0 cmake --install "$BUILD" --prefix "$first"
# An installation may be moved.
prefix=$TMP/moved
mv "$first" "$prefix"
header=$prefix/include/drt.h
lib=$(dirname "$(find "$prefix" -name libdrt.so)")
for program in "$BIN"/drt-*; do
    name=$(basename "$program")
    case $name in *-fault) continue ;; esac
    [ -x "$prefix/bin/$name" ] || die "$name is not installed"
    [ -s "$prefix/share/man/man1/$name.1" ] || die "$name has no man page"
done
[ -s "$prefix/share/drt/models/drt-28m/model.safetensors" ] || die "the model is not installed"
! grep -rqF "$first" "$lib/pkgconfig" "$lib/cmake" || die "a file names the folder of the installation"
! grep -rqF "$BUILD" "$lib/pkgconfig" "$lib/cmake" || die "a file names the folder of the build"

# ---- exported symbols, and needed libraries
declared "$header" >"$TMP/declared"
[ "$(wc -l <"$TMP/declared")" -gt 50 ] || die "drt.h declares $(wc -l <"$TMP/declared") functions"
nm -D --defined-only "$lib/libdrt.so" | awk '$2 != "A" { print $3 }' | sort >"$TMP/exported"
sed 's/$/@@DRT_1/' "$TMP/declared" | diff - "$TMP/exported" >"$OUT" || die "libdrt.so exports something else than drt.h declares"
nm -g --defined-only "$lib/libdrt.a" | awk '$2 ~ /[TDBRW]/ { print $3 }' | sort | diff "$TMP/declared" - >"$OUT" ||
    die "libdrt.a defines something else than drt.h declares"
# Every function is listed in cmake/symbols with its first version, so that none appears or disappears unnoticed. A test calls each.
sed -n 's/^ \(drt_[a-z_]*\)@DRT_1 [0-9.]*$/\1/p' "$SOURCE/cmake/symbols" | diff - "$TMP/declared" >"$OUT" || die "cmake/symbols has other functions than drt.h"
while read -r function; do
    grep -rqw "$function" "$SOURCE/tests/unit/library" || die "no test in tests/unit/library calls $function"
done <"$TMP/declared"
# The man page of the header has each function, and is well-formed.
page=$prefix/share/man/man3/libdrt.3
while read -r function; do
    grep -qE "[ *]$function\(" "$page" || die "libdrt.3 lacks $function"
done <"$TMP/declared"
if command -v groff >/dev/null; then
    groff -man -ww -Tutf8 -z "$page" 2>"$ERR" || die "groff refuses $page"
    [ ! -s "$ERR" ] || die "groff warns of $page"
fi
readelf -d "$lib/libdrt.so" >"$OUT"
out_has "Library soname: [libdrt.so.1]"
out_lacks "RPATH"
out_lacks "RUNPATH"
out_lacks "libstdc++"
[ -n "$(find "$SOURCE/.deps" -name 'libfaiss.a' 2>/dev/null)" ] && out_lacks "faiss"
same "$(readlink "$lib/libdrt.so.1")" libdrt.so.1.0.0

# ---- the header alone, in each language that it supports
for language in c99 c11 gnu2x; do
    expect 0 gcc -x c "-std=$language" $STRICT -fsyntax-only "$header"
done
for language in c++11 c++20; do
    expect 0 g++ -x c++ "-std=$language" $STRICT -fsyntax-only "$header"
done

# ---- pkg-config
export PKG_CONFIG_PATH=$lib/pkgconfig
same "$(pkg-config --modversion drt)" "$("$prefix/bin/drt-index" --version | sed -n 's/^drt-index \([0-9.]*\).*/\1/p')" "versions"
shared=$(pkg-config --cflags --libs drt)
static="$(pkg-config --cflags drt) -Wl,-Bstatic -L$lib -ldrt -Wl,-Bdynamic $(pkg-config --static --libs-only-l drt | sed 's/-ldrt//')"
examples=$prefix/share/doc/libdrt-dev/examples
# The code of docs/library.md: each block is a file of its own.
awk -v to="$TMP/block" '/^```c$/ { name = to (++n) ".c"; on = 1; next } /^```$/ { on = 0 } on { print > name }' \
    "$prefix/share/doc/libdrt-dev/library.md"
[ -s "$TMP/block1.c" ] && [ -s "$TMP/block2.c" ] || die "docs/library.md has no code"
mkdir "$TMP/pc" "$TMP/static" "$TMP/cpp"
for source in "$examples/search_store.c" "$examples/generate_text.c" "$TMP"/block*.c; do
    name=$(basename "$source" .c)
    expect 0 gcc -std=c99 $STRICT "$source" -o "$TMP/pc/$name" $shared
    expect 0 g++ -x c++ -std=c++17 $STRICT "$source" -o "$TMP/cpp/$name" $shared
done
expect 0 gcc -std=c99 $STRICT "$examples/search_store.c" -o "$TMP/static/search_store" $static
! readelf -d "$TMP/static/search_store" | grep -q libdrt || die "the static example needs libdrt.so"

# ---- CMake
expect 0 cmake -S "$examples" -B "$TMP/cmake" "-DCMAKE_PREFIX_PATH=$prefix"
expect 0 cmake --build "$TMP/cmake"
sed 's/drt::drt/drt::static/' "$examples/CMakeLists.txt" >"$TMP/CMakeLists.txt"
cp "$examples"/*.c "$TMP"
expect 0 cmake -S "$TMP" -B "$TMP/cmake-static" "-DCMAKE_PREFIX_PATH=$prefix"
expect 0 cmake --build "$TMP/cmake-static" --target search_store
sed 's/drt 0.1/drt 9.9/' "$examples/CMakeLists.txt" >"$TMP/CMakeLists.txt"
expect 1 cmake -S "$TMP" -B "$TMP/cmake-newer" "-DCMAKE_PREFIX_PATH=$prefix"
err_has "9.9"

# ---- the programs run: they find the bundled model beside the library
a_store "$TMP/store" "$prefix"
same_answers "$prefix" "$TMP/store" "$TMP/cmake/search_store" "$TMP/cmake/generate_text"
export LD_LIBRARY_PATH=$lib
same_answers "$prefix" "$TMP/store" "$TMP/pc/search_store" "$TMP/pc/generate_text"
unset LD_LIBRARY_PATH
# A program with libdrt.a looks for the model near itself.
for program in "$TMP/static/search_store" "$TMP/cmake-static/search_store"; do
    expect 1 "$program" "$TMP/store" "$QUERY"
    err_has "name a model folder"
    expect 0 "$program" "$TMP/store" "$QUERY" "$prefix/share/drt/models/drt-28m"
    cut -f 3 "$OUT" >"$TMP/found"
    "$prefix/bin/drt-index" search "$QUERY" --store "$TMP/store" --k 5 --json 2>/dev/null | sed -E 's/.*"chunk":([0-9]+).*/\1/' | cmp -s - "$TMP/found" ||
        die "$program finds other chunks than drt-index"
done
# Those of docs/library.md.
export LD_LIBRARY_PATH=$lib
cd "$TMP" || exit 1
asked=$(sed -n 's/.*query = "\(.*\)";/\1/p' "$TMP/block1.c")
[ -n "$asked" ] || die "block 1 of docs/library.md has no query"
"$prefix/bin/drt-index" search "$asked" --store "$TMP/store" --k 10 --json 2>/dev/null |
    sed -E 's/.*"source":"([^"]*)".*"token_offset":([0-9]+).*/\1, token \2/' >"$TMP/expected"
same "$(wc -l <"$TMP/expected")" 10 "hits of drt-index"
for language in pc cpp; do
    expect 0 "$TMP/$language/block1"
    cut -d ' ' -f 2- "$OUT" | cmp -s - "$TMP/expected" || die "block 1 of docs/library.md finds other chunks than drt-index"
    expect 0 "$TMP/$language/block2"
    [ -s "$OUT" ] || die "block 2 of docs/library.md writes nothing"
done
exit 0
