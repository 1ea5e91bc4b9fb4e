#!/usr/bin/env bash
# Bad input: one clear line that names the file, exit code 1, and no loss of existing data.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 60
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/store" --model "$TMP/model" --shard-chunks 40
export_store "$TMP/store" "$TMP/before"
copy_model() { rm -rf "$TMP/bad"; cp -r "$TMP/model" "$TMP/bad"; }
build_bad() { expect_error "$1" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/none" --model "$TMP/bad"; }

# --- models
expect_error "no such folder" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/none" --model "$TMP/nowhere"
copy_model; head -c 1000 "$TMP/model/model.safetensors" >"$TMP/bad/model.safetensors"
build_bad "model.safetensors"
copy_model; printf '\377\377\377\377\377\377\377\177' | dd of="$TMP/bad/model.safetensors" conv=notrunc 2>/dev/null
build_bad "model.safetensors"
copy_model; printf '\003' >"$TMP/bad/model.safetensors"
build_bad "model.safetensors"
copy_model; sed -i 's/"F32"/"I32"/' "$TMP/bad/model.safetensors"
build_bad "I32"
copy_model; sed -i 's/enc_prenorm/enc_prenurm/' "$TMP/bad/model.safetensors"
build_bad "enc_pren"
copy_model; sed -i 's/"hidden_size": 32/"hidden_size": 64/' "$TMP/bad/config.json"
build_bad "model.safetensors"
copy_model; sed -i 's/"hidden_size"/"hidden_siez"/' "$TMP/bad/config.json"
build_bad "hidden_size"
copy_model; sed -i 's/"<|pad|>": 269/"<|pad|>": 5000/; s/"id": 269/"id": 5000/' "$TMP/bad/tokenizer.json"
build_bad "the tokenizer has ids up to 5000, but the model's vocab_size is 271"
copy_model; head -c 500 "$TMP/model/tokenizer.json" >"$TMP/bad/tokenizer.json"
build_bad "tokenizer.json"
copy_model; sed -i 's/"encoder_input": "tokens"/"encoder_input": "hidden"/' "$TMP/bad/config.json"
build_bad "encoder_input"
[ ! -e "$TMP/none" ] || die "a refused model left a store"

# --- a store of another model, or of another tokenizer
make_model "$TMP/other" 4
expect_error "$TMP/store" "$INDEX" search "river" --store "$TMP/store" --model "$TMP/other"
expect_error "encoder" "$INDEX" add "$TMP/a.jsonl" --store "$TMP/store" --model "$TMP/other"
copy_model; echo >>"$TMP/bad/tokenizer.json"
expect_error "tokenizer" "$INDEX" search "river" --store "$TMP/store" --model "$TMP/bad"

# --- corpora
refuse_corpus() { rm -rf "$TMP/none"; expect_error "$1" "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/none" --model "$TMP/model"; }
no_store() { refuse_corpus "$1"; [ ! -e "$TMP/none" ] || die "a store without a chunk is left"; }
printf '{"text": "one"}\n{"body": "two"}\n' >"$TMP/corpus.jsonl"
refuse_corpus "corpus.jsonl:2"
printf '{"text": "one"}\n{"text": "two\n' >"$TMP/corpus.jsonl"
refuse_corpus "corpus.jsonl:2"
printf '{"text": ""}\n\n{"text": ""}\n' >"$TMP/corpus.jsonl"
no_store "corpus.jsonl: empty corpus"
: >"$TMP/corpus.jsonl"
no_store "corpus.jsonl: empty corpus"
expect_error "nowhere.jsonl" "$INDEX" build "$TMP/nowhere.jsonl" --out "$TMP/none" --model "$TMP/model"
printf '\101\000\377\377' >"$TMP/ids.u16"
expect_error "ids.u16: document at byte 0: its token 1 is id 65535" \
    "$INDEX" build "$TMP/ids.u16" --format u16 --out "$TMP/none" --model "$TMP/model"
printf '{"text": "ill \377\376 formed"}\n' >"$TMP/corpus.jsonl"
rm -rf "$TMP/none"
expect 0 "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/none" --model "$TMP/model" --json
same "$(json_int "$OUT" replaced)" 2 "invalid UTF-8 sequences replaced"
expect_error "--max-ram" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/none2" --model "$TMP/model" --max-ram 1M
expect_usage "--format 'word': must be one of auto|jsonl|" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/none2" --model "$TMP/model" --format word
[ ! -e "$TMP/none2" ] || die "a refused run left a store"

# --- a build that fails before anything is sealed leaves nothing that was not there before
listing() { (cd "$1" && find . | sort); }
fails_in() { # FOLDER TEXT CORPUS MODEL OPTIONS...
    local folder=$1 before=absent after=absent
    [ ! -e "$folder" ] || before=$(listing "$folder")
    expect_error "$2" "$INDEX" build "$3" --out "$folder" --model "$4" "${@:5}"
    [ ! -e "$folder" ] || after=$(listing "$folder")
    same "$after" "$before" "what is in the folder after a failed build ($2, ${*:5})"
}
printf '{"text": "one"}\n{"text": "two\n' >"$TMP/corpus.jsonl"
: >"$TMP/nothing.jsonl"
for part in "" "--part 1/1"; do
    for there in absent empty hidden folders ours; do
        rm -rf "$TMP/new"
        case $there in
        empty) mkdir "$TMP/new" ;;
        hidden) mkdir "$TMP/new"; : >"$TMP/new/.note" ;;
        folders) mkdir -p "$TMP/new/tokens" "$TMP/new/lexical" ;;
        ours) mkdir "$TMP/new"; : >"$TMP/new/lock" ;;
        esac
        fails_in "$TMP/new" "corpus.jsonl:2" "$TMP/corpus.jsonl" "$TMP/model" $part
        fails_in "$TMP/new" "nowhere.jsonl" "$TMP/nowhere.jsonl" "$TMP/model" $part
        fails_in "$TMP/new" "no such folder" "$TMP/a.jsonl" "$TMP/nowhere" $part
        fails_in "$TMP/new" "--max-ram" "$TMP/a.jsonl" "$TMP/model" --max-ram 1M $part
        [ -n "$part" ] || fails_in "$TMP/new" "nothing.jsonl: empty corpus" "$TMP/nothing.jsonl" "$TMP/model"
        [ -n "$part" ] || fails_in "$TMP/new" 'FAISS has no "SQ9"' "$TMP/a.jsonl" "$TMP/model" --index IVF4,SQ9 # before the corpus is read
    done
