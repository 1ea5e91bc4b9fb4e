#!/usr/bin/env python3
"""Writes the parquet and arrow files that the tests read: make_columnar.py CORPUS_FOLDER (tests/fuzz/corpus).

Needs pyarrow; run by hand (pyarrow 26 wrote the committed files). One file a codec, encoding or edge case. Unless a case
says otherwise, a file holds the twelve documents of documents() in column "text" and "doc-0" ... in column "id".
"""
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def documents():
    texts = [f"document {i}: " + "the river and the stone " * (i % 4) + chr(0x3B1 + i) for i in range(12)]
    texts[5] = ""
    return texts


TEXTS = documents()
IDS = [f"doc-{i}" for i in range(12)]
BAD_UTF8 = [b"good", b"bad \xff\xfe end", b"cut \xe2\x82"]


def table(text_type=pa.string(), nullable=True, **more):
    columns = {"text": pa.array(TEXTS, text_type), "id": pa.array(IDS), **more}
    fields = [pa.field(name, column.type, nullable=nullable) for name, column in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def invalid_utf8():
    offsets, data = [0], b""
    for value in BAD_UTF8:
        data += value
        offsets.append(len(data))
    buffers = [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(data)]
    return pa.table({"text": pa.StringArray.from_buffers(len(BAD_UTF8), buffers[1], buffers[2])})


def nested():
    meta = pa.array([{"id": i, "tags": ["a", None] * (i % 3), "body": t} for i, t in enumerate(TEXTS)])
    lists = pa.array([[[1, 2], []][: i % 3] for i in range(12)])
    return pa.table({"lists": lists, "meta": meta, "text": pa.array(TEXTS), "score": pa.array([0.5] * 12)})


def parquet_files(folder):
    def write(name, what=None, **options):
        options.setdefault("compression", "none")
        options.setdefault("use_dictionary", False)
        pq.write_table(table() if what is None else what, folder / f"{name}.parquet", **options)

    for codec in ("none", "snappy", "gzip", "zstd", "lz4", "brotli"):
        write(f"plain_v1_{codec}", compression=codec, data_page_version="1.0")
        write(f"dictionary_v2_{codec}", compression=codec, data_page_version="2.0", use_dictionary=True)
    write("dictionary_v1", version="1.0", use_dictionary=True)
    for encoding in ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        for page in ("1.0", "2.0"):
            write(f"{encoding.lower()}_v{page[0]}", compression="zstd", data_page_version=page,
                  column_encoding={"text": encoding, "id": encoding})
    write("row_groups", row_group_size=5, use_dictionary=True)
    write("small_pages", table(text_type=pa.large_string()), data_page_size=40, write_batch_size=2, compression="zstd",
          write_page_checksum=True)
    write("fallback", pa.table({"text": pa.array([f"{i % 7} text {i % 50}" for i in range(400)]), "id": pa.array(range(400))}),
          use_dictionary=True, dictionary_pagesize_limit=200, data_page_size=300, write_batch_size=16)
    write("required", table(nullable=False), compression="snappy")
    write("categories", table(text_type=pa.dictionary(pa.int32(), pa.string())), use_dictionary=True)
    write("nested", nested(), compression="snappy", use_dictionary=["text"])
    write("id_delta", pa.table({"text": pa.array(TEXTS), "id": pa.array([(-3) ** i for i in range(12)])}),
          column_encoding={"text": "PLAIN", "id": "DELTA_BINARY_PACKED"})
    write("id_split", pa.table({"text": pa.array(TEXTS), "id": pa.array([2**31 + i for i in range(12)], pa.uint32())}),
          column_encoding={"text": "PLAIN", "id": "BYTE_STREAM_SPLIT"})
    nulls = pa.array([None if i % 3 == 1 else t for i, t in enumerate(TEXTS)])
    write("nulls", pa.table({"text": nulls, "id": pa.array(IDS)}), row_group_size=8, compression="zstd")
    write("bad_utf8", invalid_utf8())
    write("no_rows", table().slice(0, 0))
    write("text_is_int", pa.table({"text": pa.array(range(3)), "body": pa.array(["a", "b", "c"])}))
    write("text_is_list", pa.table({"text": pa.array([["a"], ["b", "c"]]), "title": pa.array(["a", "b"])}))
    write("text_is_binary", pa.table({"text": pa.array([b"a", b"b"]), "title": pa.array(["a", "b"])}))
    encrypted(folder)


def encrypted(folder):
    import base64

    import pyarrow.parquet.encryption as pe

    class Kms(pe.KmsClient):
        def __init__(self, _):
            super().__init__()

        def wrap_key(self, key, _):
            return base64.b64encode(key)

        def unwrap_key(self, key, _):
            return base64.b64decode(key)

    factory = pe.CryptoFactory(Kms)
    for name, plain in (("encrypted_footer", False), ("encrypted_column", True)):
        config = pe.EncryptionConfiguration(footer_key="f", column_keys={"k": ["text"]}, plaintext_footer=plain)
        properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
        with pq.ParquetWriter(folder / f"{name}.parquet", table().schema, encryption_properties=properties) as writer:
            writer.write_table(table())


def arrow_files(folder):
    def write(name, what=None, stream=True, chunk=5, **options):
        what = table() if what is None else what
        new = pa.ipc.new_stream if stream else pa.ipc.new_file
        with new(folder / f"{name}.arrow", what.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(what, max_chunksize=chunk)

    write("stream")
    write("file", stream=False)
    for codec in ("lz4", "zstd"):
        write(f"stream_{codec}", compression=codec)
    write("file_zstd", stream=False, compression="zstd")
    write("large", table(text_type=pa.large_string()))
    write("view", table(text_type=pa.string_view()), chunk=12)
    first = pa.array(["a view of more than twelve bytes"] * 12, pa.string_view())
    write("view_lz4", table(text_type=pa.string_view()).add_column(0, "first", first), compression="lz4")
    write("nested", nested())
    nulls = pa.array([None if i % 3 == 1 else t for i, t in enumerate(TEXTS)])
    write("nulls", pa.table({"text": nulls, "id": pa.array(IDS)}))
    write("sliced", pa.table({"text": pa.array(["x"] * 3 + TEXTS)[3:], "id": pa.array(range(15))[3:]}))
    write("bad_utf8", invalid_utf8())
    write("no_rows", table().slice(0, 0))
    write("categories", table(text_type=pa.dictionary(pa.int32(), pa.string())))
    write("text_is_int", pa.table({"text": pa.array(range(3)), "body": pa.array(["a", "b", "c"])}))


def main():
    corpus = Path(sys.argv[1])
    for name, make in (("fuzz_parquet", parquet_files), ("fuzz_arrow", arrow_files)):
        (corpus / name).mkdir(parents=True, exist_ok=True)
        make(corpus / name)


if __name__ == "__main__":
    main()
