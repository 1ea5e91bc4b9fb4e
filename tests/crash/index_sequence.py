"""The driver of tests/crash/index_sequence.sh: random sequences of drt-index commands on one store, against a list of documents.

    index_sequence.py DRT-INDEX FAULTY MODEL FOLDER SEED STEPS

Some commands are killed at a random time, or have a call that fails (FAULTY: drt-index with fault points, or -). The store must
then have the documents before the command or after it. Then the same command runs to its end. Texts get their chunks from one
build of all of them, so ids and landmarks of every export are known."""
import collections
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

index, faulty, model, folder, seed, steps = sys.argv[1:7]
r = random.Random(int(seed))
words = "the river and stone winding north other sand ring on table under seven lights of a harbour".split()
documents = []                                               # of the store: [source, key, text, in view], by id
store = os.path.join(folder, "s0")
options = ["--model", model, "--threads", "1", "--shard-chunks", "12"]
texts = []
counts = collections.Counter()
history = []


def fail(what):
    print("\n".join(history[-30:]), file=sys.stderr)
    sys.exit(f"seed {seed}, step {counts['steps']}: {what}")


def start(command, environment=None, program=index):
    return subprocess.Popen([program] + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})


def run(command, codes=(0,)):
    process = start(command)
    out, err = process.communicate()
    if process.returncode not in codes:
        fail(f"exit code {process.returncode}: drt-index {' '.join(command)}: {err.strip()[-600:]}")
    return out


def export(path):
    """Chunks by document: (source, key, ids and landmarks of its chunks)."""
    found = {}
    for line in run(["export", "--store", path]).splitlines():
        c = json.loads(line)
        d = found.setdefault(c["document"], [os.path.basename(c["source"]), c["key"], []])
        if c["chunk_in_document"] != len(d[2]):
            fail(f"chunks of document {c['document']} are not in order")
        d[2].append((tuple(c["ids"]), c.get("landmark_hash")))
    return found


def expected(of):
    return {i: [d[0], d[1], chunks[d[2]]] for i, d in enumerate(of) if d[3]}


def write(name, pairs):
    path = os.path.join(folder, name)
    with open(path + ".new", "w") as f:
        for key, text in pairs:
            f.write(json.dumps({"id": key, "text": text}) + "\n")
    os.replace(path + ".new", path)
    return path


# ---- commands: (arguments, documents afterwards, whether the command makes a new store) ----

def in_view(of, text):
    return any(d[3] and d[2] == text for d in of)


def add():
    name = f"f{r.randrange(100000)}.jsonl"
    pairs = [(f"k{r.randrange(40)}", r.choice(texts)) for _ in range(r.randrange(1, 25))]
    after = [list(d) for d in documents]
    for key, text in pairs:
        if not in_view(after, text):
            after.append([name, key, text, True])
    return ["add", write(name, pairs), "--store", store] + options, after, None


def update():
    name = r.choice(sorted({d[0] for d in documents if d[0]}))
    keys = sorted({d[1] for d in documents if d[0] == name} | {f"k{r.randrange(40)}" for _ in range(3)})
    keys = r.sample(keys, r.randrange(1, len(keys) + 1))
    now = [d[2] for d in documents if d[0] == name and d[3]]
    pairs = [(k, r.choice(now) if now and r.random() < 0.4 else "" if r.random() < 0.05 else r.choice(texts)) for k in keys]
    after = [list(d) for d in documents]
    wanted = dict(pairs)
    unchanged = set()
    for d in after:
        if d[3] and d[0] == name and d[1] in wanted:
            if d[2] == wanted[d[1]]:
                unchanged.add(d[1])
            else:
                d[3] = False
    for key, text in pairs:
        if key not in unchanged and text and not in_view(after, text):
            after.append([name, key, text, True])
    return ["update", write(name, pairs), "--store", store] + options, after, None


def delete():
    after = [list(d) for d in documents]
    if r.random() < 0.3:
        name = r.choice(sorted({d[0] for d in documents if d[0]}))
        for d in after:
            d[3] = d[3] and d[0] != name
        return ["delete", "--store", store, "--source", "*/" + name], after, None
    numbers = r.sample(range(len(after)), min(len(after), r.randrange(1, 6)))
    for n in numbers:
        after[n][3] = False
    return ["delete", "--store", store] + [x for n in numbers for x in ("--document", str(n))], after, None


def drop():
    last = max(int(name[:-4].split("-")[-1]) for name in os.listdir(os.path.join(store, "tokens")))
    command = ["drop", "--store", store, "--shard", str(r.randrange(last + 1)), "--threads", "1"]
    gone = [json.loads(line)["document"] for line in run(command + ["--dry-run", "--all", "--json"]).splitlines()]
    after = [list(d) for d in documents]
    for n in gone:
        after[n][3] = False
    return command, after, None