done
# Sealed shards are kept, and a failure later does not remove them; nor does one in a store that is there.
rm -rf "$TMP/new"
expect_error "index IVF9999" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/new" --model "$TMP/model" --index IVF9999,Flat
expect_error "corpus.jsonl:2" "$INDEX" add "$TMP/corpus.jsonl" --store "$TMP/store" --model "$TMP/model"
expect 0 "$INDEX" build "$TMP/a.jsonl" --out "$TMP/new" --model "$TMP/model" --json
[ "$(json_int "$OUT" resumed_chunks)" -gt 0 ] || die "sealed shards were removed"
# A part without documents is a part. Processes that fail beside one that builds do not remove its store.
expect 0 "$INDEX" build "$TMP/nothing.jsonl" --out "$TMP/parts-of-nothing" --model "$TMP/model" --part 1/1
[ -e "$TMP/parts-of-nothing/part-1-of-1/catalog/data.mdb" ] || die "an empty part was removed"
for ((i = 0; i < 10; i++)); do
    rm -rf "$TMP/new"
    for ((j = 0; j < 3; j++)); do "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/new" --model "$TMP/model" >/dev/null 2>&1 & done
    code=0
    "$INDEX" build "$TMP/a.jsonl" --out "$TMP/new" --model "$TMP/model" >"$OUT" 2>"$ERR" || code=$?
    wait
    [ $code = 0 ] || tail -n 1 "$ERR" | grep -qE "another writer is at work|cannot open the lock|does not exist|No such file|was moved or replaced" ||
        die "a build beside others that fail"
    # the folder and its lock may stay, if one process made them and another used them
    [ $code = 0 ] || [ -z "$(ls -A "$TMP/new" 2>/dev/null | grep -vx lock)" ] || die "failed builds at the same time left a store"
    [ $code != 0 ] || expect 0 "$INDEX" verify --store "$TMP/new" --deep
done

