"""A reader of tests/crash/changes.sh: reads the store repeatedly while it changes, until the file STOP exists.

    changes_reader.py DRT-INDEX STORE MODEL LOG STOP

LOG has a line for each step of the writer: "adding SOURCE", "added SOURCE", "deleting SOURCE", "deleted SOURCE". A
reading must find all documents of a source that was added before it began and whose deletion had not begun when it ended.
It must not find a source that was deleted before, or any other one. Prints the number of readings."""
import collections
import json
import os
import subprocess
import sys
import time

index, store, model, log, stop = sys.argv[1:6]
DOCUMENTS = 2                                                # of a source


def steps():
    seen = collections.defaultdict(set)
    with open(log) as f:
        for line in f:
            if line.endswith("\n"):
                what, source = line.split()
                seen[what].add(source)
    return seen


def run(command):
    done = subprocess.run([index] + command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"a reader failed: drt-index {' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(before, after, documents, whole, how):
    """documents: keys that were read, by source. whole: the whole store was read."""
    for source, keys in documents.items():
        if source in before["deleted"]:
            sys.exit(f"resurrected by {how}: {source}")
        if source not in after["adding"]:
            sys.exit(f"{how} found {source}, which was not added")
        if whole and len(keys) != DOCUMENTS:
            sys.exit(f"{how} saw {len(keys)} of the {DOCUMENTS} documents of {source}")
    lost = before["added"] - after["deleting"] - set(documents) if whole else ()
    if lost:
        sys.exit(f"lost for {how}: {sorted(lost)[:3]}")


readings = collections.Counter()
searches = [["--exact"], ["--nprobe", "2"], ["--searcher", "lexical"]]
while not os.path.exists(stop):
    for how in [None] + searches:
        before = steps()
        found = run(["export", "--store", store] if how is None else
                    ["search", "the river and the harbour", "--store", store, "--model", model, "--threads", "1",
                     "--k", "50", "--json"] + how)
        after = steps()
        documents = collections.defaultdict(set)
        for row in found:
            if "/batch-" in row["source"]:
                documents[os.path.basename(row["source"])].add(row["key"])
        check(before, after, documents, how is None, " ".join(how or ["export"]))
        readings["readings" if how is None else "searches"] += 1
        time.sleep(0.02)
print(f"{readings['readings']} readings of everything, {readings['searches']} searches")