def lexical():
    return ["lexical", "--store", store] + r.choice([[], ["--remove"]] if landmarks != "none" else [[]]), documents, None


def keys():
    return ["keys", "--store", store, "--model", model, "--threads", "1"] + r.choice([[], [], [], ["--remove"]]), documents, None


def another_index():
    kind = r.choice(["exact", "IVF2,SQ8", "IVF4_HNSW8,SQ8", "Flat"] if landmarks != "none" else ["exact"])
    return ["repair", "--store", store, "--index", kind, "--threads", "1"], documents, None


def repair():
    for name in ("index", "lexical"):
        for file in sorted(os.listdir(os.path.join(store, name))):
            if r.random() < 0.4:
                os.remove(os.path.join(store, name, file))
    return ["repair", "--store", store, "--threads", "1"], documents, None


def compact():
    to = os.path.join(folder, f"s{counts['steps']}-{r.randrange(1000)}")
    after = [list(d) for d in documents if d[3]]
    # the index of a store that shrank may have too many lists
    return ["compact", "--store", store, "--out", to, "--index", "auto", "--shard-chunks", "40", "--threads", "1"], after, to


def freeze():
    return ["freeze", "--store", store, "--out", os.path.join(folder, "frozen")], documents, None


# ---- faults ----

def compare(of, path):
    found, want = export(path), expected(of)
    if found == want:
        return None
    for i in sorted(set(found) | set(want)):
        if found.get(i) != want.get(i):
            return f"document {i}: {str(found.get(i))[:200]}, wanted {str(want.get(i))[:200]}"


def exists(path):
    process = start(["stats", "--store", path])
    process.communicate()
    return process.returncode == 0


def check_old_or_new(after, to, what):
    if to and exists(to) and compare(after, to):
        fail(f"{what}: {compare(after, to)}")
    if compare(documents, store) and (to or compare(after, store)):
        fail(f"{what}: neither the old documents nor the new ones: {compare(documents, store)}; {compare(after, store)}")
    run(["verify", "--store", store, "--deep"])


def killed(command):
    began = time.time()
    process = start(command)
    time.sleep(r.random() * took.get(command[0], 0.1))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    counts["kills"] += process.returncode == -signal.SIGKILL
    if process.returncode not in (0, -signal.SIGKILL):
        fail(f"exit code {process.returncode} of a killed drt-index {' '.join(command)}")
    return process.returncode == 0


def passes(command):
    """The fault points of a command, from a run on a copy of the store."""
    other = os.path.join(folder, "copy")
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(store, other)
    on_copy = [other if x == store else x + ".copy" if x.startswith(folder) and command[i - 1] == "--out" else x
               for i, x in enumerate(command)]
    process = start(on_copy, {"DRT_FAULT": "count"}, faulty)
    err = process.communicate()[1]
    if process.returncode:
        fail(f"exit code {process.returncode}: drt-index {' '.join(on_copy)}: {err.strip()[-600:]}")
    for x in on_copy:
        if x.endswith(".copy"):
            shutil.rmtree(x, ignore_errors=True)
    lines = [line[12:].split(": ") for line in err.splitlines() if line.startswith("fault point ")]
    return [(name, int(n)) for name, n in lines]


def failed(command):
    points = passes(command)
    name, n = r.choice(points)
    plan = f"fail:{r.randrange(1, n + 1)}:{name}"
    history.append(f"    {plan}")
    process = start(command, {"DRT_FAULT": plan}, faulty)
    err = process.communicate()[1]
    counts["failures"] += process.returncode == 1
    if process.returncode not in (0, 1) or (process.returncode == 1 and not err.splitlines()[-1].startswith("drt-index: ")):
        fail(f"exit code {process.returncode} with {plan}: {err.strip()[-600:]}")
    return process.returncode == 0


# ---- the sequence ----

took = {}
COMMANDS = [add, add, add, update, update, update, delete, delete, drop, lexical, keys, keys, another_index, repair, compact, freeze]


def between(command):
    """Other commands, while the journal of a command that was stopped exists."""
    for other in r.sample([["stats", "--store", store], ["lexical", "--store", store], ["verify", "--store", store],
                           ["repair", "--store", store, "--threads", "1"]], 2):
        if command[0] != "lexical" and os.path.isdir(store):
            run(other)


