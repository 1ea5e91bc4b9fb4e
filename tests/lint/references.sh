#!/usr/bin/env bash
# References between files: a "file.md §name" in code or documents names a section that exists, a link in a document leads to a file
# (and a heading) of this repository, and the source files and structs that documents and figures name exist.
#
# The name of a section is the first word of its heading without the final dot: "### 4.2 Score" is §4.2. Several may follow one file:
# "model.md §4.2, §4.5" and "model.md §4.2-4.4". A § without a file is a section of the same document; code must name the file.
set -u
cd "$DRT_SOURCE" || exit 1
files=$(git ls-files -co --exclude-standard 2>/dev/null) || { echo "skipped: not a git checkout"; exit 77; }
mapfile -t sources < <(grep -E '\.(c|h|cu|cuh|cpp|inc|sh|md|svg)$' <<<"$files" | grep -vE '^(tests/lint/references\.sh|docs/cli\.md$)' | while read -r f; do [ -f "$f" ] && echo "$f"; done)
mapfile -t documents < <(grep -E '\.md$' <<<"$files" | while read -r f; do [ -f "$f" ] && echo "$f"; done)

awk -v files="$files" '
function complain(what) { print FILENAME ":" FNR ": " what; bad = 1 }
function folder_of(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/)) : "" }
# "docs/../a/./b" is "a/b".
function plain(path,    parts, n, i, out, k) {
    n = split(path, parts, "/")
    for (i = 1; i <= n; i++) {
        if (parts[i] == "" || parts[i] == ".") continue
        if (parts[i] == ".." && k > 0 && out[k] != "..") k--
        else out[++k] = parts[i]
    }
    path = ""
    for (i = 1; i <= k; i++) path = path (i > 1 ? "/" : "") out[i]
    return path
}
# The anchor that GitHub makes of a heading.
function anchor_of(text) {
    text = tolower(text)
    gsub(/`/, "", text)
    gsub(/[^a-z0-9 _-]/, "", text)
    gsub(/ /, "-", text)
    return text
}
function document_of(name,    here) {
    here = plain(folder_of(FILENAME) name)
    if (here in exists) return here
    if (plain("docs/" name) in exists) return plain("docs/" name)
    return name in exists ? name : ""
}
# list: "§4.2, §4.5" or "§4.2-4.4", of a document.
function check_sections(list, document,    names, n, i) {
    gsub(/§/, " ", list)
    gsub(/, | and |-|–/, " ", list)
    n = split(list, names, / +/)
    for (i = 1; i <= n; i++) {
        sub(/\.$/, "", names[i])
        if (names[i] != "" && !((document, names[i]) in section)) complain(document " has no section " names[i])
    }
}
function check_references(text,    one, name, list) {
    while (match(text, /[A-Za-z0-9_.\/-]*[A-Za-z0-9_-]\.md,? §[A-Za-z0-9.]+([-–]§?[0-9.]+)?((, | and )§[A-Za-z0-9.]+([-–]§?[0-9.]+)?)*/)) {
        one = substr(text, RSTART, RLENGTH)
        text = substr(text, 1, RSTART - 1) " " substr(text, RSTART + RLENGTH)
        name = one
        sub(/,? §.*/, "", name)
        list = substr(one, length(name) + 1)
        sub(/^,? /, "", list)
        if (document_of(name) != "") check_sections(list, document_of(name))
        else if (!code) complain("there is no document " name)
    }
    while (match(text, /§[A-Za-z0-9.]+([-–]§?[0-9.]+)?/)) {
        one = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        if (FILENAME ~ /\.md$/) check_sections(one, FILENAME)
        else complain(one " without the document: write file.md " one)
    }
}
function check_links(text,    target, anchor) {
    gsub(/`[^`]*`/, "", text)
    while (match(text, /\]\([^)]*\)/)) {
        target = substr(text, RSTART + 2, RLENGTH - 3)
        text = substr(text, RSTART + RLENGTH)
        sub(/ .*/, "", target)
        if (target ~ /^[a-z]+:/) continue
        anchor = target ~ /#/ ? substr(target, index(target, "#") + 1) : ""
        sub(/#.*/, "", target)
        target = target == "" ? FILENAME : plain(folder_of(FILENAME) target)
        if (!(target in exists)) complain("link to " target ", which does not exist")
        else if (anchor != "" && target ~ /\.md$/ && !((target, anchor) in anchors))
            complain(target " has no heading with the anchor #" anchor)
    }
}
function check_names(text,    one) {
    while (match(text, /(base|kernels|model|data|store|encoder|decoder|indexer|train|session|library|include|tools|tests|cmake|docs\/examples)\/[A-Za-z0-9_.\/-]*\.(c|h|cu|cuh|cpp|sh|awk|py|cmake)/)) {
        one = substr(text, RSTART, RLENGTH)
        if ((RSTART == 1 || substr(text, RSTART - 1, 1) !~ /[A-Za-z0-9_.\/*<-]/) &&
            substr(text, RSTART + RLENGTH, 1) !~ /[A-Za-z0-9_*]/ && !(one in exists)) complain("names " one ", which does not exist")
        text = substr(text, RSTART + RLENGTH)
    }
}
function check_structs(text,    one) {
    while (match(text, /struct [a-z0-9_]+/)) {
        one = substr(text, RSTART + 7, RLENGTH - 7)
        text = substr(text, RSTART + RLENGTH)
        if (!(one in defined)) complain("names struct " one ", which does not exist")
    }
}
function check_documents(text,    one) {
    while (match(text, /[A-Za-z0-9_.\/-]*[A-Za-z0-9_-]\.md/)) {
        one = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        if (text !~ /^[A-Za-z0-9_]/ && document_of(one) == "") complain("there is no document " one)
    }
}
BEGIN {
    n = split(files, all, "\n")
    for (i = 1; i <= n; i++)
        for (path = all[i]; path != ""; path = substr(folder_of(path), 1, length(folder_of(path)) - 1)) exists[path] = 1
}
FNR == 1 {
    fenced = 0
    code = FILENAME ~ /\.(c|h|cu|cuh|cpp)$/ && FILENAME !~ /^tests\//     # strings of tests name files of their own
}
FILENAME ~ /\.md$/ && /^ *```/ { fenced = !fenced }
# First all headings of all documents and all structs of the code, then what refers to them.
pass == 1 && FILENAME !~ /\.md$/ {
    if (match($0, /struct [a-z0-9_]+ *\{/)) { split(substr($0, RSTART + 7, RLENGTH - 7), words, / *\{/); defined[words[1]] = 1 }
    next
}
pass == 1 {
    if (fenced || !/^#+ /) next
    heading = $0
    sub(/^#+ +/, "", heading)
    word = heading
    sub(/ .*/, "", word)
    sub(/[.,:]$/, "", word)
    section[FILENAME, word] = 1
    anchors[FILENAME, anchor_of(heading)] = 1
    next
}
code && /\.md/ { check_documents($0) }
/§/ && FILENAME !~ /\.svg$/ { check_references($0) }
FILENAME ~ /\.md$/ && !fenced && /\]\(/ { check_links($0) }
FILENAME ~ /^docs\/|^(README|CONTRIBUTING)\.md$/ { check_names($0); check_structs($0) }
END { exit bad }
' pass=1 "${documents[@]}" "${sources[@]}" pass=2 "${sources[@]}"
