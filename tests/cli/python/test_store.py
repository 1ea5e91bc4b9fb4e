import gc
import json
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import SOURCE, TINY, program, words

import drt


def resident():
    """Private bytes of this process: pages that are mapped from files do not count."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))


def same(a, b):
    """Chunks, documents and landmarks of two stores."""
    assert (len(a), a.info.documents, a.info.tokens) == (len(b), b.info.documents, b.info.tokens)
    np.testing.assert_array_equal(a.landmarks(), b.landmarks())
    every = np.arange(len(a))
    np.testing.assert_array_equal(a.tokens(every), b.tokens(every))
    for i in range(a.info.documents):
        assert a.document(i).hash == b.document(i).hash and a.document(i).first_chunk == b.document(i).first_chunk


def test_what_it_holds(store, documents, model):
    assert store.info.documents == len(documents)
    for i in (0, 7, len(documents) - 1):
        d = store.document(i)
        assert d.key == documents[i]["id"] and d.line == i + 1
        assert store.document_text(i, model) == documents[i]["text"]
        ids = store.document_tokens(i)
        assert len(ids) == d.tokens
        chunks = [store.tokens(c) for c in range(d.first_chunk, d.first_chunk + d.chunks)]
        np.testing.assert_array_equal(np.concatenate(chunks), ids)
        assert model.tokenizer.decode(chunks[0]) == store.text(d.first_chunk, model)
        assert store.chunk(d.first_chunk + d.chunks - 1).in_document == d.chunks - 1
    for wrong in (-1, store.info.chunks, 2**40):
        with pytest.raises(drt.NotFound):
            store.chunk(wrong)
        with pytest.raises(drt.NotFound):
            store.document(wrong)


def test_landmarks_are_views_of_the_map(store_path):
    store = drt.Store(store_path)
    pairs = list(store.landmark_shards())
    assert [first for first, _ in pairs] == sorted(first for first, _ in pairs)
    assert sum(len(rows) for _, rows in pairs) == len(store)
    rows = pairs[0][1]
    assert rows.dtype == np.float16 and not rows.flags.writeable and not rows.flags.owndata
    copy = rows.copy()
    store.close()
    gc.collect()
    np.testing.assert_array_equal(rows, copy)            # the map outlives the store
    with pytest.raises(ValueError, match="closed"):
        store.chunk(0)


def test_landmarks_of_8_bits(tmp_path, documents, model, store):
    coded = drt.Store.build(documents, tmp_path / "store", model=model, landmarks="i8")
    assert (coded.info.landmarks, store.info.landmarks) == ("i8", "f16")
    assert coded.info.landmark_bytes < 0.65 * store.info.landmark_bytes
    (first, codes, scales), = coded.landmark_shards()
    assert first == 0 and codes.shape == (len(coded), coded.info.dim) and scales.shape == (len(coded),)
    assert codes.dtype == np.int8 and scales.dtype == np.float32
    assert not (codes.flags.writeable or codes.flags.owndata or scales.flags.writeable or scales.flags.owndata)
    rows, exact = coded.landmarks(), store.landmarks()
    assert rows.dtype == np.float16
    np.testing.assert_array_equal(rows, codes * scales[:, None])          # float16 holds each number
    assert np.all(np.abs(rows.astype(np.float32) - exact) <= 0.57 * scales[:, None])
    chunks = np.arange(len(coded))
    np.testing.assert_array_equal(coded.sample_batch(5, 1, landmarks=True)["landmarks"],
                                  rows[coded.sample_batch(5, 1)["chunks"]])
    scores, found = coded.search_vectors(rows[:4].astype(np.float32), len(coded), exact=True)
    wanted = rows[:4].astype(np.float64) @ rows.astype(np.float64).T / coded.info.dim ** 0.5
    np.testing.assert_allclose(scores, np.take_along_axis(wanted, found, 1), rtol=1e-5, atol=1e-5)
    assert all(sorted(row) == chunks.tolist() for row in found.tolist())
    wide = coded.compact(tmp_path / "wide", landmarks="f16", threads=1)
    np.testing.assert_array_equal(wide.landmarks(), rows)
    coded.add([words(50, 1000)], model=model)
    assert coded.info.landmarks == "i8" and len(coded.landmarks()) == len(coded) > len(rows)
    coded.close()
    np.testing.assert_array_equal(codes * scales[:, None], rows)          # the map outlives the store
    with pytest.raises(drt.Invalid, match="choose f16, i8 or none"):
        drt.Store.build(documents, tmp_path / "other", model=model, landmarks="f8")


def test_store_without_landmarks(tmp_path, documents, model, store):
    """Words find its chunks, in the order of a lexical search of a store with landmarks."""
    by_words = drt.Store.build(documents, tmp_path / "words", model=model, landmarks="none")
    assert (by_words.info.landmarks, by_words.info.dim, len(by_words)) == ("none", 0, len(store))
    query = by_words.text(0)[:200]
    hits = by_words.search(query, k=4)
    assert [h.chunk for h in hits] == [h.chunk for h in store.search(query, k=4, kind="lexical", model=model)]
    assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)
    assert by_words.sample_batch(5, 1)["ids"].shape[0] == 5
    with pytest.raises(drt.DrtError, match="no landmarks"):
        by_words.landmarks()
    with pytest.raises(drt.DrtError, match="no landmarks"):
        by_words.search(query, kind="hybrid")
    by_words.add([words(50, 1000)], model=model)
    assert by_words.info.landmarks == "none" and len(by_words) > len(store)
    by_words.close()


def test_many_landmarks_open_without_a_copy(tmp_path, model):
    """A file of landmarks of 128 MB is not read by opening views of it."""
    ids = np.random.default_rng(1).integers(5, 200, (4000, 6))
    texts = (" ".join(map(str, row)) for row in ids)
    store = drt.Store.build(texts, tmp_path / "store", model=model)
    before, start = resident(), time.perf_counter()
    views = list(store.landmark_shards())
    assert time.perf_counter() - start < 5               # not a timing: opening reads no row, however slow the disk
    assert resident() - before < 4 << 20
    assert sum(len(rows) for _, rows in views) == len(store) >= 4000


def test_build_from_python_equals_the_program(tmp_path, documents, model, store):
    made = drt.Store.build(documents, tmp_path / "store", model=model)
    same(made, store)
    assert made.document(3).source == "made.txt" and made.document(3).key == "doc-3"
    assert made.report["documents"] == len(documents)
    generator = drt.Store.build((d for d in documents), tmp_path / "again", model=model)
    same(generator, made)


def test_build_from_files(tmp_path, documents, model, store, store_path):
    file = store_path.parent / "corpus.jsonl"
    same(drt.Store.build(file, tmp_path / "one", model=model), store)
    same(drt.Store.build([file], tmp_path / "two", model=model), store)
    with pytest.raises(drt.NotFound, match="no-such"):
        drt.Store.build(tmp_path / "no-such.jsonl", tmp_path / "three", model=model)


def test_build_from_parquet_and_arrow(tmp_path, model):
    """Files that pyarrow wrote, with the same documents in both formats; and an iterable of these documents."""
    files = [SOURCE / "tests/fuzz/corpus/fuzz_parquet/delta_byte_array_v1.parquet", SOURCE / "tests/fuzz/corpus/fuzz_arrow/file.arrow"]
    stores = [drt.Store.build(file, tmp_path / file.suffix, model=model) for file in files]
    same(*stores)
    count = stores[0].info.documents
    rows = [{"body": stores[0].document_text(i), "id": stores[0].document(i).key} for i in range(count)]
    assert count > 5 and all(row["id"] for row in rows)
    same(drt.Store.build(rows, tmp_path / "rows", model=model, text_field="body"), stores[0])
    with pytest.raises(drt.Invalid, match='"body" is missing'):
        drt.Store.build(files[0], tmp_path / "none", model=model, text_field="body")


def test_add_and_refresh(tmp_path, documents, model, store):
    made = drt.Store.build(documents[:25], tmp_path / "store", model=model)
    second = drt.Store(tmp_path / "store", model=model)
    with pytest.raises(drt.Busy, match="close it"):
        second.add(["x"])                                # `made` has it open
    assert len(second) == len(made)                      # and `second` shows it again
    second.close()
    report = made.add(documents[20:], model=model)
    assert report["documents"] == 20 and report["duplicates"] == 5
    same(made, store)
    rows = made.landmarks()
    assert made.refresh() is made and len(made) == len(store)
    assert len(rows) == len(made)


def test_wrong_documents(tmp_path, model):
    with pytest.raises(TypeError, match="document 1"):
        drt.Store.build(["a text", 7], tmp_path / "a", model=model)
    with pytest.raises(TypeError, match="document 0.*NoneType"):
        drt.Store.build(iter([None]), tmp_path / "none", model=model)
    with pytest.raises(drt.Invalid, match="empty corpus"):
        drt.Store.build([], tmp_path / "empty", model=model)
    surrogate = drt.Store.build(["the river \ud800 stone"], tmp_path / "surrogate", model=model)
    assert surrogate.document_text(0) == "the river \ufffd stone"
    with pytest.raises(KeyError, match="document 0.*'txt'"):
        drt.Store.build([{"txt": "x"}], tmp_path / "b", model=model)

    def breaks():
        yield "a text"
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        drt.Store.build(breaks(), tmp_path / "c", model=model)
    # The same call with the missing documents completes the stopped build.
    assert drt.Store.build(["a text", "another"], tmp_path / "c", model=model).info.documents == 2


def test_progress(tmp_path, documents, model, store_path):
    steps = []
    drt.Store.build(documents, tmp_path / "a", model=model, progress=lambda *step: steps.append(step))
    given = [(unit, done, total) for stage, unit, done, total in steps if stage == "encode"]
    assert given[-1] == ("documents", len(documents), len(documents))
    assert all(unit == "documents" and 0 < done <= total == len(documents) for unit, done, total in given)
    steps.clear()
    drt.Store.build(store_path.parent / "corpus.jsonl", tmp_path / "file", model=model, progress=lambda *s: steps.append(s))
    size = (store_path.parent / "corpus.jsonl").stat().st_size
    read = [(done, total) for stage, unit, done, total in steps if (stage, unit) == ("encode", "bytes")]
    assert read and all(0 <= done <= total == size for done, total in read) and read[-1][0] == size

    bars = []

    class Bar:
        def __init__(self, desc, unit, total, unit_scale):
            self.n, self.closed = 0, False
            bars.append(self)

        def update(self, more):
            self.n += more

        def close(self):
            self.closed = True

    def slowly():
        for document in documents:
            time.sleep(0.02)
            yield document

    drt.Store.build(slowly(), tmp_path / "b", model=model, progress=drt.TqdmReport(Bar))
    assert bars and all(bar.closed for bar in bars) and any(bar.n > 0 for bar in bars)

    def fails(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drt.Store.build(documents, tmp_path / "c", model=model, progress=fails)


def test_keyboard_interrupt_stops_a_build(tmp_path, model_folder):
    """In a separate process: Ctrl-C ends a build of endless documents, and the build can be continued."""
    code = f"""
