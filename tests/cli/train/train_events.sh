#!/usr/bin/env bash
# The event file of a run: TFRecord and protobuf as TensorBoard reads them, each step once with the numbers of log.jsonl,
# also after stops, a kill and a damaged end.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-train drt-tokenizer
command -v python3 >/dev/null || skip "python3 is missing"
corpus "$TMP/train.jsonl" 6 100
expect 0 "$BIN/drt-tokenizer" encode "$TMP/train.jsonl" --tokenizer "$TINY/tokenizer.json" --out "$TMP/train.u16" --eod-id 268 --threads 2
model=$(sed 's/"chunk_id"/"mask_id": 267, "chunk_id"/' "$TINY/config.json")
cat >"$TMP/config.json" <<END
{"model": $model, "tokenizer": "$TINY/tokenizer.json", "data": ["$TMP/train.u16"], "valid": ["$TMP/train.u16"],
 "sequences": 1, "length": 126, "steps": 14, "warmup": 2, "lr": 0.01, "pool": "batch", "save_every": 4, "eval_every": 7, "eval_windows": 1}
END
train() { "$BIN/drt-train" --device cpu --threads 1 "$@"; }
cat >"$TMP/read.py" <<'P'
import json, struct, sys
table = []
for i in range(256):
    for _ in range(8): i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
    table.append(i)
def masked(data):
    c = 0xffffffff
    for b in data: c = table[(c ^ b) & 255] ^ c >> 8
    c ^= 0xffffffff
    return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff
def fields(data):
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            b = data[at]; at += 1
            value |= (b & 127) << shift; shift += 7
            if b < 128: return value
    while at < len(data):
        key = varint()
        if key & 7 == 0: yield key >> 3, varint()
        elif key & 7 == 1: yield key >> 3, struct.unpack_from("<d", data, at)[0]; at += 8
        elif key & 7 == 5: yield key >> 3, struct.unpack_from("<f", data, at)[0]; at += 4
        elif key & 7 == 2:
            n = varint(); yield key >> 3, data[at:at + n]; at += n
        else: raise ValueError(key)
    assert at == len(data)
folder, steps = sys.argv[1], int(sys.argv[2])
data = open(folder + "/events.out.tfevents.drt", "rb").read()
at, events = 0, []
while at < len(data):
    n, c = struct.unpack_from("<QI", data, at)
    assert c == masked(data[at:at + 8])
    event = data[at + 12:at + 12 + n]
    assert struct.unpack_from("<I", data, at + 12 + n)[0] == masked(event)
    events.append(dict(fields(event)))
    at += 16 + n
assert events[0][3] == b"brain.Event:2" and events[0][1] > 1e9
log = [json.loads(line) for line in open(folder + "/log.jsonl")]
assert [e[2] for e in events[1:]] == [l["step"] for l in log] == list(range(1, steps + 1)), [e.get(2) for e in events]
names = {"loss": "loss/train", "valid_loss": "loss/valid", "lr": "step/lr", "gradient_norm": "step/gradient_norm", "tokens": "step/tokens",
         "valid_bits_per_byte": "valid/bits_per_byte", "tokens_per_second": "step/tokens_per_second"}
for e, l in zip(events[1:], log):
    got = {}
    for field, value in fields(e[5]):
        v = dict(fields(value))
        assert field == 1 and v[1].decode() not in got
        got[v[1].decode()] = v[2]
    for key, tag in names.items():
        assert (key in l) == (tag in got), (key, l, got)
        if key in l: assert abs(got[tag] - l[key]) <= 1e-5 * abs(l[key]) + 1e-9, (key, l, got)
P
events() { python3 "$TMP/read.py" "$TMP/run" "$1" || die "the events $2"; }
expect 0 train --config "$TMP/config.json" --out "$TMP/run" --until 6
events 6 "of a stopped run"
expect 0 train --out "$TMP/run" --resume --until 9
events 9 "of a resumed run"
# The state after a kill between two checkpoints: lines and events after the newest one, the last one truncated.
newest=$TMP/run/checkpoints/step-9
[ -d "$newest" ] || die "no checkpoint of step 9"
cp "$TMP/run/events.out.tfevents.drt" "$TMP/events"
rm -r "$newest"
printf 'cut off in the mid' >>"$TMP/run/events.out.tfevents.drt"
expect 0 train --out "$TMP/run" --resume
events 14 "of a run that went back to a checkpoint"
# Another file is not overwritten.
printf 'these are notes of a person, and no events' >"$TMP/run/events.out.tfevents.drt"
expect_error "does not begin with an event: move it away" "$BIN/drt-train" --device cpu --out "$TMP/run" --resume --steps 20
rm "$TMP/run/events.out.tfevents.drt"
expect 0 train --out "$TMP/run" --resume --steps 20
P=$(head -c 12 "$TMP/run/events.out.tfevents.drt" | wc -c)
same "$P" 12 "a new file of events"
