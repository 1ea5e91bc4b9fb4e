#!/usr/bin/env bash
# Form of the documents: a table has at most five columns and follows a sentence, and no two headings of a page have one anchor, since a
# link leads to the first of them only.
set -u
cd "$DRT_SOURCE" || exit 1
files=$(git ls-files -co --exclude-standard -- '*.md' 2>/dev/null) || { echo "skipped: not a git checkout"; exit 77; }
# docs/cli.md is generated from the help, and CHANGELOG.md has a heading of the same name for each release.
mapfile -t documents < <(grep -vE '^(docs/cli|CHANGELOG)\.md$' <<<"$files" | while read -r f; do [ -f "$f" ] && echo "$f"; done)
awk '
function complain(what) { print FILENAME ":" FNR ": " what; bad = 1 }
FNR == 1 { fenced = table = 0; last = "the start of the page" }
/^ *```/ { fenced = !fenced; last = "code"; table = 0; next }
fenced { next }
/^ *\|/ {
    if (!table && (last ~ /^(the start|a heading)/ || last == "table")) complain("a table follows " (last == "table" ? "another table" : last) ": begin with a sentence that says what it shows")
    columns = $0
    gsub(/\\\|/, "", columns)
    gsub(/`[^`]*`/, "", columns)
    if (!table && gsub(/\|/, "", columns) > 6) complain("a table of more than five columns")
    table = 1
    next
}
table { last = "table"; table = 0 }
/^ *$|^<!--/ { next }
/^#+ / {
    last = "a heading"
    anchor = tolower($0)
    sub(/^#+ +/, "", anchor)
    gsub(/`/, "", anchor)
    gsub(/[^a-z0-9 _-]/, "", anchor)
    if ((FILENAME, anchor) in seen) complain("the heading of line " seen[FILENAME, anchor] " has the same anchor")
    seen[FILENAME, anchor] = FNR
    next
}
{ last = "text" }
END { exit bad }' "${documents[@]}"
