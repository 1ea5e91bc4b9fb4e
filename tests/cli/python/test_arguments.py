"""Wrong arguments: each raises an exception that names the argument, and none reaches C. Objects in wrong states."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
from conftest import words

import drt
from drt import _library as lib

BIG = 2**64
WRONG = [None, BIG, -1, 1.5, float("nan"), "", "x", "a\0b", b"x", [], [None], ["a", 1], {}, {"a": 1}, object(), len, True, np.float32(1), np.int64(3),
         np.zeros((2, 2)), np.array([], object), np.zeros(3, "i8,f4"), np.array(["a"]), 2**31, -2**31, [BIG], [[1, 2], [3]], [-1], [2**31 - 1]]


def everything(model, store):
    """Each function with one argument wrong: (call, name of the argument)."""
    session, vectors = model.session, np.zeros((1, model.info.dim), np.float32)
    tokenizer, vocab = model.tokenizer, model.info.vocab_size
    chunk = np.full((1, model.info.chunk), 7, np.int32)
    late = chunk.copy()
    late[0, 3] = -1
    return [
        (lambda: drt.Model.load(5), "path"), (lambda: drt.Model.load(""), "path"), (lambda: drt.Model.load("a\0b"), "path"),
        (lambda: drt.Model.load(device=3), "device"), (lambda: drt.Model.load(device="tpu"), "device"),
        (lambda: drt.Model.load(dtype="f8"), "dtype"), (lambda: drt.Model.load(threads=-1), "threads"),
        (lambda: drt.Model.load(threads=2**32 + 1), "threads"), (lambda: drt.Model.load(threads="2"), "threads"),
        (lambda: model.share(threads=1.5), "threads"), (lambda: model.encode(None), "chunks"), (lambda: model.encode([[1, 2]]), "chunks"),
        (lambda: model.encode(chunk.astype(np.float32)), "chunks"), (lambda: model.encode([[1], [1, 2]]), "chunks"),
        (lambda: model.encode(chunk, out=[1]), "out"), (lambda: model.encode(chunk, out=np.zeros((1, 2), np.float32)), "out"),
        (lambda: model.encode(chunk * 0 + vocab), str(vocab)), (lambda: model.encode(chunk * 0 - 1), "chunk 0"), (lambda: model.encode(late), "chunk 0"),
        (lambda: model.query(None), "text"), (lambda: model.query(""), "text"), (lambda: model.query([]), "text"), (lambda: model.query([vocab]), str(vocab)),
        (lambda: model.query([[1]]), "text"), (lambda: model.query(b"a"), "text"),
        (lambda: model.logprobs(None), "text"), (lambda: model.logprobs("a", top=65), "top"), (lambda: model.logprobs("a", top=2**32), "top"),
        (lambda: model.generate(None), "prompt"), (lambda: model.generate([1.5]), "prompt"), (lambda: model.generate(b"a"), "prompt"),
        (lambda: session(store=model), "store"), (lambda: session(store="a folder"), "store"), (lambda: session(memory="mine"), "memory"),
        (lambda: session(memory=[]), "memory"), (lambda: session(searcher="web"), "searcher"), (lambda: session(searcher=[], store=store), "searcher"),
        (lambda: session(memory_config=3), "memory_config"), (lambda: session(memory_past="all", memory="own"), "memory_past"),
        (lambda: session(memory_keys="gpu"), "memory_keys"), (lambda: session(memory_keys=2), "memory_keys"),
        (lambda: session(memory_k=-1, memory="own"), "memory_k"), (lambda: session(memory_every=1.5, memory="own"), "memory_every"),
        (lambda: session(store=store, exclude_document=-1), "exclude_document"), (lambda: session(store=store, exclude_document=10**9), "exclude_document"),
        (lambda: session(temperature="hot"), "temperature"), (lambda: session(temperature=float("nan")), "temperature"),
        (lambda: session(temperature=1e39), "temperature"), (lambda: session(temperature=-1), "temperature"), (lambda: session(top_p=2), "top-p"),
        (lambda: session(top_k=2**32 + 1), "top_k"), (lambda: session(top_k=1.5), "top_k"), (lambda: session(min_p=None), "min_p"),
        (lambda: session(repeat_penalty=[]), "repeat_penalty"), (lambda: session(repeat_last=-1), "repeat-last"), (lambda: session(seed=BIG), "seed"),
        (lambda: session(seed=0.5), "seed"), (lambda: session(max_tokens=-1), "max_tokens"), (lambda: session(max_tokens="9"), "max_tokens"),
        (lambda: session(stop=5), "stop"), (lambda: session(stop=[None]), "stop"), (lambda: session(stop=[""]), "stop"), (lambda: session(stop=b"a"), "stop"),
        (lambda: session(stop=["a\0"]), "stop"), (lambda: session(ignore_eos="no"), "ignore_eos"), (lambda: session(top=65), "top"),
        (lambda: session(self_retrieval="yes"), "self_retrieval"), (lambda: session(store=store, corpus_retrieval="yes"), "corpus_retrieval"),
        (lambda: session(continuation=2**33), "continuation"), (lambda: session(overlap="a"), "overlap"), (lambda: session(query_tokens=None), "query_tokens"), (lambda: session(skip="a"), "skip"),
        (lambda: drt.Session(store), "model"), (lambda: drt.Session.prepare([model]), r"sessions\[0\]"), (lambda: drt.Session.prepare([None]), r"sessions\[0\]"),
        (lambda: drt.Model(None, None), "drt.Model.load"),
        (lambda: tokenizer.encode(5), "text"), (lambda: tokenizer.encode("a", special="no"), "special"), (lambda: tokenizer.decode(None), "ids"),
        (lambda: tokenizer.decode([1], skip_special=2), "skip_special"), (lambda: tokenizer.decode("abc"), "ids"), (lambda: tokenizer.bytes_of("a"), "id"),
        (lambda: tokenizer.bytes_of(BIG), "id"), (lambda: tokenizer.spelling(2**32), "id"), (lambda: tokenizer.is_special(None), "id"),
        (lambda: tokenizer.id_of(3), "spelling"), (lambda: drt.Tokenizer.load(None), "path"), (lambda: drt.Tokenizer.load(3), "path"),
        (lambda: drt.Store(None), "path"), (lambda: drt.Store(""), "path"), (lambda: drt.Store(3), "path"), (lambda: drt.Store("x", model=store), "model"),
        (lambda: store.chunk(BIG), "chunk"), (lambda: store.chunk("0"), "chunk"), (lambda: store.tokens(BIG), "chunk"), (lambda: store.tokens([0, 0.5]), "chunk"),
        (lambda: store.tokens(None), "chunk"), (lambda: store.text(BIG), "chunk"), (lambda: store.text(0, store), "model"), (lambda: store.text(0, 3), "model"),
        (lambda: store.document(BIG), "document"), (lambda: store.document(None), "document"), (lambda: store.document_text(1.0), "document"),
        (lambda: store.document_tokens(BIG), "document"), (lambda: store.find_document("0" * 16), "hash"), (lambda: store.find_document(b"0"), "hash"),
        (lambda: store.find_document(None), "hash"), (lambda: store.sample_batch(0, 1), "n"), (lambda: store.sample_batch(2.5, 1), "n"),
        (lambda: store.sample_batch(1, "a"), "seed"), (lambda: store.sample_batch(1, 1, landmarks="no"), "landmarks"),
        (lambda: store.search(None), "query"), (lambda: store.search(["a", None]), "query"), (lambda: store.search("a", 0), "k"),
        (lambda: store.search("a", 10**9), "k"), (lambda: store.search("a", 1.5), "k"), (lambda: store.search("a", model=store), "model"),
        (lambda: store.search("a", kind="web"), "kind"), (lambda: store.search("a", kind=[]), "kind"), (lambda: store.search("a", exact="no"), "exact"),
        (lambda: store.search("a", nprobe=-1), "nprobe"), (lambda: store.search("a", exclude_document=BIG), "exclude_document"),
        (lambda: store.search(vectors[:, 1:]), "query"), (lambda: store.search_vectors(vectors[0]), "vectors"),
        (lambda: store.search_vectors(vectors.astype(int)), "vectors"), (lambda: store.search_vectors(vectors * np.nan), "vector 0"),
        (lambda: store.search_vectors(vectors, 2**40), "k"), (lambda: store.search_vectors(vectors, threads=10**6), "threads"),
        (lambda: store.searched_by(kind=3), "kind"), (lambda: store.searched_by(model=3), "model"),
        (lambda: store.delete(5), "documents"), (lambda: store.delete("17"), "documents"), (lambda: store.delete([BIG]), r"documents\[0\]"),
        (lambda: store.delete([0, 1.5]), r"documents\[1\]"), (lambda: store.delete(sources="a*"), "sources"), (lambda: store.delete(sources=[None]), r"sources\[0\]"),
        (lambda: store.delete([0], dry_run="yes"), "dry_run"), (lambda: store.delete([0], progress=5), "progress"),
        (lambda: store.add(5, model=model), "documents"), (lambda: store.add(["a"], model=store), "model"), (lambda: store.add(["a"], model=model, max_ram=-1), "max_ram"),
        (lambda: store.compact(None), "path"), (lambda: store.compact("x", threads="2"), "threads"), (lambda: store.compact("x", index=3), "index"),
        (lambda: store.freeze("x", copy="no"), "copy"), (lambda: store.freeze(b"x"), "path"),
        (lambda: drt.Store.join("ab", "x"), "parts"), (lambda: drt.Store.join([3], "x"), r"parts\[0\]"), (lambda: drt.Store.join(["a"], None), "path"),
        (lambda: drt.Store.verify(None), "path"), (lambda: drt.Store.verify("x", deep="no"), "deep"), (lambda: drt.Store.verify("x", progress="yes"), "progress"),
        *((lambda options=options: drt.Store.build(["a"], "x", model=model, **options), name) for options, name in [
            ({"part": (1,)}, "part"), ({"part": 5}, "part"), ({"part": (0, 1)}, "part"), ({"max_ram": "4G"}, "max_ram"), ({"max_ram": -1}, "max_ram"),
            ({"shard_chunks": -1}, "shard_chunks"), ({"restart": "no"}, "restart"), ({"skip_bad_lines": None}, "skip_bad_lines"), ({"progress": 5}, "progress"),
            ({"text_field": None}, "text_field"), ({"key_field": 5}, "key_field"), ({"format": 3}, "format"), ({"index": 3}, "index"), ({"landmarks": "f8"}, "landmarks")]),
        (lambda: drt.Store.build(None, "x", model=model), "documents"), (lambda: drt.Store.build(b"x", "x", model=model), "documents"),
        (lambda: drt.Store.build([{"text": "a", "id": "b\0"}], "x", model=model), "document 0: id"), (lambda: drt.Store.build(["a"], 5, model=model), "path"),
        (lambda: drt.Store.build(["a"], "x", model="a folder"), "model"),
    ]


def test_each_wrong_argument_is_named(model, store_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with drt.Store(store_path, model=model) as store:
        before = store.info
        for number, (call, name) in enumerate(everything(model, store)):
            with pytest.raises((ValueError, TypeError, LookupError, OSError, drt.DrtError), match=rf"(?<!\w){name}(?!\w)") as raised:
                call()
                pytest.fail(f"call {number}, which should name {name!r}, was accepted")
            assert "object has no attribute" not in str(raised.value), raised.value
        assert store.info == before
        assert store.text(0) and model.session() is not None
    assert not any(p.name == "catalog" for p in tmp_path.rglob("*")), "a wrong call began a store"


def test_numbers_of_numpy_are_numbers(store, model, tmp_path, documents):
    assert store.text(np.int64(3), model) == store.text(3, model) and store.chunk(np.uint8(3)).id == 3
    assert store.document(np.int32(2)) == store.document(2)
    assert model.tokenizer.bytes_of(np.int64(9)) == model.tokenizer.bytes_of(9)
    assert len(store.search("the river", np.int64(2), model=model, exact=np.bool_(True))) == 2
    assert model.session(temperature=np.float64(0.5), seed=np.uint64(2**64 - 1), top_k=np.int8(3), ignore_eos=np.True_) is not None
    with drt.Store.build(documents, tmp_path / "store", model=model) as built:
        assert built.delete(np.array([3, 5]))["ids"] == [3, 5]


def test_arrays_of_every_layout(model, store):
    ids = np.random.default_rng(1).integers(5, 200, (6, model.info.chunk), np.int32)
    rows = model.encode(ids)
    unaligned = np.frombuffer(bytearray(b"x" + ids.tobytes()), np.uint8)[1:].view(np.int32).reshape(ids.shape)
    assert not unaligned.flags.aligned
    read_only = ids.copy()
    read_only.setflags(write=False)
    wide = np.zeros((6, 2 * model.info.chunk), np.int32)
    wide[:, ::2] = ids
    for same in (unaligned, read_only, wide[:, ::2], np.asfortranarray(ids), ids.astype(">i4"), ids.astype(np.int64), ids.astype(np.uint16), ids.tolist(),
                 ids[::-1][::-1], np.ma.array(ids), memoryview(ids)):
        np.testing.assert_array_equal(model.encode(same), rows)
    for out in (np.frombuffer(bytearray(rows.nbytes + 1), np.uint8)[1:].view(np.float32).reshape(rows.shape), np.asfortranarray(rows.copy()),
                rows.astype(">f4"), rows.astype(np.float64), rows[::-1]):
        with pytest.raises(ValueError, match="out"):
            model.encode(ids, out=out)
    with pytest.raises(ValueError, match="out"):
        frozen = rows.copy()
        frozen.setflags(write=False)
        model.encode(ids, out=frozen)
    scores, found = store.search_vectors(rows, 3)
    for same in (np.asfortranarray(rows), rows.astype(">f4"), rows.astype(np.float64), rows[::-1][::-1]):
        np.testing.assert_array_equal(store.search_vectors(same, 3)[1], found)


def test_one_session_of_two_threads(model):
    """What a call returns points into the session's memory: a second thread is refused, and no call is lost."""
    session = model.session(ignore_eos=True, top=64, temperature=0.9)
    session.feed("the river")
    refused, tokens, wrong = [], [], []

    def take():
        for _ in range(300):
            try:
                token = session.next()
                tokens.append(token.position)
                if token.bytes != model.tokenizer.bytes_of(token.id) or len(token.alternatives) != 64:
                    wrong.append(token)
            except RuntimeError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and all("one thread at a time" in text for text in refused)
    assert sorted(tokens) == list(range(tokens[0] if tokens else 0, len(session))) and len(tokens) + len(refused) == 1200