import drt, itertools, sys
def documents():
    for i in itertools.count():
        if i == 50: print("running", flush=True)
        yield f"text number {{i}} of the river " * 20
try:
    drt.Store.build(documents(), {str(tmp_path / 'store')!r}, model=drt.Model.load({str(model_folder)!r}, device="cpu"))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        try:
            assert process.communicate(timeout=60)[0] == "interrupted\n"
        finally:
            process.kill()
    assert process.returncode == 0


def test_search_equals_the_program_and_numpy(store, store_path, model, model_folder):
    text = words(100, 12)
    wanted = [json.loads(line) for line in program("drt-index", "search", text, "--store", store_path, "--model",
                                                   model_folder, "--k", 5, "--device", "cpu", "--json").splitlines()]
    hits = store.search(text, k=5, model=model)
    chunks = [h.chunk.id for h in hits]
    assert chunks == [h["chunk"] for h in wanted] and len(wanted) == 5
    np.testing.assert_allclose([h.score for h in hits], [h["score"] for h in wanted], rtol=1e-5)
    assert [(h.document.source, h.offset) for h in hits] == [(h["source"], h["token_offset"]) for h in wanted]
    assert hits[0].text == store.text(chunks[0], model) and hits[0].document == store.document(hits[0].chunk.document)
    rows = store.landmarks().astype(np.float32)
    query = model.query(text)
    scores = rows @ query / np.sqrt(len(query))
    np.testing.assert_array_equal(np.argsort(-scores, kind="stable")[:5], chunks)


