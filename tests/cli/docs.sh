#!/usr/bin/env bash
# docs/cli.md equals the current programs' --help, and their man pages are well-formed.
. "$DRT_SOURCE/tests/cli/lib.sh"
sanitized && skip "the texts are those of the release build, and other tests print them with sanitizers"
needs $(sed -n 's/^## \(drt-[a-z]*\)$/\1/p' "$SOURCE/docs/cli.md")

expect 0 bash "$SOURCE/tools/docs/make_docs.sh" "$BIN" "$TMP/cli.md" "$TMP/man1" 0.1.0
diff -u "$SOURCE/docs/cli.md" "$TMP/cli.md" >"$OUT" || die "docs/cli.md is not what the programs print: cmake --build build --target docs"

# Every command of every overview has a page with every option of its --help.
for program in "$BIN"/drt-*; do
    name=$(basename "$program")
    case $name in *-fault) continue ;; esac
    [ -s "$TMP/man1/$name.1" ] || die "no page for $name"
    for command in $("$program" --help | awk '/^Commands:$/ { on = 1; next } !/^ / { on = 0 } on { print $1 }'); do
        page=$TMP/man1/$name-$command.1
        [ -s "$page" ] || die "no page for $name $command"
        for option in $("$program" "$command" --help | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p' | grep -v '^help$'); do
            grep -qF -- "\\fB\\-\\-${option//-/\\-}\\fR" "$page" || die "$page lacks --$option"
        done
    done
done
if command -v groff >/dev/null; then
    for page in "$TMP"/man1/*.1; do
        groff -man -ww -Tutf8 -z "$page" 2>"$ERR" || die "groff refuses $page"
        [ ! -s "$ERR" ] || die "groff warns of $page"
    done
fi
# Wrong usage: one line, and no file is written.
expect 2 bash "$SOURCE/tools/docs/make_docs.sh"
mkdir "$TMP/empty"
expect 1 bash "$SOURCE/tools/docs/make_docs.sh" "$TMP/empty" "$TMP/none.md"
err_has "no drt-* programs"
[ ! -e "$TMP/none.md" ] || die "wrote a reference of no programs"