def test_what_a_session_needs_stays(model_folder, store_path):
    model, store = drt.Model.load(model_folder, threads=1), drt.Store(store_path)
    alone = [t.id for t in model.generate(words(90, 1), store=store, max_tokens=70, ignore_eos=True)]
    iterator = model.generate(words(90, 1), store=store, max_tokens=70, ignore_eos=True)
    found = [next(iterator).id]
    tokenizer = model.tokenizer
    model.close()
    store.close()
    del model, store
    gc.collect()
    found += [t.id for t in iterator]
    assert found == alone and tokenizer.decode(found) is not None


def test_closed_objects(model_folder, store_path, tmp_path):
    model, store = drt.Model.load(model_folder, threads=1), drt.Store(store_path)
    session = model.session(store=store)
    session.close()
    session.close()
    for call in (session.next, session.logprobs, session.stop, session.statistics, session.reset, lambda: session.feed("a"), lambda: len(session),
                 lambda: drt.Session.prepare([session]), lambda: next(session.tokens())):
        with pytest.raises(ValueError, match="closed"):
            call()
    store.close()
    model.close()
    for call in (lambda: model.encode("a b"), lambda: model.query("a"), lambda: model.logprobs("a"), lambda: model.generate("a"), model.share, model.session,
                 lambda: store.text(0, model), lambda: store.search("a", model=model), lambda: store.document(0), lambda: store.tokens(0), store.refresh,
                 lambda: list(store.landmark_shards()), lambda: store.sample_batch(1, 1), lambda: drt.Store.build(["a"], tmp_path / "s", model=model)):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert "drt.Model" in repr(model) and "drt.Store" in repr(store)
    with drt.Store(store_path) as again, pytest.raises(ValueError, match="closed"):
        again.search("a", model=model)


