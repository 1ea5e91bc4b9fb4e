# help.awk -- converts one --help text to Markdown or to a man page; used by tools/docs/make_docs.sh.
#
#   awk -v format=md|man -v name="drt-index build" -v what="make a store from a corpus" -v see="drt-index" -f help.awk HELP_TEXT
#
# what, see (names of other pages): only for a man page.
#
# args_help (args.c) and print_help (commands.c) write every text in this form:
#
#   Usage: NAME SYNOPSIS           up to the first empty line
#   paragraphs                     lines at column 0, separated by empty lines
#   Heading:                       a line at column 0 that ends in ":", with an indented line after it
#     TERM  TEXT                   two spaces, a term, two or more spaces, its text
#           TEXT                   more of the text, indented further
#   Examples:                      indented lines, printed as they are
{ line[NR] = $0 }

# In a table of GitHub's Markdown "|" ends a cell, also in code.
function md(text) { gsub(/[*<]/, "\\\\&", text); return text }
function md_cell(text) { text = md(text); gsub(/\|/, "\\|", text); return text }
function md_code(text) { gsub(/\|/, "\\|", text); return "`" text "`" }

# groff prints "-" as a hyphen, and "\-" as a character that can be pasted into a shell.
function roff(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/) text = "\\&" text
    return text
}
function roff_heading(text) { gsub(/"/, "\\(dq", text); return toupper(roff(text)) }
# Prints "--out STORE" or "-n, --max-tokens N" with the option in bold and its value in italics.
function roff_term(text,    at) {
    if (text ~ /^-[a-zA-Z], /) return "\\fB" roff(substr(text, 1, 2)) "\\fR, " roff_term(substr(text, 5))
    at = index(text, " ")
    if (at == 0) return "\\fB" roff(text) "\\fR"
    return "\\fB" roff(substr(text, 1, at - 1)) "\\fR \\fI" roff(substr(text, at + 1)) "\\fR"
}

function begin() {
    if (format == "md") {
        print (name ~ / / ? "### " : "## ") name "\n"
        return
    }
    title = name
    gsub(/ /, "-", title)
    printf ".TH \"%s\" 1 \"\" \"%s\" \"drt\"\n.SH NAME\n%s \\- %s\n", toupper(title), version, roff(title), roff(what)
}
function synopsis(text) {
    if (format == "md") print "```\n" text "\n```\n"
    else printf ".SH SYNOPSIS\n.B %s\n%s\n.SH DESCRIPTION\n", roff(name), roff(substr(text, length(name) + 2))
}
function paragraph(text) {
    if (format == "md") print md(text) "\n"
    else print ".PP\n" roff(text)
}
function section(text) {
    table = 0
    if (format == "md") print "**" md(text) "**\n"
    else print ".SH \"" roff_heading(text) "\""
}
function entry(term, text) {
    if (term == "" || (format == "md" && term ~ /^-[hV], --(help|version)$/)) return
    if (format == "man") {
        print ".TP\n" roff_term(term) "\n" roff(text)
        return
    }
    if (!table++) print "| " (term ~ /^-/ ? "option" : "name") " | meaning |\n|---|---|"
    print "| " md_code(term) " | " md_cell(text) " |"
}
function end_section() { if (format == "md" && table) print ""; table = 0 }
function example_begin() { print format == "md" ? "```" : ".nf" }
function example(text) { print format == "md" ? text : roff(text) }
function example_end() { print format == "md" ? "```\n" : ".fi" }

function strip(text) { sub(/^ +/, "", text); sub(/ +$/, "", text); return text }
function is_heading(i) { return line[i] ~ /^[^ ].*:$/ && line[i + 1] ~ /^  [^ ]/ }

# Converts the indented lines after a heading. Returns the number of the next line.
function read_examples(i) {
    example_begin()
    for (; i <= NR && line[i] ~ /^ /; i++) example(substr(line[i], 3))
    example_end()
    return i
}
function read_entries(i,    term, text, at) {
    term = text = ""
    for (; i <= NR && (line[i] ~ /^ / || (line[i] == "" && line[i + 1] ~ /^ /)); i++) {
        if (line[i] ~ /^  [^ ]/) {
            entry(term, text)
            term = strip(line[i])
            at = match(term, /   */)
            text = at ? strip(substr(term, at)) : ""
            if (at) term = substr(term, 1, at - 1)
        } else if (line[i] != "")
            text = text (text == "" ? "" : " ") strip(line[i])
    }
    entry(term, text)
    end_section()
    return i
}

END {
    begin()
    text = line[1]
    sub(/^Usage: /, "", text)
    for (i = 2; i <= NR && line[i] != ""; i++) text = text " " strip(line[i])
    synopsis(text)
    while (i <= NR) {
        if (line[i] == "") { i++; continue }
        if (is_heading(i)) {
            heading = line[i]
            sub(/:$/, "", heading)
            section(heading)
            i = heading == "Examples" ? read_examples(i + 1) : read_entries(i + 1)
            continue
        }
        for (text = ""; i <= NR && line[i] != "" && !is_heading(i); i++) text = text (text == "" ? "" : " ") line[i]
        paragraph(text)
    }
    if (format == "md") exit
    print ".SH \"EXIT STATUS\"\n0: done. 1: failed, stopped, or problems found. 2: wrong usage."
    n = split(see, pages, /[ \n]+/)
    if (n) print ".SH \"SEE ALSO\""
    for (i = 1; i <= n; i++) print ".BR " roff(pages[i]) " (1)" (i < n ? "," : "")
}
