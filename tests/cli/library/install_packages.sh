#!/usr/bin/env bash
# The Debian packages: unpacked into one folder they give working programs, a library and examples; they depend on packages of Debian only;
# no file is in two of them.
. "$DRT_SOURCE/tests/cli/library/lib_library.sh"
for tool in cpack dpkg-deb dpkg-shlibdeps dpkg-query file; do
    command -v $tool >/dev/null || skip "$tool is not installed: run cmake/setup.sh"
done

expect 0 cpack --config "$BUILD/CPackConfig.cmake" -B "$TMP/packages"
architecture=$(dpkg --print-architecture)
version=$("$BIN/drt-index" --version | sed -n 's/^drt-index \([0-9.]*\).*/\1/p')
root=$TMP/root
mkdir "$root"
for package in drt libdrt1 libdrt-dev; do
    deb=$TMP/packages/${package}_${version}_$architecture.deb
    [ -s "$deb" ] || die "there is no $(basename "$deb")"
    same "$(dpkg-deb -f "$deb" Package)" $package "name"
    same "$(dpkg-deb -f "$deb" Version)" "$version" "version of $package"
    dpkg-deb -c "$deb" | awk '$1 !~ /^d/ { print $6 }' >>"$TMP/files"
    # Owned by root, readable by all.
    dpkg-deb -c "$deb" | awk '$2 != "root/root" || $1 !~ /^([-d].*r..$|l)/' >"$OUT"
    [ ! -s "$OUT" ] || die "owners or modes in $package"
    expect 0 dpkg-deb -x "$deb" "$root"
    grep -q "^License: to be chosen by the owner" "$root/usr/share/doc/$package/copyright" || die "$package: licence"
    dpkg-deb -f "$deb" Depends | tr ',' '\n' | sed -E 's/^ *([^ (|]+).*/\1/' >"$TMP/depends-$package"
done
same "$(sort "$TMP/files" | uniq -d)" "" "files in two packages"

# dpkg-shlibdeps reads which libraries programs and library need: each package must depend on the packages of these.
grep -qx libdrt1 "$TMP/depends-libdrt-dev" || die "libdrt-dev does not depend on libdrt1"
for package in drt libdrt1; do
    grep -qx libc6 "$TMP/depends-$package" && grep -qx liblmdb0 "$TMP/depends-$package" || die "$package lacks a dependency"
    while read -r dependency; do
        same "$(dpkg-query -W -f '${db:Status-Status}' "$dependency" 2>/dev/null)" installed "state of $dependency, which $package needs"
    done <"$TMP/depends-$package"
done
dpkg-deb --ctrl-tarfile "$TMP/packages/libdrt1_${version}_$architecture.deb" | tar -xO ./shlibs >"$OUT" 2>/dev/null
out_has "libdrt 1 libdrt1 (>= $version)"
dpkg-deb --ctrl-tarfile "$TMP/packages/libdrt1_${version}_$architecture.deb" | tar -xO ./symbols | cmp -s - "$SOURCE/cmake/symbols" ||
    die "libdrt1 has no list of symbols"
find "$root/usr/bin" "$root/usr/lib" -type f \( -name 'drt-*' -o -name 'libdrt.so.*' \) ! -name '*.cmake' | while read -r file; do
    ldd "$file" 2>/dev/null | awk '/not found|\.deps|\/build/' | grep . >&2 && exit 1
    ! readelf -S "$file" | grep -q '\.debug_info' || { echo "$file is not stripped" >&2; exit 1; }
done || die "a program or the library needs what no package has"

# The packages together have all files of cmake --install, so that no component is forgotten.
expect 0 cmake --install "$BUILD" --prefix "$TMP/whole/usr"
diff <(cd "$TMP/whole/usr" && find . ! -type d | sort) <(cd "$root/usr" && find . ! -type d | sort) >"$OUT" || die "files that are installed and in no package"

# A program of a user, built against libdrt-dev.
lib=$(dirname "$(find "$root/usr/lib" -name libdrt.so)")
export PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=
for name in search_store generate_text; do
    expect 0 gcc $STRICT "$root/usr/share/doc/libdrt-dev/examples/$name.c" -o "$TMP/$name" $(pkg-config --cflags --libs drt)
done
# The loader may name the library by a link, as Debian's /lib/x86_64-linux-gnu: the model is beside the link's target.
ln -s "$root/usr/lib" "$TMP/lib"
export LD_LIBRARY_PATH=$TMP/lib${lib#"$root/usr/lib"}
a_store "$TMP/store" "$root/usr"
same_answers "$root/usr" "$TMP/store" "$TMP/search_store" "$TMP/generate_text"
exit 0
