#!/usr/bin/env bash
# Inputs of real machines that a test corpus does not have: pipes, folders that cannot be searched or that change under a half-finished
# build, files that are not text, hostile names, and closed descriptors.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 120
build() { expect 0 "$INDEX" build "$@" --model "$TMP/model" --shard-chunks 20; }
refused() { expect_error "$1" "$INDEX" build "${@:2}" --model "$TMP/model" --shard-chunks 20; }

# --- the first bytes of a pipe can be read only once: its format must follow from its name or an option
mkfifo "$TMP/pipe" "$TMP/pipe.jsonl"
feed_pipe() { (cat "$TMP/a.jsonl" >"$1" 2>/dev/null) & feeder=$!; }
refused "its format must be given" "$TMP/pipe" --out "$TMP/none"
feed_pipe "$TMP/pipe"
build "$TMP/pipe" --format jsonl --out "$TMP/one" --json
same "$(json_int "$OUT" documents)" 120 "documents of a pipe"
wait "$feeder"
feed_pipe "$TMP/pipe.jsonl"
build "$TMP/pipe.jsonl" --out "$TMP/two" --json
same "$(json_int "$OUT" documents)" 120 "documents of a pipe with a telling name"
wait "$feeder"

# --- a folder with files that are not text, and names and texts with control characters for a terminal
mkdir "$TMP/names"
printf 'stone and sand \033[31m \302\233 31m \342\200\256 end' >"$TMP/names/$(printf 'red\033[31m\nli\302\233ne\342\200\256').txt"
printf 'h\0i\0' >"$TMP/names/utf16.txt"
build "$TMP/names" --out "$TMP/named"
out_has "1 files that are not text"
err_has "names/utf16.txt"
expect 0 "$INDEX" search stone --store "$TMP/named" --model "$TMP/model" --k 1
out_has '/names/red\x1b[31m li\u009bne\u202e.txt  byte 0'
out_has '\x1b[31m \u009b 31m \u202e end'
controls() { LC_ALL=C grep -cP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]' "$@"; }
same "$(cat "$OUT" "$ERR" | controls)" 0 "lines with control characters"
expect 0 "$INDEX" search stone --store "$TMP/named" --model "$TMP/model" --k 1 --json
out_has 'red\u001b[31m\nli\u009bne\u202e.txt'
same "$(controls "$OUT")" 0 "lines of JSON with control characters"
name=$(printf 'a\033[31m\302\233\342\200\256.jsonl')
echo '{' >"$TMP/$name"
refused 'a\x1b[31m\u009b\u202e.jsonl:1: not valid JSON' "$TMP/$name" --out "$TMP/none"
same "$(controls "$ERR")" 0 "control characters in an error"
expect 2 "$INDEX" build --"$name"
same "$(controls "$ERR")" 0 "control characters in a usage error"

# --- a folder that changes while its build is half finished
mkdir "$TMP/folder"
for i in 10 20 30 40 50; do sed -n "$i,$((i + 9))p" "$TMP/a.jsonl" >"$TMP/folder/b$i.jsonl"; done
echo '{"text": "one", "text: "two"}' >"$TMP/folder/c.jsonl"
refused "c.jsonl:1" "$TMP/folder" --out "$TMP/half"
echo '{"text": "a file in front"}' >"$TMP/folder/a.jsonl"
refused "folder/a.jsonl: the part of it that was read has changed since" "$TMP/folder" --out "$TMP/half"
rm "$TMP/folder/a.jsonl"
echo '{"text": "one", "more":"two"}' >"$TMP/folder/c.jsonl"
build "$TMP/folder" --out "$TMP/half" --json
[ "$(json_int "$OUT" resumed_chunks)" -gt 0 ] || die "nothing was resumed"
build "$TMP/folder" --out "$TMP/whole"
same_store "$TMP/half" "$TMP/whole"

# --- a folder whose files cannot be read: not the same as one without files
if [ "$(id -u)" = 0 ]; then
    as_user() { setpriv --reuid 65534 --clear-groups "$@"; }
    chmod 711 "$TMP"
    if ! as_user test -x "$INDEX" 2>/dev/null || ! as_user test -x "$TMP"; then as_user() { false; }; fi
else
    as_user() { "$@"; }
fi
if as_user true; then
    mkdir -p "$TMP/shut/sub" "$TMP/open"
    chmod 777 "$TMP/open"
    echo "stone and sand" >"$TMP/shut/one.txt"
    echo "river and ring" >"$TMP/shut/sub/two.txt"
    chmod -R a+rX "$TMP/shut" "$TMP/model"
    chmod 444 "$TMP/shut/sub"
    expect 1 as_user "$INDEX" build "$TMP/shut" --out "$TMP/open/store" --model "$TMP/model"
    err_has "two.txt: cannot be examined: Permission denied"
    chmod 755 "$TMP/shut/sub"
else
    echo "not tried: folders without permission (another user cannot reach the programs)"
fi

# --- closed descriptors: no file of the program may get the descriptor of messages (here: of the resumption of a build)
for closed in '0<&- 2>&-' '0<&- 1>&- 2>&-' '2>&-'; do
    rm -rf "$TMP/mute"
    echo '{"text": "one", "text: "two"}' >"$TMP/folder/d.jsonl"
    refused "d.jsonl:1" "$TMP/folder" --out "$TMP/mute"
    echo '{"text": "one", "more":"two"}' >"$TMP/folder/d.jsonl"
    code=0
    eval '"$INDEX" build "$TMP/folder" --out "$TMP/mute" --model "$TMP/model" --shard-chunks 20 '"$closed" >"$OUT" || code=$?
    case $closed in *1*) same $code 1 "exit code without standard output" ;; *) same $code 0 "exit code with $closed" ;; esac
    expect 0 "$INDEX" verify --store "$TMP/mute" --deep