def test_sessions_are_not_copied(model):
    session = model.session()
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="copied nor pickled"):
            act(session)


RANDOM = """
import os, random, sys, numpy as np, drt
sys.path.insert(0, os.path.dirname(sys.argv[4]))
from test_arguments import WRONG
dice, model = random.Random(int(sys.argv[3])), drt.Model.load(sys.argv[1], threads=1)
store = drt.Store(sys.argv[2], model=model)
values = WRONG + [model, store, model.tokenizer, model.session(), "the river", [5, 6, 7], 0, 1, 2, np.full((2, model.info.chunk), 9, np.int32),
                  np.zeros((2, model.info.dim), np.float32), 0.5, "own", "corpus", "lexical", "hybrid", False]
OPTIONS = ("store self_retrieval corpus_retrieval searcher memory memory_past memory_keys memory_k memory_every exclude_document continuation overlap query_tokens temperature top_k "
           "top_p min_p repeat_penalty repeat_last seed max_tokens stop ignore_eos top skip rewind").split()
done = failed = 0
for _ in range(700):
    session = model.session(max_tokens=3)
    targets = [(session, n) for n in "feed next logprobs reset stop prepare statistics tokens __len__".split()] + [
        (model, n) for n in "encode query logprobs session generate share".split()] + [
        (model.tokenizer, n) for n in "encode decode bytes_of spelling id_of is_special".split()] + [
        (store, n) for n in "chunk tokens document find_document document_tokens text document_text landmarks sample_batch searched_by search search_vectors".split()]
    target, name = dice.choice(targets)
    keys = OPTIONS if name in ("session", "generate") else "model kind exact nprobe exclude_document threads out top special landmarks seed".split()
    given = [dice.choice(values) for _ in range(dice.choice([0, 1, 1, 1, 2, 3]))]
    named = {dice.choice(keys): dice.choice(values) for _ in range(dice.choice([0, 0, 1, 2]))}
    try:
        found = getattr(target, name)(*given, **named)
        if name in ("generate", "tokens") and hasattr(found, "__next__"):
            for _ in range(3):
                next(found, None)
        done += 1
    except (TypeError, ValueError, LookupError, OSError, OverflowError, RuntimeError, MemoryError, drt.DrtError):
        failed += 1
assert done > 20 and failed > 200, (done, failed)
assert store.text(0) and len(model.logprobs("the river").ids)
"""


