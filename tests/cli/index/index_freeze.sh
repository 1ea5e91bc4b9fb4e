#!/usr/bin/env bash
# drt-index freeze: the snapshot has the contents of the store (exact, IVF, lexical; deleted, dropped and merged shards; foreign files of a
# join). It is read without a lock or a write (as a user without write permission, on a read-only mount, by many processes at once), refuses
# every change, does not change with the store, and verify finds each changed byte.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
make_model "$TMP/model"
make_corpus "$TMP/a.jsonl" 80 1
make_corpus "$TMP/b.jsonl" 40 2
model=(--model "$TMP/model" --threads 1)
chmod 755 "$TMP"
state() { find "$1" -printf '%P %y %m %s %T@ %i\n' | sort; }
hits() { "$INDEX" search "the river and the harbour" --store "$1" "${model[@]}" --k 9 "${@:2}" --json 2>"$ERR" || die "search in $1"; }

# A store with every feature: a joined one with an index, deleted documents, additions, a dropped shard.
for part in 1 2; do
    expect 0 "$INDEX" build "$TMP/a.jsonl" --part $part/2 --out "$TMP/parts" --shard-chunks 40 "${model[@]}"
done
expect 0 "$INDEX" join "$TMP"/parts/* --out "$TMP/store" --index IVF4,SQ8 --lexical on --threads 1
expect 0 "$INDEX" delete --store "$TMP/store" --document 3 --document 7
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/store" --shard-chunks 60 "${model[@]}"
expect 0 "$INDEX" drop --store "$TMP/store" --shard 1 --threads 1
export_store "$TMP/store" "$TMP/want"
for how in exact vectors lexical; do
    case $how in exact) options=(--exact) ;; vectors) options=(--nprobe 4) ;; lexical) options=(--searcher lexical) ;; esac
    hits "$TMP/store" "${options[@]}" >"$TMP/want.$how"
    [ -s "$TMP/want.$how" ] || die "nothing is found ($how)"
done

before=$(state "$TMP/store" | cut -d' ' -f1-4 | grep -vE '^(catalog/)?lock')
expect 0 "$INDEX" freeze --store "$TMP/store/" --out "$TMP/snap/" --json
[ "$(json_int "$OUT" copied)" = 0 ] || die "files were copied, not linked"
after=$(state "$TMP/store" | cut -d' ' -f1-4 | grep -vE '^(catalog/)?lock')
same "$before" "$after" "freeze changed the store"
[ ! -e "$TMP/snap.partial" ] || die "snap.partial is left"
[ ! -e "$TMP/snap/lock" ] && [ ! -e "$TMP/snap/catalog/lock.mdb" ] || die "a snapshot has lock files"
expect 0 "$INDEX" stats --store "$TMP/snap" --json
out_has '"frozen":true'
expect 0 "$INDEX" freeze --store "$TMP/store" --out "$TMP/snap"
out_has "already"
expect 0 "$INDEX" freeze --store "$TMP/snap" --out "$TMP/copy" --copy --json
[ "$(json_int "$OUT" linked)" = 0 ] || die "--copy made links"

same_snapshot() { # STORE: all results of its readers, and verify
    export_store "$1" "$TMP/got"
    cmp -s "$TMP/got" "$TMP/want" || die "$1 gives something else than the store"
    hits "$1" --exact | cmp -s - "$TMP/want.exact" || die "$1: other exact hits"
    hits "$1" --nprobe 4 | cmp -s - "$TMP/want.vectors" || die "$1: other hits of the index"
    hits "$1" --searcher lexical | cmp -s - "$TMP/want.lexical" || die "$1: other hits by words"
    expect 0 "$INDEX" verify --store "$1" --deep
}
held=$(state "$TMP/snap")
same_snapshot "$TMP/snap"
same_snapshot "$TMP/copy"
expect 0 "$INDEX" get --store "$TMP/snap" --model "$TMP/model" --chunk 0
expect 0 "$INDEX" recall --store "$TMP/snap" --queries 20 --k 3 --threads 1

# Every writing command is refused in one line, and changes no file.
for command in "add $TMP/a.jsonl --model $TMP/model" "delete --document 1" "drop --shard 0" repair "lexical --remove"; do
    expect_error "is a frozen snapshot" "$INDEX" ${command%% *} $( [ "$command" = "${command#* }" ] || echo "${command#* }") --store "$TMP/snap"
done
expect_error "a store is built here already" "$INDEX" build "$TMP/b.jsonl" --out "$TMP/snap" "${model[@]}" --restart
same "$held" "$(state "$TMP/snap")" "reading or refusing changed the snapshot"

# The store changes, merges and loses files; the snapshot does not.
expect 0 "$INDEX" add "$TMP/a.jsonl" --store "$TMP/store" --shard-chunks 100 "${model[@]}"
expect 0 "$INDEX" delete --store "$TMP/store" --source "*"
rm -r "$TMP/parts"
same_snapshot "$TMP/snap"
expect_error "is a snapshot of generation" "$INDEX" freeze --store "$TMP/store" --out "$TMP/snap"
rm -r "$TMP/store"
same_snapshot "$TMP/snap"
expect 0 "$INDEX" compact --store "$TMP/snap" --out "$TMP/again" --threads 1
expect 0 "$INDEX" add "$TMP/b.jsonl" --store "$TMP/again" "${model[@]}"

# Several readers at once, as a user without write permission.
readers() { # STORE COMMAND...: runs eight readers under the command
    local pids=() i bad=0 dir=$1
    shift
    for i in 1 2 3 4 5 6 7 8; do
        "$@" "$INDEX" search "the river and the harbour" --store "$dir" "${model[@]}" --k 9 --exact --json >"$TMP/reader.$i" 2>"$TMP/reader.$i.err" &
        pids+=($!)
    done
    for i in 1 2 3 4 5 6 7 8; do
        wait "${pids[i - 1]}" || { cat "$TMP/reader.$i.err"; bad=1; }
        cmp -s "$TMP/reader.$i" "$TMP/want.exact" || bad=1
    done
    [ $bad = 0 ] || die "a reader of $dir failed, or found something else ($*)"
}
readers "$TMP/snap"
chmod -R a-w,a+rX "$TMP/snap"
chmod -R a+rX "$TMP/model"
held=$(state "$TMP/snap")
done_as=""
if [ "$(id -u)" != 0 ]; then
    readers "$TMP/snap"
    done_as=" as a user"
elif command -v setpriv >/dev/null && setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$INDEX" -a -r "$TMP/snap/catalog/data.mdb"; then
    readers "$TMP/snap" setpriv --reuid 65534 --regid 65534 --clear-groups
    setpriv --reuid 65534 --regid 65534 --clear-groups "$INDEX" verify --store "$TMP/snap" --deep >"$OUT" 2>"$ERR" || die "verify as another user"
    done_as=" as a user"
fi
same "$held" "$(state "$TMP/snap")" "readers changed the snapshot"

# On a read-only mount: a bind mount, and FUSE if there is a driver; two mounts simulate two hosts.
mkdir "$TMP/m1" "$TMP/m2"
mounted() { # a script that runs in a separate mount namespace
    unshare -m sh -c "$1" sh "$TMP/snap" "$TMP/m1" "$TMP/m2" "$INDEX" "$TMP/model" "$TMP/want.exact" 2>"$ERR"
}
use='for m in "$2" "$3"; do ! touch "$m/x" 2>/dev/null || exit 5
    "$4" search "the river and the harbour" --store "$m" --model "$5" --threads 1 --k 9 --exact --json 2>/dev/null | cmp - "$6" || exit 6
    "$4" verify --store "$m" --deep >&2 || exit 7; done'
bind=no fuse=no
if [ "$(id -u)" = 0 ] && mounted 'mount --bind "$1" "$2" && mount -o remount,ro,bind "$2"'; then
    bind=yes
    mounted 'for m in "$2" "$3"; do mount --bind "$1" "$m" && mount -o remount,ro,bind "$m"; done
        '"$use" || die "on a read-only mount"
fi
if [ "$(id -u)" = 0 ] && [ -c /dev/fuse ] && command -v bindfs >/dev/null && mounted 'bindfs -r "$1" "$2" && umount "$2"'; then
    fuse=yes
    mounted 'for m in "$2" "$3"; do bindfs -r "$1" "$m" || exit 4; done
        '"$use"'; r=$?; umount "$2" "$3"; exit $r' || die "on a FUSE mount"
fi
same "$held" "$(state "$TMP/snap")" "mounts changed the snapshot"
chmod -R u+w "$TMP/snap"

# verify finds each changed byte of the catalog and of the snapshot's mark; the remedy is a new snapshot.
damage() { # FILE OFFSET TEXT
    rm -rf "$TMP/hurt"
    cp -r "$TMP/copy" "$TMP/hurt"
    printf '\x5a' | dd of="$TMP/hurt/$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
    cmp -s "$TMP/hurt/$1" "$TMP/copy/$1" && return
    expect 1 "$INDEX" verify --store "$TMP/hurt" --deep
    out_has "$3"
    out_has "make the snapshot again with drt-index freeze"
}
damage catalog/frozen 9 "is damaged"
damage catalog/frozen 25 "is damaged"
bytes=$(stat -c %s "$TMP/copy/catalog/data.mdb")
for at in 150 4300 $((bytes / 2)) $((bytes - 9)); do damage catalog/data.mdb $at "catalog"; done
file=$(cd "$TMP/copy" && ls landmarks/*."$LANDMARKS" | head -n 1)
damage "$file" 200 "its bytes changed"
rm -rf "$TMP/hurt"; cp -r "$TMP/copy" "$TMP/hurt"; truncate -s -4096 "$TMP/hurt/catalog/data.mdb"
expect_error "were frozen" "$INDEX" stats --store "$TMP/hurt"
rm "$TMP/hurt/$file"
expect_error "were frozen" "$INDEX" search x --store "$TMP/hurt" "${model[@]}"

# Existing files are not replaced.
mkdir "$TMP/full" "$TMP/new.partial"
echo mine >"$TMP/full/file"
echo mine >"$TMP/new.partial/file"
expect_error "exists and is not a snapshot" "$INDEX" freeze --store "$TMP/again" --out "$TMP/full"
expect_error "exists and is not an unfinished snapshot" "$INDEX" freeze --store "$TMP/again" --out "$TMP/new"
expect_error "exists and is not a snapshot" "$INDEX" freeze --store "$TMP/again" --out "$TMP/again"
expect_error "no store here" "$INDEX" freeze --store "$TMP/full" --out "$TMP/x"
[ -e "$TMP/full/file" ] && [ -e "$TMP/new.partial/file" ] || die "freeze removed what is not its own"
expect_usage "--out DIR is missing" "$INDEX" freeze --store "$TMP/again"
echo "ok; readers$done_as; read-only bind mount: $bind; FUSE (bindfs): $fuse"