# --- stores
make_corpus "$TMP/b.jsonl" 20 2
expect_error "a store is built here already" "$INDEX" build "$TMP/b.jsonl" --out "$TMP/store" --model "$TMP/model"
expect_error "$TMP/nowhere" "$INDEX" stats --store "$TMP/nowhere"
expect_error "$TMP/nowhere" "$INDEX" add "$TMP/a.jsonl" --store "$TMP/nowhere" --model "$TMP/model"
mkdir "$TMP/home" && echo mine >"$TMP/home/diary.txt"
expect_error "diary.txt" "$INDEX" build "$TMP/a.jsonl" --out "$TMP/home" --model "$TMP/model"
same "$(cat "$TMP/home/diary.txt")" mine "a stranger's file"

# While a writer works a second writer is refused, and readers are not.
mkfifo "$TMP/slow.jsonl"
"$INDEX" add - --format jsonl --store "$TMP/store" --model "$TMP/model" <"$TMP/slow.jsonl" >"$TMP/first.out" 2>"$TMP/first.err" &
first=$!
exec 9>"$TMP/slow.jsonl"
echo '{"text": "a slow writer"}' >&9
for _ in $(seq 100); do grep -q threads "$TMP/first.err" && break; sleep 0.1; done
sleep 1
expect_error "another writer" "$INDEX" add "$TMP/a.jsonl" --store "$TMP/store" --model "$TMP/model"
expect 0 "$INDEX" stats --store "$TMP/store"
exec 9>&-
wait "$first" || die "the first writer failed: $(cat "$TMP/first.err")"
expect 0 "$INDEX" stats --store "$TMP/store" --json
same "$(json_int "$OUT" generation)" 2 "generation of the first writer"

# Errors name the damaged file; reading it is refused, or it is repaired.
damage() { # copy, file pattern, way
    rm -rf "$TMP/damaged"
    cp -r "$TMP/store" "$TMP/damaged"
    file=$(find "$TMP/damaged" -path "$1" | sort | head -n 1)
    [ -n "$file" ] || die "no file like $1"
    case $2 in
    flip) size=$(stat -c %s "$file"); byte=$(od -An -tu1 -j $((size - 3)) -N1 "$file"); printf "\\x$(printf %02x $((byte ^ 255)))" | dd of="$file" bs=1 seek=$((size - 3)) conv=notrunc 2>/dev/null ;;
    short) truncate -s -7 "$file" ;;
    gone) rm "$file" ;;
    esac
    expect 1 "$INDEX" verify --store "$TMP/damaged" --deep
    cat "$OUT" "$ERR" | grep -qF "$(basename "$file")" || die "verify does not name $file after $2"
}
for file in '*/tokens/*' '*/landmarks/*'; do
    for way in flip short gone; do damage "$file" $way; done
done
if [ "$(id -u)" = 0 ] || [ -w "$TMP/store" ]; then
    make_corpus "$TMP/large.jsonl" 900 5
    expect 0 "$INDEX" build "$TMP/large.jsonl" --out "$TMP/ivf" --index "IVF16,SQ8" --model "$TMP/model"
    mv "$TMP/store" "$TMP/kept"; mv "$TMP/ivf" "$TMP/store"
    export_store "$TMP/store" "$TMP/before-ivf"
    for way in flip short gone; do
        damage '*/index/*' $way
        expect 0 "$INDEX" repair --store "$TMP/damaged"
        expect 0 "$INDEX" verify --store "$TMP/damaged" --deep
        export_store "$TMP/damaged" "$TMP/after"
        cmp -s "$TMP/before-ivf" "$TMP/after" || die "the repaired index ($way) finds something else"
    done
    mv "$TMP/store" "$TMP/ivf"; mv "$TMP/kept" "$TMP/store"
fi

# A read-only store: searching works, writing is refused.
if [ "$(id -u)" != 0 ]; then
    cp -r "$TMP/store" "$TMP/fixed"
    chmod -R a-w "$TMP/fixed"
    expect 0 "$INDEX" search "river" --store "$TMP/fixed" --model "$TMP/model" --k 1
    expect_error "$TMP/fixed" "$INDEX" add "$TMP/a.jsonl" --store "$TMP/fixed" --model "$TMP/model"
    chmod -R u+w "$TMP/fixed"