def key_rows(path, wanted):
    """The keys of the chunks of a store with fewer than 16,384 chunks."""
    with open(os.path.join(path, "keys", "00000.keys"), "rb") as f:
        data = f.read()
    size, tokens = struct.unpack_from("<ii", data, 16)
    n, = struct.unpack_from("<q", data, 56)
    scales = (128 + n * tokens * size + 63) // 64 * 64
    return {c: (data[128 + c * tokens * size:128 + (c + 1) * tokens * size],
                data[scales + c * tokens * 4:scales + (c + 1) * tokens * 4]) for c in wanted if c < n}


def check_keys():
    if not os.path.exists(os.path.join(store, "keys", "00000.keys")):
        return
    run(["keys", "--store", store, "--model", model, "--threads", "1"])
    run(["keys", "--store", store, "--model", model, "--verify"])
    other = os.path.join(folder, "copy")
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(store, other)
    run(["keys", "--store", other, "--remove"])
    run(["keys", "--store", other, "--model", model, "--threads", "1"])
    lines = [json.loads(x) for x in run(["export", "--store", store]).splitlines()]
    wanted = [c["chunk"] for c in lines]
    if key_rows(store, wanted) != key_rows(other, wanted):
        fail("keys differ from those of a fresh computation")
    counts["keys compared"] += 1


def step():
    global documents, store
    counts["steps"] += 1
    command, after, to = r.choice(COMMANDS)() if any(d[3] for d in documents) else add()
    history.append(f"{counts['steps']}: drt-index {' '.join(command)}")
    done = False
    how = r.random()
    if command[0] != "repair" and how < 0.5:
        done = failed(command) if how < 0.2 and faulty != "-" else killed(command)
        check_old_or_new(after, to, "after a kill or a failure of " + command[0])
        if not done and not to and r.random() < 0.3:         # a compaction is of one generation
            between(command)
    if not done:
        began = time.time()
        run(command)
        took[command[0]] = time.time() - began
    if command[0] == "freeze":
        if compare(documents, command[-1]):
            fail("the snapshot: " + compare(documents, command[-1]))
        run(["verify", "--store", command[-1], "--deep"])
        shutil.rmtree(command[-1])
    documents = after
    if to:
        shutil.rmtree(store)
        store = to
    if compare(documents, store):
        fail(f"after {command[0]}: {compare(documents, store)}")
    run(["verify", "--store", store, "--deep"])
    stats = json.loads(run(["stats", "--store", store, "--json"]))
    if stats["documents"] != sum(d[3] for d in documents):
        fail(f"stats has {stats['documents']} documents")
    if r.random() < 0.1:
        check_keys()


for number in range(160):
    texts.append(f"text {number}: " + " ".join(r.choice(words) for _ in range(r.randrange(3, 70))))
everything = os.path.join(folder, "all")
landmarks = r.choice(["f16", "f16", "i8", "none"])
run(["build", write("all.jsonl", [(str(i), t) for i, t in enumerate(texts)]), "--out", everything, "--landmarks", landmarks] +
    options)
chunks = {texts[int(d[1])]: d[2] for d in export(everything).values()}
shutil.rmtree(everything)
first = {f"k{i}": r.choice(texts) for i in range(60)}
build = ["build", write("f0.jsonl", first.items()), "--landmarks", landmarks] + options + r.choice([[], ["--keys"]])
kind = r.choice([[], ["--index", "IVF4,SQ8"]] if landmarks != "none" else [[]])
parts = r.randrange(4)
for part in range(parts):
    run(build + ["--part", f"{part + 1}/{parts}", "--out", os.path.join(folder, "parts")])
if parts:
    names = [os.path.join(folder, "parts", name) for name in sorted(os.listdir(os.path.join(folder, "parts")))]
    run(["join"] + names + ["--out", store, "--threads", "1"] + r.choice([[], ["--copy"]]) + kind)
    shutil.rmtree(os.path.join(folder, "parts"))
else:
    run(build + ["--out", store] + kind)
# Which of equal texts is taken, and its id, depends on the parts.
taken, made = export(store), json.loads(run(["stats", "--store", store, "--json"]))
documents = [["f0.jsonl", taken[i][1], first[taken[i][1]], True] if i in taken else ["", "", "", False]
             for i in range(made["documents"] + made["deleted_documents"])]
if sorted(d[2] for d in documents if d[3]) != sorted(set(first.values())):
    fail("the first store has other documents")
while counts["steps"] < int(steps):
    step()
check_keys()
print(f"{counts['steps']} commands, {counts['kills']} killed, {counts['failures']} failed; {len(documents)} documents, "
      f"{sum(d[3] for d in documents)} in view; keys compared {counts['keys compared']} times")
