#!/usr/bin/env bash
# sysroot.sh [FOLDER] -- fills a folder (default: .deps-arm64 of this checkout) with the arm64 libraries that the build
# needs, for cmake --preset arm64. The system is not changed: a private apt configuration downloads the packages of this
# system's release for arm64, with their dependencies, and they are unpacked. On a release before Debian 13, FAISS's C
# library is that of Debian 13, as in cmake/setup.sh. If the folder is complete, the script does nothing.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
root=${1:-$source/.deps-arm64}

say() { printf '%s\n' "sysroot.sh: $*" >&2; }
die() { say "$*"; exit 1; }

[ -f "$root/complete" ] && exit 0
command -v apt-get dpkg-deb >/dev/null || die "this script knows Debian only; elsewhere pass -DCMAKE_SYSROOT of an arm64 system"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -f $keys ] || die "$keys is missing: install the package debian-archive-keyring"
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
line=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' | sort -u |
       grep -E "^Debian Debian $codename " | head -n 1 || true)
mirror=${line##* }
[ -n "$mirror" ] || die "no Debian mirror of $codename in apt's sources: run apt-get update first"

libraries=(libc6-dev libstdc++-12-dev libgomp1 liblmdb-dev libopenblas-dev libpcre2-dev libutf8proc-dev zlib1g-dev
           libzstd-dev liblzma-dev libsnappy-dev liblz4-dev libbrotli-dev libxxhash-dev libmicrohttpd-dev)
[ "$codename" = bookworm ] || libraries=("${libraries[@]/libstdc++-12-dev/libstdc++-14-dev}")

# fetch SUITE COMMAND... -- runs apt-get COMMAND for arm64 in $apt, with no package installed; archives are kept in $apt/got.
fetch() {
    local suite=$1 apt=$root/apt-$1
    shift
    mkdir -p "$apt"/{lists/partial,cache/archives/partial,parts,got}
    : >"$apt/status"
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' "$mirror" "$suite" $keys >"$apt/parts/$suite.sources"
    local options=(-qq -y --no-install-recommends -o APT::Architecture=arm64 -o APT::Architectures::=arm64
                   -o "Dir::State=$apt" -o "Dir::State::status=$apt/status" -o "Dir::State::Lists=$apt/lists"
                   -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$apt/parts" -o "Dir::Cache=$apt/cache"
                   -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null)
    [ "$(id -u)" = 0 ] && options+=(-o APT::Sandbox::User=root)
    apt-get "${options[@]}" update >&2 || die "could not read the list of arm64 packages of $suite at $mirror"
    (cd "$apt/got" && apt-get "${options[@]}" "$@" >&2) || die "could not download: $*"
}

rm -rf "$root"
mkdir -p "$root/usr/lib"
ln -s usr/lib "$root/lib"                  # as in an installed system, because libc6 has its files in lib/
say "downloading arm64 libraries of Debian $codename into $root"
fetch "$codename" install --download-only "${libraries[@]}"
for package in "$root/apt-$codename"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink
done
# The links of alternatives are made when a package is installed, so they are made here.
multiarch=$root/usr/lib/aarch64-linux-gnu
for file in "$multiarch"/openblas-pthread/*.so* "$root"/usr/include/aarch64-linux-gnu/openblas-pthread/*.h; do
    [ -e "${file%/*/*}/${file##*/}" ] || ln -s "openblas-pthread/${file##*/}" "${file%/*/*}/${file##*/}"
done
if ! ls "$multiarch"/libfaiss_c.* >/dev/null 2>&1; then
    say "taking libfaiss-dev (C library) from Debian 13"
    fetch trixie download libfaiss-dev
    dpkg-deb --fsys-tarfile "$root"/apt-trixie/got/libfaiss-dev_*.deb | tar -x -C "$root" --keep-directory-symlink
fi
# Absolute links are relative to the root of an installed system, so they are changed.
find "$root/usr" -type l -lname '/*' | while read -r link; do
    ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$root$(readlink "$link")")" "$link"
done
rm -rf "$root"/apt-*
touch "$root/complete"
say "$root is complete"