def test_search_by_words(store, model):
    assert store.info.lexical
    for id in (3, 20, 33):
        chunk = store.document(id).first_chunk
        text = store.text(chunk, model)
        assert store.search(text, k=3, model=model, kind="lexical")[0].chunk.id == chunk
        hybrid = store.search(text, k=3, model=model, kind="hybrid")
        rows, query = store.landmarks().astype(np.float32), model.query(text)
        assert len({h.chunk.id for h in hybrid}) == 3    # ranked by both searches, with the landmark's score
        for hit in hybrid:
            np.testing.assert_allclose(hit.score, rows[hit.chunk.id] @ query / np.sqrt(len(query)), rtol=1e-4)
    with pytest.raises(drt.Invalid, match="texts"):
        store.search(np.zeros(store.info.dim, np.float32), model=model, kind="lexical")


def test_store_of_a_base_lm(tmp_path, documents):
    config = json.loads((TINY / "config.json").read_text())
    config.update(decoder_layers=[2], encoder_layers=0)
    (tmp_path / "config.json").write_text(json.dumps(config))
    folder = tmp_path / "base"
    program("drt-model", "init", "--config", tmp_path / "config.json", "--tokenizer", TINY / "tokenizer.json", "--out", folder)
    base = drt.Model.load(folder, device="cpu")
    with drt.Store.build(documents, tmp_path / "store", model=base) as store:
        text = documents[7]["text"]
        wanted = [json.loads(line)["chunk"] for line in program("drt-index", "search", text, "--store", tmp_path / "store", "--model",
                                                                folder, "--k", 5, "--device", "cpu", "--json").splitlines()]
        assert [h.chunk.id for h in store.search(text, k=5, model=base)] == wanted
        assert store.search(text, k=5, model=base, kind="lexical")[0].document.key == "doc-7"
        assert len(store.search(text, k=5, model=base, kind="hybrid")) == 5


