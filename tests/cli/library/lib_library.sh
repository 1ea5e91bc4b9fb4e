# lib_library.sh -- shared by the scripts of libdrt: required programs, a store of the bundled model, and a comparison of the examples with
# the programs.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib.sh" || exit 1
BUILD=$(dirname "$BIN")
[ -e "$BUILD/libdrt.so" ] && [ -e "$BUILD/libdrt.a" ] || skip "libdrt is not built (builds with sanitizers have none)"
[ -e "$BUILD/generated/man/made" ] || skip "the man pages are not built"
needs drt-index drt-generate drt-eval drt-model drt-tokenizer drt-train
for tool in cmake pkg-config gcc g++ nm readelf; do
    command -v $tool >/dev/null || skip "$tool is not installed: run cmake/setup.sh"
done
STRICT="-Wall -Wextra -Wpedantic -Wshadow -Werror"
QUERY="The catalog names every file of a store, and one transaction makes a new generation visible to its readers"

# The functions that drt.h declares, one on each line.
declared() { grep -oE '^DRT_(API|CALL) [^(]*\(' "$1" | grep -oE 'drt_[a-z_]+\($' | tr -d '(' | sort; }

# a_store FOLDER PREFIX: this repository's documents, by the installed program and the installed model.
a_store() { expect 0 "$2/bin/drt-index" build "$SOURCE/docs" --out "$1" --index exact; }

# same_answers PREFIX STORE SEARCH GENERATE: the examples have the hits and the text of the programs.
same_answers() {
    local prefix=$1 store=$2 search=$3 generate=$4
    expect 0 "$prefix/bin/drt-index" search "$QUERY" --store "$store" --k 5 --json
    # The ranking depends on the model. Example and program must name the same chunks of the same documents.
    sed -E 's/.*"chunk":([0-9]+).*"source":"([^"]*)".*/\1\t\2/' "$OUT" >"$TMP/expected"
    same "$(wc -l <"$TMP/expected")" 5 "hits of drt-index"
    same "$(grep -c "docs/.*\.md$" "$TMP/expected")" 5 "hits with the path of a document"
    expect 0 "$search" "$store" "$QUERY"
    cut -f 3,4 "$OUT" >"$TMP/found"
    cmp -s "$TMP/found" "$TMP/expected" || die "$search finds other chunks than drt-index"
    expect 0 "$prefix/bin/drt-generate" --store "$store" --corpus-retrieval --greedy -n 80 -p "$QUERY" --device cpu
    cp "$OUT" "$TMP/expected"
    expect 0 "$generate" "$store" "$QUERY" 80
    cmp -s "$OUT" "$TMP/expected" || die "$generate writes another text than drt-generate"
    err_has "from position "
    err_has "docs/"
    # A failure is one line with the path.
    expect 1 "$search" "$TMP/no-store" "$QUERY"
    err_has "$TMP/no-store"
    same "$(wc -l <"$ERR")" 1 "lines of an error"
}