elif mkdir "$TMP/mount" && mount -t tmpfs -o size=3m none "$TMP/mount" 2>/dev/null; then
    trap 'umount "$TMP/mount" 2>/dev/null; rm -rf "$TMP"' EXIT
    cp -r "$TMP/store" "$TMP/mount/store"
    mount -o remount,ro "$TMP/mount"
    expect 0 "$INDEX" search "river" --store "$TMP/mount/store" --model "$TMP/model" --k 1
    expect_error "$TMP/mount/store" "$INDEX" add "$TMP/a.jsonl" --store "$TMP/mount/store" --model "$TMP/model"
    mount -o remount,rw "$TMP/mount"

    # A full disk: what was published stays, and the same command continues when there is space again.
    make_corpus "$TMP/b.jsonl" 2500 9
    "$INDEX" export --store "$TMP/mount/store" >"$TMP/one" 2>/dev/null
    code=0
    "$INDEX" add "$TMP/b.jsonl" --store "$TMP/mount/store" --model "$TMP/model" --shard-chunks 300 >"$OUT" 2>"$ERR" || code=$?
    same $code 1 "exit code on a full disk"
    tail -n 1 "$ERR" | grep -qi "space" || die "the full disk is not named"
    "$INDEX" export --store "$TMP/mount/store" >"$TMP/two" 2>"$ERR" || die "the store cannot be read on a full disk"
    cmp "$TMP/one" "$TMP/two" || die "a full disk changed the store"
    # No block is left, and LMDB's lock file does not exist: readers work without it, a writer fails with the reason.
    rm "$TMP/mount/store/catalog/lock.mdb"
    cat /dev/zero >"$TMP/mount/fill" 2>/dev/null
    expect 0 "$INDEX" search "river" --store "$TMP/mount/store" --model "$TMP/model" --k 1
    expect_error "no space left" "$INDEX" repair --store "$TMP/mount/store"
    expect_error "pace" "$INDEX" build "$TMP/b.jsonl" --out "$TMP/mount/second" --model "$TMP/model"
    rm "$TMP/mount/fill"
    mount -o remount,size=64m "$TMP/mount"
    expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/mount/store" --model "$TMP/model" --shard-chunks 300
    expect 0 "$INDEX" verify --store "$TMP/mount/store" --deep
    umount "$TMP/mount"
else
    echo "not tried: read-only media and a full disk (mounting is not allowed here)"
fi

# ulimit -f: the error names the remedy, for every kind of file; no half-written file is left, and the command continues
# without the limit.
make_corpus "$TMP/c.jsonl" 900 7
limited() { # blocks of 1024 bytes, file, options
    (ulimit -f "$1"; code=0; "$INDEX" build "$TMP/c.jsonl" --out "$TMP/limited" --model "$TMP/model" "${@:3}" 2>&1 >/dev/null | tail -n 1 >"$ERR"
     grep -q "$2.*ulimit -f" "$ERR") || die "ulimit -f $1: $2 is not named"
    [ ! -e "$TMP/limited" ] || [ -z "$(find "$TMP/limited" -name '*.tmp')" ] || die "ulimit -f $1: a temporary file is left"
}
limited 8 catalog/data.mdb
limited 80 tokens/00000.tok --shard-chunks 100000
[ ! -e "$TMP/limited" ] || die "a limit of file sizes left an empty store"
mv "$TMP/c.jsonl" "$TMP/kept.jsonl"
for ((i = 0; i < 600; i++)); do printf '{"text": "text %d"}\n' $i; done >"$TMP/c.jsonl"
limited 66 catalog/data.mdb --lexical off # the first shard's files are there, and it cannot be recorded
[ ! -e "$TMP/limited" ] || die "a shard that could not be recorded is left"
mv "$TMP/kept.jsonl" "$TMP/c.jsonl"
limited 80 catalog/data.mdb --shard-chunks 100
awk '{ gsub(/[^a-z ]/, ""); text = text $0 } NR % 45 == 0 { printf "{\"text\": \"%s\"}\n", text; text = "" }' "$TMP/c.jsonl" >"$TMP/long.jsonl"
mv "$TMP/long.jsonl" "$TMP/c.jsonl"; rm -r "$TMP/limited"
limited 100 limited/lexical --shard-chunks 100 # the segment, or one of its temporary files
rm -r "$TMP/limited"
limited 100 index/.....\\.faiss --shard-chunks 100 --index IVF16,Flat --lexical off
expect 0 "$INDEX" build "$TMP/c.jsonl" --out "$TMP/limited" --model "$TMP/model" --shard-chunks 100 --index IVF16,Flat --lexical off
expect 0 "$INDEX" build "$TMP/c.jsonl" --out "$TMP/unlimited" --model "$TMP/model" --shard-chunks 100 --index IVF16,Flat --lexical off
same_store "$TMP/limited" "$TMP/unlimited"

