#!/usr/bin/env python3
"""keys_rows.py STORE -- writes the keys of all chunks of a store to standard output: the codes of all rows in the order of chunks, then all
scales. So two stores whose files divide their chunks in other ways can be compared by bytes (docs/store-format.md, Keys of a token memory)."""
import pathlib, struct, sys

codes, scales = [], []
for path in sorted(pathlib.Path(sys.argv[1], "keys").glob("*.keys"), key=lambda p: int(p.stem)):
    data = path.read_bytes()
    layer, size, tokens, window, step = struct.unpack_from("<5i", data, 12)
    number, chunks = struct.unpack_from("<2q", data, 48)
    rows, end = chunks * tokens, 128 + chunks * tokens * size
    at = (end + 63) // 64 * 64
    assert data[:8] == b"DRTSKEYS" and data[-16:-8] == b"DRTKYEND" and len(data) == at + 4 * rows + 16, path
    codes.append(data[128:end])
    scales.append(data[at:at + 4 * rows])
sys.stdout.buffer.write(b"".join(codes) + b"".join(scales))
