#!/usr/bin/env bash
# Parquet and arrow files that pyarrow writes with random contents and options: the ids of their documents are those of
# the jsonl that pyarrow reads back from them. Skipped if pyarrow is not installed.
#
#   columnar_pyarrow.sh [FILES [SEED]]        12 files of each format, seed 1
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib.sh" || exit 1
needs drt-tokenizer
command -v python3 >/dev/null && python3 -c 'import pyarrow.parquet' 2>/dev/null ||
    { echo "skipped: python3 has no pyarrow (pip install pyarrow)"; exit 77; }
files=${1:-12}
seed=${2:-1}
python3 - "$TMP" "$files" "$seed" <<'PYTHON' || die "pyarrow could not write the files"
import json, random, sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

folder, files, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(seed)
words = ["the", "river", "stone", "λόγος", "日本", "\U0001F600", "", "a\nb", "\u0000", "x" * 300]


def text():
    n = draw.choice([0, 1, 3, 10, 100, draw.randrange(2000)])
    return " ".join(draw.choices(words, k=n))


def table(kinds):
    n = draw.choice([1, 7, 100, 1500])
    texts = [text() for _ in range(n)]
    if draw.random() < 0.3:  # long common prefixes and repeated texts
        texts = [texts[0] + t[:20] for t in texts]
    if draw.random() < 0.3:
        texts = draw.choices(texts[:5], k=n)
    columns = {"before": pa.array([[1] * draw.randrange(3) for _ in range(n)]), "text": pa.array(texts, draw.choice(kinds)),
               "id": pa.array([f"k{i}" for i in range(n)] if draw.random() < 0.5 else list(range(n))),
               "meta": pa.array([{"b": {"c": t}} for t in texts]), "view": pa.array(texts, pa.string_view())}
    names = [name for name in columns if name == "text" or draw.random() < 0.6]
    draw.shuffle(names)
    return pa.table({name: columns[name] for name in names})


def write_parquet(path):
    what = table([pa.string(), pa.large_string()])
    what = what.drop_columns(["view"]) if "view" in what.column_names else what
    dictionary = draw.random() < 0.5
    encodings = {} if dictionary else {"text": draw.choice(["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])}
    pq.write_table(what, path, compression=draw.choice(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
                   use_dictionary=dictionary, column_encoding=encodings or None,
                   data_page_version=draw.choice(["1.0", "2.0"]), data_page_size=draw.choice([50, 5000, 1 << 20]),
                   write_batch_size=draw.choice([1, 10, 1024]), dictionary_pagesize_limit=draw.choice([100, 1 << 20]),
                   row_group_size=draw.choice([10, 1000, 1 << 20]), write_page_checksum=draw.random() < 0.5,
                   write_statistics=draw.random() < 0.7)
    return pq.read_table(path)


def write_arrow(path):
    what = table([pa.string(), pa.large_string(), pa.string_view()])
    options = pa.ipc.IpcWriteOptions(compression=draw.choice([None, "lz4", "zstd"]))
    stream = draw.random() < 0.5
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, what.schema, options=options) as writer:
        writer.write_table(what, max_chunksize=draw.choice([3, 100, 10000]))
    return (pa.ipc.open_stream if stream else pa.ipc.open_file)(path).read_all()


for i in range(files):
    for kind, write in (("parquet", write_parquet), ("arrow", write_arrow)):
        back = write(str(folder / f"{i}.{kind}"))
        with open(folder / f"{i}.{kind}.jsonl", "w") as out:
            out.writelines(json.dumps({"text": t}) + "\n" for t in back["text"].to_pylist())
        if "meta" in back.column_names:
            (folder / f"{i}.{kind}.nested").touch()
PYTHON
encode() { # FILE, OUT, options
    expect 0 "$BIN/drt-tokenizer" encode "$1" --tokenizer "$SOURCE/tests/cli/tiny/tokenizer.json" --out "$2" --eod-id 268 "${@:3}"
}
for file in "$TMP"/*.parquet "$TMP"/*.arrow; do
    encode "$file.jsonl" "$TMP/jsonl.u16"
    encode "$file" "$TMP/rows.u16"
    cmp "$TMP/rows.u16" "$TMP/jsonl.u16" || { cp "$file" "$TMP.failed"; die "$file (seed $seed; kept as $TMP.failed)"; }
    if [ -e "$file.nested" ]; then
        encode "$file" "$TMP/nested.u16" --text-field meta.b.c
        cmp "$TMP/nested.u16" "$TMP/jsonl.u16" || die "$file: the nested column (seed $seed)"
        rm "$TMP/nested.u16"
    fi
    rm "$TMP/jsonl.u16" "$TMP/rows.u16"
done

# A folder of the package `datasets`, with the copy of the rows that its map makes there.
if python3 -c 'import datasets' 2>/dev/null; then
    HF_HOME=$TMP/hf python3 - "$TMP/saved" <<'PYTHON' >/dev/null 2>&1 || die "datasets could not save"
import sys, datasets

datasets.Dataset.from_dict({"text": [f"document {i}" for i in range(50)]}).save_to_disk(sys.argv[1], num_shards=3)
datasets.load_from_disk(sys.argv[1]).map(lambda row: {"text": row["text"] + " mapped"})
PYTHON
    [ "$(find "$TMP/saved" -name 'cache-*.arrow' | wc -l)" = 1 ] || die "map left no copy"
    for i in $(seq 0 49); do echo "{\"text\": \"document $i\"}"; done >"$TMP/saved.jsonl"
    encode "$TMP/saved.jsonl" "$TMP/jsonl.u16"
    encode "$TMP/saved" "$TMP/rows.u16"
    cmp "$TMP/rows.u16" "$TMP/jsonl.u16" || die "what datasets saved has other documents"
else
    echo "not tried: a folder that the package datasets saves (pip install datasets)"
fi
echo "ok; $files files of each format"
