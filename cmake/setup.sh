#!/usr/bin/env bash
# setup.sh -- installs the missing packages for building and testing, on Debian 12 and 13.
#
# All packages come from the system's own Debian mirror. Debian 12's libfaiss-dev has no C library. On Debian 12 the
# package libfaiss-dev of Debian 13 is unpacked into .deps/, and no package of the system is upgraded.
# With --no-install it only prints missing packages, and fails if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "setup: $*" >&2; }
die() { say "$*"; exit 1; }

packages=(gcc g++ cmake ninja-build pkg-config liblmdb-dev libopenblas-dev libpcre2-dev libutf8proc-dev
          zlib1g-dev libzstd-dev liblzma-dev libsnappy-dev liblz4-dev libbrotli-dev libxxhash-dev
          libmicrohttpd-dev curl xz-utils zstd ca-certificates dpkg-dev file python3-numpy python3-pytest bindfs)
install=yes
[ "${1:-}" = --no-install ] && install=no

command -v dpkg-query >/dev/null ||
    die "this script knows Debian only; elsewhere install the libraries that cmake/dependencies.cmake names and run cmake --preset release"

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done

# Debian 13 and newer: FAISS's C library is in the distribution.
release=$(. /etc/os-release && echo "${VERSION_ID:-0}")
faiss_c=$(find /usr/lib /usr/local/lib .deps/usr/lib -name 'libfaiss_c.*' 2>/dev/null | head -n 1 || true)
if [ -z "$faiss_c" ] && [ "${release%%.*}" -ge 13 ]; then missing+=(libfaiss-dev); fi

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

if [ ${#missing[@]} -gt 0 ]; then
    [ $install = yes ] || die "missing packages: ${missing[*]}"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || die "missing packages: ${missing[*]}; run as root: apt-get install ${missing[*]}"
    say "installing: ${missing[*]}"
    as_root apt-get update -qq >&2 || say "apt-get update failed; continuing with the package lists that are already here"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        die "apt-get could not install: ${missing[*]}"
fi

# Debian 12: the same mirror's trixie suite, in a private apt configuration.
faiss_from_trixie() {
    local apt=$PWD/.deps/apt mirror keys line
    # indextargets lists nothing before the first update (new container images have no lists).
    line=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' | sort -u |
           grep -E '^Debian Debian bookworm ' | head -n 1 || true)
    mirror=${line##* }
    [ -n "$mirror" ] || die "no Debian mirror in apt's sources: run apt-get update first"
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -f $keys ] || die "$keys is missing: install the package debian-archive-keyring"
    mkdir -p "$apt"/{lists/partial,cache/archives/partial,parts}
    printf 'Types: deb\nURIs: %s\nSuites: trixie\nComponents: main\nSigned-By: %s\n' "$mirror" $keys >"$apt/parts/trixie.sources"
    local options=(-qq -o "Dir::State::Lists=$apt/lists" -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$apt/parts"
                   -o "Dir::Cache=$apt/cache" -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null)
    [ "$(id -u)" = 0 ] && options+=(-o APT::Sandbox::User=root)
    say "taking libfaiss-dev (C library) from Debian 13 into .deps/"
    apt-get "${options[@]}" update >&2 || die "could not read Debian 13's package list"
    (cd "$apt" && apt-get "${options[@]}" download libfaiss-dev >&2) || die "could not download libfaiss-dev"
    dpkg -x "$apt"/libfaiss-dev_*.deb .deps
    rm -rf "$apt"
}
if [ -z "$faiss_c" ] && [ "${release%%.*}" -lt 13 ]; then
    [ $install = yes ] || die "FAISS's C library is missing"
    faiss_from_trixie
fi
say "everything is there"
