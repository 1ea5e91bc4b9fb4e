# Landmarks from files: --vectors of .npy and .fbin, resumed and added to; files that do not fit are refused.
. "$DRT_SOURCE/tests/cli/lib_index.sh" || exit 1
command -v perl >/dev/null || skip "perl is not installed: it writes the vectors"
make_model "$TMP/model"
make_corpus "$TMP/corpus.jsonl" 60
make_corpus "$TMP/more.jsonl" 20 2
model=(--model "$TMP/model")
expect 0 "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/own" "${model[@]}"
expect 0 "$INDEX" export --store "$TMP/own" --landmarks values
cp "$OUT" "$TMP/own.jsonl"
# vectors FILE ROWS [FIRST_VALUE]: the landmarks of $TMP/own.jsonl as .fbin or .npy, ROWS of them (after the last: the first again).
vectors() {
    perl -e '
        my ($file, $n, $first) = @ARGV;
        open(my $in, "<", "'"$TMP"'/own.jsonl"); my @rows;
        while (<$in>) { /"landmark":\[([^\]]*)\]/ or die "no landmark"; push @rows, [split /,/, $1]; }
        my $dim = @{$rows[0]}; my $data = "";
        for my $i (0 .. $n - 1) { my @row = @{$rows[$i % @rows]}; $row[0] = $first if $i == 3 && defined $first; $data .= pack("f<*", @row); }
        my $head = pack("l<l<", $n, $dim);
        if ($file =~ /npy$/) {
            my $text = "{\x27descr\x27: \x27<f4\x27, \x27fortran_order\x27: False, \x27shape\x27: ($n, $dim), }";
            $text .= " " while (10 + length($text) + 1) % 64; $text .= "\n";
            $head = "\x93NUMPY\x01\x00" . pack("v", length $text) . $text;
        }
        open(my $out, ">:raw", $file); print $out $head, $data; close $out or die;' "$@" || die "perl: $*"
}
chunks=$(wc -l <"$TMP/own.jsonl")
vectors "$TMP/v.npy" "$chunks"
vectors "$TMP/v.fbin" "$chunks"
for kind in npy fbin; do
    expect 0 "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/$kind" "${model[@]}" --vectors "$TMP/v.$kind"
    expect 0 "$INDEX" verify --store "$TMP/$kind" --deep
    expect 0 "$INDEX" export --store "$TMP/$kind" --landmarks values
    cmp -s "$OUT" "$TMP/own.jsonl" || die "the store of v.$kind has other landmarks than the file"
    # Queries are vectors as well: the first row finds chunk 0.
    expect 0 "$INDEX" search --queries "$TMP/v.$kind" --store "$TMP/$kind" "${model[@]}" --k 1 --json
    same "$(wc -l <"$OUT")" "$chunks" "queries"
    cp "$OUT" "$TMP/hits-$kind"
done
cmp -s "$TMP/hits-npy" "$TMP/hits-fbin" || die "hits depend on the file's format"
expect 0 "$INDEX" search --queries "$TMP/v.npy" --store "$TMP/own" "${model[@]}" --k 1 --json
cmp -s "$OUT" "$TMP/hits-npy" || die "hits are not those of the store that the vectors came from"

# Stopped after the first sealed shard, and run again: stored rows are skipped.
build=("$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/r" "${model[@]}" --vectors "$TMP/v.npy" --shard-chunks 30)
head -c $((128 + 60 * 32 * 4 + 13)) "$TMP/v.npy" >"$TMP/cut.npy" # ends inside row 60
cp "$TMP/v.npy" "$TMP/whole.npy"
mv "$TMP/cut.npy" "$TMP/v.npy"
named=("${build[@]}" --vectors-name here)
expect_error "ends within rows" "${named[@]}"
mv "$TMP/whole.npy" "$TMP/v.npy"
expect 0 "${named[@]}"
err_has "resuming after"
expect 0 "$INDEX" export --store "$TMP/r" --landmarks values
cmp -s "$OUT" "$TMP/own.jsonl" || die "a resumed build has other landmarks"

# More vectors of the same name are accepted, others are refused.
expect 0 "$INDEX" build "$TMP/more.jsonl" --out "$TMP/count" "${model[@]}"
expect 0 "$INDEX" export --store "$TMP/count" --landmarks none
vectors "$TMP/more.fbin" "$(wc -l <"$OUT")"
add=("$INDEX" add "$TMP/more.jsonl" --store "$TMP/r" "${model[@]}" --vectors "$TMP/more.fbin")
expect_usage "--vectors needs --vectors-name" "${add[@]}"
expect_error "encoder weights" "${add[@]}" --vectors-name there
expect 0 "${add[@]}" --vectors-name here

# Files that do not fit.
refused() { expect_error "$1" "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/bad" "${model[@]}" --vectors "$2"; rm -rf "$TMP/bad"; }
vectors "$TMP/few.npy" $((chunks - 1))
refused "has $((chunks - 1)) vectors, and the corpus has more chunks" "$TMP/few.npy"
vectors "$TMP/many.fbin" $((chunks + 2))
refused "has $((chunks + 2)) vectors, but the corpus has $chunks chunks" "$TMP/many.fbin"
vectors "$TMP/nan.npy" "$chunks" nan
refused "row 3, column 0 is not a finite number" "$TMP/nan.npy"
sed 's/<f4/<i4/' "$TMP/v.npy" >"$TMP/int.npy"
refused "type '<i4'" "$TMP/int.npy"
{ cat "$TMP/v.fbin"; printf x; } >"$TMP/long.fbin"
refused "has more bytes than its header" "$TMP/long.fbin"
printf '\001\000\000\000\000\000\000\000' >"$TMP/zero.fbin"
refused "0 dimensions" "$TMP/zero.fbin"
cp "$TMP/v.npy" "$TMP/v.bin"
refused "ends in .npy or .fbin" "$TMP/v.bin"
refused "No such file" "$TMP/nowhere.npy"
expect_usage "--vectors-name needs --vectors" "$INDEX" build "$TMP/corpus.jsonl" --out "$TMP/bad" --vectors-name x
# Texts cannot be queries of such a store.
expect_error "encoder weights" "$INDEX" search "the river" --store "$TMP/npy" "${model[@]}"
echo ok