@pytest.mark.parametrize("seed", range(int(os.environ.get("DRT_SEEDS", "2"))))
def test_random_arguments_do_not_crash(model_folder, store_path, tmp_path, seed):
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", RANDOM, str(model_folder), str(store_path), str(seed), __file__], cwd=tmp_path,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


EXIT = """
import sys, threading, drt
model = drt.Model.load(sys.argv[1], threads=2)
store = drt.Store(sys.argv[2], model=model)
session, views = model.session(store=store), list(store.landmark_shards())
tokens = model.generate("the river", store=store)
next(tokens)
searching = threading.Thread(target=lambda: [store.search("the river") for _ in range(1000)], daemon=True)
searching.start()
held = [session, views, tokens, model, store]
held.append(held)
"""


def test_the_program_ends_while_objects_live(model_folder, store_path):
    for _ in range(3):
        done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", EXIT, str(model_folder), str(store_path)], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0 and "Fatal" not in done.stderr, done.stderr[-2000:]


def test_a_child_of_fork_uses_nothing_of_its_parent(model_folder, store_path):
    """Also not of a session, a generator and a search with threads that the parent has at work; it opens its own."""
    model, store = drt.Model.load(model_folder, threads=2), drt.Store(store_path)
    store.search("the river", model=model)
    session, tokens = model.session(store=store), model.generate("the river", store=store)
    session.feed("the river")
    next(tokens)
    wanted = [t.id for t in model.generate("a harbour", max_tokens=3)]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused = 0
            for call in (session.next, lambda: session.feed("a"), lambda: next(tokens), lambda: model.encode("a"), lambda: store.text(0, model),
                         lambda: list(store.landmark_shards()), lambda: model.tokenizer.encode("a"), lambda: drt.Session.prepare([session])):
                try:
                    call()
                except RuntimeError:
                    refused += 1
            mine, own = drt.Model.load(model_folder, threads=1), drt.Store(store_path)
            good = [t.id for t in mine.generate("a harbour", max_tokens=3)] == wanted and len(own.search("the river", model=mine)) == 10
            del session, tokens, model, store
            gc.collect()
            code = 0 if refused == 8 and good else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.next() is not None and next(tokens) is not None


def test_interrupted_handles(monkeypatch):
    """Ctrl-C raises when the call that opens has returned, or while a handle is collected: it is closed all the same."""
    closed, interrupts = [], [KeyboardInterrupt, KeyboardInterrupt]

    def make(out):
        out._obj.value = 7
        raise interrupts.pop()

    def close(opened):
        if interrupts:
            raise interrupts.pop()
        opened.close()

    monkeypatch.setattr(lib, "library", types.SimpleNamespace(make=make, end=closed.append))
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        lib.opened("make", "end")
    assert closed == [7]
    lib.Handle(8, "end", lock=types.SimpleNamespace(close=close))
    assert closed == [7, 8] and not interrupts
