#!/usr/bin/env bash
# drt-train plot: page and picture of runs, one of them still running; damage is an error that names the file, and nothing is replaced.
. "$DRT_SOURCE/tests/cli/lib.sh"
needs drt-train
run() { # NAME STEPS LOSS
    mkdir -p "$TMP/$1"
    local i
    for ((i = 1; i <= $2; i++)); do
        printf '{"step":%d,"tokens":%d,"loss":%s.%03d,"lr":0.0003,"gradient_norm":1.5,"tokens_per_second":900}\n' \
            "$i" "$((i * 4096))" "$3" "$((999 - i % 999))"
    done >"$TMP/$1/log.jsonl"
}
run one 2000 3
run two 50 2
printf '{"step":51,"tok' >>"$TMP/two/log.jsonl"

expect 0 "$BIN/drt-train" plot "$TMP/one" "$TMP/two/" --out "$TMP/both.html"
[ ! -s "$OUT" ] || die "plot writes to its file only"
grep -q '<h1>2 runs</h1>' "$TMP/both.html" || die "no heading"
same "$(grep -c 'data-run="' "$TMP/both.html")" 2 "rows of the table"
grep -qiE '(src|href)=|https?://' "$TMP/both.html" && die "the page loads something from another host"
expect 0 "$BIN/drt-train" plot "$TMP/one/log.jsonl" --out "$TMP/one.svg" --title 'A & B' --along steps
grep -q '<title>A &#38; B</title>' "$TMP/one.svg" || die "no title"
grep -q '>steps</text>' "$TMP/one.svg" || die "not along steps"
if command -v xmllint >/dev/null; then xmllint --noout "$TMP/one.svg" || die "the picture is not well-formed"; fi

before=$(cksum <"$TMP/both.html")
printf '\n{"step":52,"tokens":212992,"loss":1}\n' >>"$TMP/two/log.jsonl"
expect_error "two/log.jsonl: line 51 of the log" "$BIN/drt-train" plot "$TMP/one" "$TMP/two" --out "$TMP/both.html"
same "$before" "$(cksum <"$TMP/both.html")" "the page was touched by a run that failed"
expect_error "has no log.jsonl" "$BIN/drt-train" plot "$TMP" --out "$TMP/x.svg"
expect_error "ends in .html or .svg" "$BIN/drt-train" plot "$TMP/one" --out "$TMP/x.png"
expect_usage "must be one of tokens|steps" "$BIN/drt-train" plot "$TMP/one" --along days --out "$TMP/x.svg"
expect_usage "" "$BIN/drt-train" plot
expect 0 "$BIN/drt-train" plot --help
out_has "--along tokens|steps"