expect_usage "--threads 1000: must be between 0 and 256" "$INDEX" search x --store "$TMP/store" --threads 1000

# An empty name, such as a script's unset variable, is not a folder.
for command in "stats --store" "verify --store" "repair --store" "search x --store" "add $TMP/a.jsonl --store" "build $TMP/a.jsonl --out"; do
    expect_usage "'': the name is empty" "$INDEX" $command ""
done
expect_usage "--model '': the name is empty" "$INDEX" search x --store "$TMP/store" --model=

# One flipped bit in the transaction number of either meta page of the catalog: found, nothing deleted, repaired.
for page in 0 4096; do
    rm -rf "$TMP/flipped"
    cp -r "$TMP/store" "$TMP/flipped"
    byte=$(od -An -tu1 -j $((page + 144)) -N 1 "$TMP/flipped/catalog/data.mdb")
    printf "\\$(printf %o $((byte ^ 2)))" | dd of="$TMP/flipped/catalog/data.mdb" bs=1 seek=$((page + 144)) conv=notrunc 2>/dev/null
    expect_error "byte 144: is not what catalog/commit recorded" "$INDEX" stats --store "$TMP/flipped"
    expect_error "byte 144: is not what catalog/commit recorded" "$INDEX" add "$TMP/b.jsonl" --store "$TMP/flipped" --model "$TMP/model"
    expect 1 "$INDEX" verify --store "$TMP/flipped"
    grep -q "catalog/data.mdb: page .*byte 144.*: run drt-index repair$" "$OUT" || die "verify does not name the meta page"
    expect 0 "$INDEX" repair --store "$TMP/flipped"
    same_store "$TMP/flipped" "$TMP/store"
done

# A catalog that is cut short: verify names the one remedy, which is no command.
rm -rf "$TMP/flipped"
cp -r "$TMP/store" "$TMP/flipped"
truncate -s 500 "$TMP/flipped/catalog/data.mdb"
expect 1 "$INDEX" verify --store "$TMP/flipped"
grep -q "catalog/data.mdb: page 1: .*: restore the store from a copy or build it again$" "$OUT" || die "verify: $(cat "$OUT")"

# A newer store format: the number after "format" is raised in every catalog page that holds it.
expect 0 "$INDEX" verify --store "$TMP/store" --deep
cp -r "$TMP/store" "$TMP/newer"
offsets=$(grep -obUaP 'format\x04\x00\x00\x00' "$TMP/newer/catalog/data.mdb" | cut -d: -f1)
[ -n "$offsets" ] || die "the format record was not found"
for at in $offsets; do
    printf '\143' | dd of="$TMP/newer/catalog/data.mdb" bs=1 seek=$((at + 6)) conv=notrunc 2>/dev/null
done
expect_error "format version 99" "$INDEX" stats --store "$TMP/newer"
expect_error "format version 99" "$INDEX" search "river" --store "$TMP/newer" --model "$TMP/model"
expect_error "format version 99" "$INDEX" add "$TMP/a.jsonl" --store "$TMP/newer" --model "$TMP/model"
expect_error "format version 99" "$INDEX" verify --store "$TMP/newer"
# With a ulimit -v that leaves no memory for OpenBLAS' threads, programs still end (they used to wait for those threads).
# Debian 13's OpenBLAS retries endlessly before main starts: then stderr is empty.
for limit in 100000 160000; do
    (ulimit -v $limit; timeout -k 1 30 "$INDEX" stats --store "$TMP/newer") >"$OUT" 2>"$ERR"
    code=$?
    [ $code != 124 ] && [ $code != 137 ] && continue
    [ ! -s "$ERR" ] || die "stats did not end under ulimit -v $limit"
    break
done
echo ok
