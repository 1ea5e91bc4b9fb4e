# docs/training-keys.md has one row for each key of drt-train --help, with its default and its text, and no other rows.
. "$DRT_SOURCE/tests/cli/lib.sh" || exit 1
needs drt-train
expect 0 "$BIN/drt-train" --help
sed -n '/^Keys of a config/,$p' "$OUT" | sed -nE 's/^  ([a-z_.0-9]+) +(.*)$/\1\t\2/p' |
    awk -F'\t' '{ text = $2; value = ""
        if (match(text, / \(default: [^()]*\)$/)) { value = substr(text, RSTART + 11, RLENGTH - 12); text = substr(text, 1, RSTART - 1) }
        print $1 "\t" value "\t" text }' >"$TMP/program"
sed -nE 's/^\| `([a-z_.0-9]+)` \| [a-z ]+ \| (`([^`]*)` )?\| (.*) \|$/\1\t\3\t\4/p' "$SOURCE/docs/training-keys.md" >"$TMP/page"
[ "$(wc -l <"$TMP/program")" -ge 50 ] || die "drt-train --help: its keys cannot be read"
diff -u "$TMP/page" "$TMP/program" >"$OUT" || die "docs/training-keys.md (-) differs from drt-train --help (+)"
