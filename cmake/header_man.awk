# header_man.awk -- drt.h as a man page: awk -v version="drt 0.1.0" -f cmake/header_man.awk include/drt.h > libdrt.3
#
# The comment at the top is the description; "/* ---- name ---- */" begins a section; other comments that begin a line are
# paragraphs; declarations are not changed. The header is the only source of the page.
function plain(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    return text ~ /^[.']/ ? "\\\\\\&" text : text
}
function end_code() { if (code) print ".fi\n.in"; code = 0 }
function paragraph(text) {
    end_code()
    print ".PP"
    print plain(text)
}
# Returns a comment's text without its marks. `line` is its first line; further lines are read.
function comment(text,    line) {
    sub(/^\/\* */, "", text)
    while (text !~ /\*\/$/ && (getline line) > 0) {
        sub(/^ \*?( |$)/, "", line)
        if (line == "") { paragraph(text); text = "" }
        else text = text (text == "" ? "" : " ") line
    }
    sub(/ *\*\/$/, "", text)
    paragraph(text)
}
FNR == 1 {
    print ".TH LIBDRT 3 \"\" \"" version "\" \"libdrt\"\n.SH NAME\nlibdrt \\- chunk retrieval store and retrieval language model, for C"
    print ".SH SYNOPSIS\n.nf\n#include <drt.h>\n\ncc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs drt)\n.fi\n.SH DESCRIPTION"
    comment($0)
    next
}
/^#/ || /^extern "C" \{$/ { if (/^#ifndef DRT_H|^#if|^#ifdef/) depth++; if (/^#endif/) depth--; next }
depth > 1 { next }
/^\/\* ---- / {
    end_code()
    sub(/^\/\* -+ /, ""); sub(/ -+ \*\/$/, "")
    print ".SH " toupper(plain($0))
    next
}
/^\/\*/ { comment($0); next }
/^$/ { if (code) print ""; next }
{
    if (!code) print ".in +2n\n.nf"
    code = 1
    sub(/^DRT_CALL /, "enum drt_status ")
    sub(/^DRT_API /, "")
    print plain($0)
}
END {
    end_code()
    print ".SH SEE ALSO\ndrt\\-index(1), drt\\-generate(1), /usr/share/doc/libdrt\\-dev/library.md"
}