done
err_lacks "left over"

# --- token files do not name their tokenizer: ids of another tokenizer are found by decoding and encoding them
needs drt-tokenizer drt-eval
expect 0 "$BIN/drt-tokenizer" encode "$TMP/a.jsonl" --tokenizer "$TMP/model/tokenizer.json" --out "$TMP/own.u16" --eod-id 268
LC_ALL=C tr '\141-\172' '\341-\372' <"$TMP/own.u16" >"$TMP/foreign.u16"
build "$TMP/own.u16" "$TMP/foreign.u16" --out "$TMP/ids"
same "$(grep -c "another tokenizer" "$ERR")" 1 "files whose ids are another tokenizer's"
err_has "foreign.u16: of its first"
expect 0 "$BIN/drt-eval" ppl --model "$TMP/model" --data "$TMP/foreign.u16" --max-documents 2 --skip 8
err_has "another tokenizer"

# --- stopped while a pipe is read. A terminal that is closed sends SIGHUP twice; with nohup it is ignored.
stopped_by() { # signals, exit code
    mkfifo "$TMP/slow.$1.jsonl"
    "$INDEX" build "$TMP/slow.$1.jsonl" --out "$TMP/stopped.$1" --model "$TMP/model" --shard-chunks 20 >"$OUT" 2>"$ERR" &
    builder=$!
    exec 9>"$TMP/slow.$1.jsonl"
    for _ in $(seq 500); do grep -q threads "$ERR" && break; sleep 0.02; done
    for signal in ${1//-/ }; do kill -"$signal" $builder; sleep 0.1; done
    cat "$TMP/a.jsonl" >&9
    exec 9>&-
    code=0
    wait $builder || code=$?
    same "$code" "$2" "exit code after $1"
}
for signals in TERM HUP-HUP HUP-HUP-HUP; do
    stopped_by $signals 1
    err_has "drt-index: stopped"
done
stopped_by HUP-TERM 143
(trap '' HUP; stopped_by HUP 0) || exit 1

# --- little address space (ulimit -v): the catalog's map is as large as possible (a sanitizer needs more memory)
if (ulimit -v 4000000 && "$INDEX" --help) >/dev/null 2>&1; then
    (
        ulimit -v 4000000
        build "$TMP/a.jsonl" --out "$TMP/narrow" --threads 2
        expect 0 "$INDEX" search "the river" --store "$TMP/narrow" --model "$TMP/model" --threads 2
        expect 0 "$INDEX" stats --store "$TMP/mute"
    ) || exit 1
    expect 0 "$INDEX" add "$TMP/folder/d.jsonl" --store "$TMP/narrow" --model "$TMP/model"
    expect 0 "$INDEX" verify --store "$TMP/narrow" --deep
fi

# --- a small stack (ulimit -s) of the main thread and of the program's threads (a sanitizer's frames are larger)
if (ulimit -v 4000000 && "$INDEX" --help) >/dev/null 2>&1; then
    (
        ulimit -s 64
        build "$TMP/a.jsonl" --out "$TMP/low" --threads 3 --index IVF4,Flat
        expect 0 "$INDEX" search "the river" --store "$TMP/low" --model "$TMP/model" --threads 3
        expect 0 "$INDEX" verify --store "$TMP/low" --deep
        expect 0 "$BIN/drt-tokenizer" encode "$TMP/a.jsonl" --tokenizer "$TMP/model/tokenizer.json" --out "$TMP/low.u16" --eod-id 268
        expect 0 "$BIN/drt-eval" ppl --model "$TMP/model" --data "$TMP/low.u16" --max-documents 2 --skip 8
        expect 0 "$BIN/drt-model" info "$TMP/model"
    ) || exit 1
fi

# --- a result that cannot be written is a failure of every program
if [ -c /dev/full ]; then
    for line in "drt-index --help" "drt-index export --help" "drt-index export --store $TMP/mute" "drt-eval --help" "drt-generate --help" \
        "drt-model --help" "drt-model info $TMP/model" "drt-tokenizer --help" "drt-train --help" \
        "drt-model init --config $TMP/model/config.json --out $TMP/unsaid"; do
        code=0
        "$BIN"/$line >/dev/full 2>"$ERR" </dev/null || code=$?
        same $code 1 "exit code where nothing can be written: $line"
        same "$(grep -c "standard output cannot be written" "$ERR")" 1 "lines that say so: $line"
    done
fi

# --- factory strings with numbers that FAISS would divide by, and with lists that it would make before it counts the chunks
for index in IVF0,Flat PQ0 PQ8x0 IVF4,PQ0 HNSW0,Flat HNSW1 IVF16_HNSW0,Flat NSG0,Flat PCA0,IVF4,Flat OPQ0,IVF4,PQ4 RR0,Flat HNSW32_0+PQ8; do
    refused "is too small" "$TMP/a.jsonl" --out "$TMP/none" --index "$index" --restart
done
refused "99999999 lists cannot be trained" "$TMP/a.jsonl" --out "$TMP/none" --index IVF99999999,Flat --restart
echo ok
