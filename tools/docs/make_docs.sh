#!/usr/bin/env bash
# make_docs.sh -- makes docs/cli.md and the man pages from the programs' --help.
#
#   tools/docs/make_docs.sh PROGRAMS CLI_MD [MAN_FOLDER [VERSION]]
#   cmake --build build --target docs        the same, with build/bin, docs/cli.md and build/man/man1
#
# The option tables in the programs are the only source: --help prints them, and help.awk converts the text. help2man makes
# man pages, too, but no Markdown, and is one more package to install.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
programs=$1 cli=$2 man=${3:-} version=${4:-}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

convert() { # FORMAT NAME WHAT HELP_FILE SEE_ALSO
    awk -v format="$1" -v name="$2" -v what="$3" -v see="$5" -v version="${version:+drt $version}" -f "$here/help.awk" "$4"
}
# Lists the commands of an overview ("  name  what"), and those that a text refers to as "(program name --help)".
commands() {
    awk '/^Commands:$/ { on = 1; next } !/^ / { on = 0 } on { print $1 }' "$2"
    grep -oE "\($1 [a-z]+ --help\)" "$2" | awk '{ print $2 }' || true
}
what_of() { awk -v name="$2" '/^Commands:$/ { on = 1; next } on && $1 == name { sub(/^ *[^ ]+ +/, ""); print; exit }' "$1"; }
# Prints the first sentence of a text after the usage.
first_sentence() { awk '!body { if ($0 == "") body = 1; next } $0 == "" { exit } { print }' "$1" | tr '\n' ' ' | sed 's/\([^.]*\)\..*/\1/; s/ *$//'; }

page() { # NAME WHAT HELP_FILE SEE_ALSO
    convert md "$1" "$2" "$3" "" >>"$work/body.md"
    if [ -n "$man" ]; then convert man "$1" "$2" "$3" "$4" >"$man/${1// /-}.1"; fi
}

[ -z "$man" ] || mkdir -p "$man"
: >"$work/body.md"
: >"$work/contents.md"
for path in "$programs"/drt-*; do
    program=$(basename "$path")
    case $program in *-fault | 'drt-*') continue ;; esac
    "$path" --help >"$work/help"
    names=$(commands "$program" "$work/help")
    page "$program" "$(first_sentence "$work/help")" "$work/help" "$(for command in $names; do echo "$program-$command"; done)"
    links=
    for command in $names; do
        "$path" "$command" --help >"$work/command"
        what=$(what_of "$work/help" "$command")
        page "$program $command" "${what:-$(first_sentence "$work/command")}" "$work/command" "$program"
        links="$links${links:+, }[$command](#$program-$command)"
    done
    echo "- [$program](#$program)${links:+: $links}" >>"$work/contents.md"
done
[ -s "$work/contents.md" ] || { echo "make_docs.sh: $programs: no drt-* programs: build them first" >&2; exit 1; }
{
    cat <<'EOT'
# Command line

What each program prints for `--help`. This file is generated: change the option table of the program, then run
`cmake --build build --target docs`. The same command writes man pages to `build/man/man1`.

`--name VALUE` and `--name=VALUE` are equal; a letter such as `-n` takes its value as the next argument. Every program and command
has `--help` (`-h`) and `--version` (`-V`: the program, its commit, FAISS, CUDA, compiler). Results go to standard output, progress and errors to standard error. Exit code: 0 done, 1 failed (or stopped, or problems found), 2 wrong usage.

EOT
    cat "$work/contents.md"
    echo
    sed -e '$ { /^$/d }' "$work/body.md"
} >"$work/cli.md"
mv "$work/cli.md" "$cli"