def test_search_of_many(store, model):
    queries = np.random.default_rng(5).standard_normal((2100, store.info.dim)).astype(np.float32)
    scores, chunks = store.search_vectors(queries, k=4, exact=True)
    assert scores.shape == chunks.shape == (2100, 4)
    wanted = queries @ store.landmarks().astype(np.float32).T / np.sqrt(store.info.dim)
    best = np.sort(wanted, axis=1)[:, ::-1][:, :4]
    np.testing.assert_allclose(scores, best, rtol=1e-4, atol=1e-4)
    several = store.search(["the river", "seven lights"], k=3, model=model)
    assert len(several) == 2 and [h.chunk for h in several[0]] == [h.chunk for h in store.search("the river", k=3, model=model)]
    one = store.search(queries[0], k=4, model=model, exact=True)
    assert [h.chunk.id for h in one] == chunks[0].tolist()


def test_ctrl_c_stops_scoring_and_encoding(model_folder):
    """Calls that last much longer than the test: Ctrl-C ends them, and the model can be used afterwards."""
    code = f"""
import drt, sys, numpy as np
model = drt.Model.load({str(model_folder)!r}, device="cpu")
calls = {{"score": lambda: model.logprobs([7] * 3_000_000),
         "encode": lambda: model.encode(np.full((3_000_000, model.info.chunk), 7, np.int32))}}
print("running", flush=True)
try:
    calls[sys.argv[1]]()
except KeyboardInterrupt:
    print(len(model.logprobs("the river").ids) > 0, flush=True)
"""
    for call in ("score", "encode"):
        with subprocess.Popen([sys.executable, "-c", code, call], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "running\n"
            time.sleep(0.5)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            try:
                assert process.communicate(timeout=30)[0] == "True\n", call
            finally:
                process.kill()


def test_callbacks_do_not_wait_for_themselves(tmp_path, model, model_folder):
    """A callback that uses the model of the call is refused; one with another model works; the collector closes nothing."""
    def uses(used):
        yield "the river"
        sessions = [used.session() for _ in range(2)]
        yield "".join(t.text for t in used.generate("stone", max_tokens=3)) + "north"
        del sessions

    with pytest.raises(RuntimeError, match="at work"):
        drt.Store.build(uses(model), tmp_path / "a", model=model)
    with model.share(device="cpu", threads=1) as other:
        assert drt.Store.build(uses(other), tmp_path / "b", model=model).info.documents == 2

    left = [model.session() for _ in range(3)]           # closing a session waits for the model

    def documents():
        yield "seven lights"
        left.clear()
        gc.collect()
        yield model.tokenizer.decode(model.tokenizer.encode("stone"))    # tokenizers may run at the same time

    assert drt.Store.build(documents(), tmp_path / "c", model=model).info.documents == 2


def test_closed_while_another_thread_is_inside(store_path):
    """A call keeps the memory that it works in; later calls are refused."""
    queries = np.random.default_rng(2).standard_normal((500, drt.Store(store_path).info.dim)).astype(np.float32)
    for _ in range(20):
        store, ended = drt.Store(store_path), []

        def work():
            try:
                while True:
                    store.search_vectors(queries, k=2)
            except ValueError as error:
                ended.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for t in threads:
            t.start()
        time.sleep(0.01)
        store.close()
        for t in threads:
            t.join()
        assert ended == ["it was closed"] * 2


def test_one_directory_many_objects(tmp_path, documents, model):
    first = drt.Store.build(documents[:5], tmp_path / "store", model=model)
    second = drt.Store(tmp_path / "store")
    with model.session(store=second) as session:
        first.close()
        second.close()
        third = drt.Store(str(tmp_path / "store") + "/")
        assert third.info.documents == 5
        with pytest.raises(drt.Busy):
            third.add(documents[5:], model=model)        # the session reads it
        session.feed("the river")
    assert third.add(documents[5:], model=model)["documents"] == len(documents) - 5
    cycle = {"store": drt.Store(tmp_path / "store")}
    cycle["itself"] = cycle
    del cycle                                            # collected by add, which calls the collector
    assert third.add(["one more text"], model=model)["documents"] == 1


def test_search_excludes_and_runs_out(store, model):
    d = store.document(5)
    text = store.document_text(5, model)
    assert any(h.document.id == 5 for h in store.search(text, k=len(store), model=model))
    left = store.search(text, k=store.info.chunks, model=model, exclude_document=5)
    assert len(left) == len(store) - d.chunks and all(h.document.id != 5 for h in left)
    with pytest.raises(ValueError):
        store.search_vectors(np.zeros((1, store.info.dim + 1), np.float32))
    with pytest.raises(ValueError, match="kind"):
        store.search("x", kind="magic", model=model)


def test_a_store_of_another_model_is_refused(store, tmp_path, model_folder):
    other = tmp_path / "other"
    from conftest import BIN, TINY
    subprocess.run([BIN / "drt-model", "init", "--config", TINY / "config.json", "--tokenizer", TINY / "tokenizer.json",
                    "--out", other, "--seed", "9"], check=True, capture_output=True)
    with pytest.raises(drt.Mismatch):
        store.search("x", model=drt.Model.load(other, device="cpu"))


def test_sample_batch(store):
    batch = store.sample_batch(200, seed=3, landmarks=True)
    assert batch["ids"].shape == (200, store.info.chunk) and batch["chunks"].dtype == np.int64
    again = store.sample_batch(200, seed=3, landmarks=True)
    for name in batch:
        np.testing.assert_array_equal(batch[name], again[name])
    assert not np.array_equal(batch["chunks"], store.sample_batch(200, seed=4)["chunks"])
    np.testing.assert_array_equal(batch["ids"], store.tokens(batch["chunks"]))
    np.testing.assert_array_equal(batch["landmarks"].astype(np.float16), store.landmarks()[batch["chunks"]])
    assert set(batch["chunks"]) == set(range(len(store))) or len(store) > 60


OPENERS = """
import sys, threading, time
import drt
end = time.monotonic() + 2
failed = []
def work():
    try:
        while time.monotonic() < end:
            store = drt.Store(sys.argv[1])
            assert store.tokens(0).size
            if store.info.generation % 2:
                store.refresh()
            del store                            # closed by whatever thread has the last reference
    except BaseException as error:
        failed.append(error)
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(failed)
"""


def test_relative_path(tmp_path, model, monkeypatch):
    """What an object changes is the store that it opened, also if another folder has one of this name."""
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        drt.Store.build([f"the river {folder}"], "store", model=model).close()
    with drt.Store("store", model=model) as store:
        monkeypatch.chdir(tmp_path / "here")
        assert store.document_text(0) == "the river there" and store.search("the river", k=1)[0].text == "the river there"
        assert store.add(["stone"])["documents"] == 1 and store.delete([0])["ids"] == [0]
        assert store.document_text(1) == "stone"
        again = pickle.loads(pickle.dumps(store))
        assert again.document_text(1) == "stone" and again.search("stone", k=1)[0].text == "stone"
    with drt.Store("store", model=model) as other:
        assert other.info.documents == 1 and other.document_text(0) == "the river here"


def test_replaced_folder(tmp_path, model):
    """Files of another store that gets the path of an open one are not read, although their headers are the same."""
    folder, words_of = tmp_path / "store", ("river", "stone")
    for word in words_of:
        drt.Store.build([f"the {word} number {i:03}" for i in range(40)], tmp_path / word, model=model, shard_chunks=8).close()
    (tmp_path / "river").rename(folder)
    with drt.Store(folder, model=model) as store:
        assert store.text(0) == "the river number 000"
        folder.rename(tmp_path / "river")
        (tmp_path / "stone").rename(folder)
        for call in (lambda: store.text(39), lambda: store.search("the river", k=1), lambda: list(store.landmark_shards()), store.refresh):
            with pytest.raises(drt.NotFound, match="was moved or replaced while the store was open"):
                call()
        assert store.text(0) == "the river number 000"
        folder.rename(tmp_path / "stone")
        (tmp_path / "river").rename(folder)
        assert store.text(39) == "the river number 039" and len(store.search("the river", k=40)) == 40


def test_closing_does_not_wait(tmp_path, model):
    """The garbage collector may close a store in a thread that has a lock, such as the one of long calls, which the owner of the
    directories' lock waits for."""
    store = drt.Store.build(["the river and the stone"], tmp_path / "store", model=model)
    held, done = threading.Event(), threading.Event()

    def holder():
        with drt.store._directories_lock:
            held.set()
            done.wait(60)

    other = threading.Thread(target=holder)
    other.start()
    assert held.wait(60)
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(20)
    waited = closing.is_alive()
    done.set()
    other.join()
    assert not waited
    assert drt.Store.verify(tmp_path / "store") == []        # which needs the directory closed


def test_threads_open_and_close_one_store(store_path):
    """A thread could get a view of the open directory while another one closed it: in a process of its own, for it crashed."""
    run = subprocess.run([sys.executable, "-c", OPENERS, store_path], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, "[]\n"), run.stderr[-2000:]


def test_threads_search_one_store(store, model):
    queries = np.random.default_rng(8).standard_normal((64, store.info.dim)).astype(np.float32)
    wanted = store.search_vectors(queries, k=3)
    wrong = []

    def work():
        for _ in range(10):
            found = store.search_vectors(queries, k=3)
            if not all(np.array_equal(a, b) for a, b in zip(found, wanted)):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_long_calls_release_the_gil(tmp_path, documents, model):
    ticks, done = 0, threading.Event()

    def count():
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    counter = threading.Thread(target=count)
    counter.start()
    try:
        ids = np.full((2000, model.info.chunk), 7, np.int32)
        model.encode(ids)
    finally:
        done.set()
        counter.join()
    assert ticks > 0


def test_a_forked_child_opens_its_own(store_path, model_folder):
    """Like a data loader: the parent has searched, so that all its threads exist; the child opens store and model itself."""
    code = f"""
import drt, os, numpy as np
model = drt.Model.load({str(model_folder)!r}, device="cpu")
store = drt.Store({str(store_path)!r}, model=model)
view = store.landmarks()
def everything(store, model):
    rows = store.search_vectors(np.ones((300, store.info.dim), np.float32), k=3)[1]
    return (store.sample_batch(8, seed=1)["ids"].tolist(), rows.tolist(), model.encode("the river").tolist(),
            [h.chunk for h in store.search("the river", k=3, model=model)])
wanted = everything(store, model)
for i in range(3):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for use in (lambda: store.chunk(0), lambda: model.encode("x"), lambda: store.refresh()):
                try:
                    use()
                except RuntimeError as error:
                    assert "fork" in str(error), error
                else:
                    os._exit(3)
            assert view.sum() == view.copy().sum()       # memory, not a handle
            mine = drt.Model.load({str(model_folder)!r}, device="cpu")
            assert everything(drt.Store({str(store_path)!r}, model=mine), mine) == wanted
            del store, model                             # nothing of the parent is closed
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, i
assert everything(store, model) == wanted
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def load_in_child(store):
    return store.sample_batch(4, seed=2)["ids"].tolist()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_data_loaders(store, method):
    """A store is pickled by its path."""
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(load_in_child, [store] * 3) == [load_in_child(store)] * 3


def test_paths(tmp_path, model):
    with pytest.raises(drt.NotFound):
        drt.Store(tmp_path / "none")
    with pytest.raises(ValueError, match="NUL"):
        drt.Store("a\0b")
    folder = tmp_path / "gr\u00fc\u00dfe \udcff"
    store = drt.Store.build(["a text"], pathlib.Path(folder), model=model)
    assert store.info.path == str(folder)
