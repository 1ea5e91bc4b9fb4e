#!/usr/bin/env bash
# drt-generate --trace with a token memory: each token's share and the entries that it came from, with a corpus of markup. Chromium, if it
# is installed, renders the page.
. "$DRT_SOURCE/tests/cli/lib_model.sh" || exit 1
needs drt-generate drt-index
command -v python3 >/dev/null || skip "python3 is missing"
tiny_model "$TMP/m"
python3 - "$TMP/docs.jsonl" <<'P'
import json, sys
evil = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"><!-- & \u2028 \u202e "
with open(sys.argv[1], "w") as f:
    for i in range(8):
        f.write(json.dumps({"text": (evil + "abcdefghijklmnopqrstuvwxyz %d " % i) * 6, "meta": {"id": "<b onclick=x>%d</b>" % i}}) + "\n")
P
tiny_store "$TMP/s" "$TMP/m" "$TMP/docs.jsonl"
prompt="</script><script>document.title='tak"
run() {
    expect 0 "$GENERATE" --model "$TMP/m" --greedy -n 90 -p "$prompt" --memory both --store "$TMP/s" \
        --memory-k 4 --memory-weight 0.9 --memory-tau 1 "$@"
}
run && cp "$OUT" "$TMP/plain"
run --trace "$TMP/t.jsonl"
cmp -s "$OUT" "$TMP/plain" || die "the trace changes the text"
run --trace "$TMP/t.html"
"$BIN/drt-index" export --store "$TMP/s" >"$TMP/export" 2>"$ERR" || die "export"
python3 - "$TMP" <<'P' || die "the data of the trace"
import json, re, sys
tmp = sys.argv[1]
rows = [json.loads(line) for line in open(tmp + "/t.jsonl", encoding="utf-8").read().split("\n") if line]
page = open(tmp + "/t.html", encoding="utf-8").read()
data = page[page.index('type="application/json">') + 24:]
data = data[:data.index("</script>")]
assert "<" not in data, "a text can become markup"
assert json.loads(data) == rows, "page and lines differ"
assert not re.search(r'(src|href)\s*=\s*["\']?(https?:|//)', page), "the page loads something from another host"
ids = [i for row in rows for i in row["tokens"]]
prompt = sum(row["prompt_tokens"] for row in rows)
store = {}
for line in open(tmp + "/export"):
    c = json.loads(line)
    tokens = next(c[k] for k in ("ids", "tokens") if isinstance(c.get(k), list))
    key = next(k for k in ("chunk", "id") if k in c)
    store[c[key]] = tokens
seen = corpus = own = 0
for row in rows:
    for m in row.get("memory", []):
        position = row["first_token"] + m["token"]
        assert position == prompt + seen, "tokens of the memory are those that were generated, in order"
        seen += 1
        assert 0 <= m["share"] <= 1 and 0 <= m["begin"] <= m["end"] <= len(row["text"]), m
        shares = [p["share"] for p in m["from"]]
        assert shares == sorted(shares, reverse=True) and sum(shares) <= m["share"] * 1.001 + 1e-6, m
        for part in m["from"]:
            passage = row["passages"][part["passage"]]
            assert 0 <= part["begin"] <= part["end"] <= len(passage["text"])
            at = part["offset"] - passage["offset"]
            if passage["source"] == "corpus":
                # The id in the record is the generated id.
                corpus += 1
                assert store[passage["chunk"]][at] == ids[position], (passage["chunk"], at)
                assert passage["key"].startswith("<b onclick=x>") and passage["document_id"] >= 0
            else:
                own += 1
                assert part["offset"] < position and ids[part["offset"]] == ids[position], (part, position)
            if row["text"][m["begin"]:m["end"]].strip() and m["end"] - m["begin"] == part["end"] - part["begin"]:
                assert passage["text"][part["begin"]:part["end"]] == row["text"][m["begin"]:m["end"]], (m, part)
assert seen == len(ids) - prompt and corpus > 20 and own > 0, (seen, corpus, own)
P
# A Base LM: its trace has chunks of another length than the store. The text of a passage is that of its document, and nothing follows it.
tiny_base "$TMP/base"
corpus "$TMP/plain.jsonl" 3 400
tiny_store "$TMP/words" "$TMP/m" "$TMP/plain.jsonl"
expect 0 "$GENERATE" --model "$TMP/base" --greedy -n 30 -p "$(words 20)" --memory corpus --store "$TMP/words" --memory-k 4 --memory-weight 0.9 \
    --memory-tau 1 --trace "$TMP/base.jsonl"
python3 - "$TMP" <<'P' || die "the passages of a Base LM"
import json, sys
documents = [json.loads(line)["text"] for line in open(sys.argv[1] + "/plain.jsonl")]
passages = [p for line in open(sys.argv[1] + "/base.jsonl") for p in json.loads(line).get("passages", [])]
assert len(passages) > 3, passages
for p in passages:
    assert p["text"] and p["text"] in documents[p["document_id"]], p["text"]
P
# Without a memory the page has no such member and shows no share.
expect 0 "$GENERATE" --model "$TMP/m" --greedy -n 40 -p "$prompt" --trace "$TMP/none.jsonl"
! grep -q '"memory"' "$TMP/none.jsonl" || die "a memory that was not there"
chromium=$(command -v chromium || command -v chromium-browser) || skip "chromium is missing: the page was not shown"
expect 0 timeout 100 "$chromium" --headless=new --no-sandbox --disable-gpu --user-data-dir="$TMP/profile" --virtual-time-budget=3000 \
    --dump-dom "file://$TMP/t.html"
out_lacks "<title>taken"
out_has "of its probability came from the token memory"
out_has 'class="tok'
out_has "<mark>"
[ "$(grep -o '<img' "$OUT" | wc -l)" = 0 ] || die "a text became an image"
