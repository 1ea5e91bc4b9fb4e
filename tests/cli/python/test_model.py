import gc
import json
import pickle
import threading

import numpy as np
import pytest
from conftest import program, words

import drt


def chunks_of(model, n, seed=0):
    ids = np.random.default_rng(seed).integers(5, 200, (n, model.info.chunk), np.int32)
    ids[n // 2, 10:] = -1
    return ids


def test_info(model, model_folder):
    config = json.loads((model_folder / "config.json").read_text())
    assert model.info.device == "cpu" and model.info.dtype == "f32"
    assert model.info.vocab_size == config["vocab_size"]
    assert model.info.path == str(model_folder)
    assert str(model_folder) in repr(model)


def test_encode_is_the_same_alone_and_together(model):
    ids = chunks_of(model, 9)
    rows = model.encode(ids)
    assert rows.shape == (9, model.info.dim) and rows.dtype == np.float32
    for i in range(9):
        np.testing.assert_array_equal(model.encode(ids[i:i + 1])[0], rows[i])


def test_encode_equals_the_store(model, store):
    ids = store.tokens(np.arange(len(store)))
    np.testing.assert_array_equal(model.encode(ids).astype(np.float16), store.landmarks())


def test_eight_bits_leave_the_encoder(model, model_folder):
    i8 = drt.Model.load(model_folder, device="cpu", dtype="i8")
    assert i8.info.dtype == "i8"
    ids = chunks_of(model, 5)
    np.testing.assert_array_equal(i8.encode(ids), model.encode(ids))


def test_encode_writes_into_out(model):
    ids = chunks_of(model, 3)
    out = np.zeros((3, model.info.dim), np.float32)
    assert model.encode(ids, out=out) is out
    np.testing.assert_array_equal(out, model.encode(ids))
    for wrong in (np.zeros((2, model.info.dim), np.float32), np.zeros((3, model.info.dim), np.float64),
                  np.zeros((3, 2 * model.info.dim), np.float32)[:, ::2]):
        with pytest.raises(ValueError, match="out"):
            model.encode(ids, out=wrong)


def test_encode_takes_dlpack(model):
    class Foreign:
        """An array of another library: DLPack only."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    ids = chunks_of(model, 3)
    np.testing.assert_array_equal(model.encode(Foreign(ids)), model.encode(ids))
    out = np.zeros((3, model.info.dim), np.float32)
    assert isinstance(model.encode(ids, out=Foreign(out)), Foreign)
    np.testing.assert_array_equal(out, model.encode(ids))
    with pytest.raises(ValueError, match="out"):
        model.encode(ids, out=Foreign(out.astype(np.float64)))


def test_memory_of_a_gpu_is_not_taken_for_the_cpus(model):
    class OnGpu:
        """The attributes of a torch tensor on a GPU."""

        def __init__(self, shape, at=0x7F0000000000):
            self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (at, False), "version": 2}

        def __dlpack__(self, **options):
            raise AssertionError("nobody may read its memory")

        def __dlpack_device__(self):
            return (2, 0)

    ids = chunks_of(model, 3)
    with pytest.raises(ValueError, match="chunks.*CPU"):
        model.encode(OnGpu(ids.shape))
    with pytest.raises(ValueError, match="model is on the CPU"):
        model.encode(ids, out=OnGpu((3, model.info.dim)))
    with pytest.raises(ValueError, match="shape"):
        model.encode(ids, out=OnGpu((4, model.info.dim)))
    with pytest.raises(ValueError, match="256"):
        model.encode(ids, out=OnGpu((3, model.info.dim), at=0x7F0000000010))


def test_ids_on_a_gpu_are_copied(model):
    class OnGpu:
        """The attributes of a CuPy array."""

        def __init__(self, array):
            self.array = array
            self.__cuda_array_interface__ = {"shape": array.shape, "typestr": "<i4", "data": (0x7F0000000000, False), "version": 2}

        def get(self):
            return self.array.copy()

    ids = chunks_of(model, 3)
    np.testing.assert_array_equal(model.encode(OnGpu(ids)), model.encode(ids))
    with pytest.raises(ValueError, match="id 999999 at 64"):
        wrong = ids.copy()
        wrong[1, 1] = 999999
        model.encode(OnGpu(wrong))


def test_encode_text(model):
    text = words(150, 3)
    ids = model.tokenizer.encode(text)
    n = -(-len(ids) // model.info.chunk)
    padded = np.full((n, model.info.chunk), -1, np.int32)
    padded.reshape(-1)[:len(ids)] = ids
    np.testing.assert_array_equal(model.encode(text), model.encode(padded))
    assert model.encode("").shape == (0, model.info.dim)


def test_wrong_chunks(model):
    with pytest.raises(ValueError, match="shape"):
        model.encode(np.zeros((3, 7), np.int32))
    with pytest.raises(TypeError):
        model.encode(np.zeros((3, model.info.chunk)))
    with pytest.raises(drt.Invalid):
        model.encode(np.full((1, model.info.chunk), model.info.vocab_size + 3, np.int32))


def test_scores_are_those_of_next_token_distributions(model):
    text = words(90, 5)
    scores = model.logprobs(text, top=3)
    assert np.isnan(scores.logprobs[0]) and not np.isnan(scores.logprobs[1:]).any()
    assert scores.top_ids.shape == (len(scores.ids), 3)
    with model.session() as session:
        for i, wanted in enumerate(scores.ids[:40]):
            if i:
                row = session.logprobs()
                assert abs(np.logaddexp.reduce(row.astype(np.float64))) < 1e-4
                np.testing.assert_allclose(row[wanted], scores.logprobs[i], atol=2e-5)
                assert row.argmax() == scores.top_ids[i, 0]
            session.feed([wanted])
    assert scores.total == pytest.approx(float(np.nansum(scores.logprobs.astype(np.float64))), rel=1e-5)
    assert scores.perplexity > 1
    after = model.logprobs(scores.ids, top=3, skip=30)
    assert np.isnan(after.logprobs[:30]).all() and (after.top_ids[:30] == -1).all()
    np.testing.assert_allclose(after.logprobs[30:], scores.logprobs[30:], atol=2e-4)
    assert after.total == pytest.approx(float(np.nansum(after.logprobs.astype(np.float64))), rel=1e-5)


def test_generation_equals_the_program(model, model_folder, store, store_path):
    prompt = words(150, 8)
    wanted = program("drt-generate", "--model", model_folder, "--store", store_path, "--corpus-retrieval", "--device", "cpu",
                     "--temperature", 0, "--max-tokens", 30, "--no-echo", prompt) \
        if "--no-echo" in program("drt-generate", "--help") else None
    tokens = list(model.generate(prompt, max_tokens=30, store=store, temperature=0))
    assert tokens[-1].end in ("length", "eos") and all(t.end is None for t in tokens[:-1])
    if wanted is not None:
        assert "".join(t.text for t in tokens).strip() == wanted.strip()
    assert any(t.neighbours for t in tokens)
    read = {n.chunk for t in model.generate(prompt, max_tokens=2, store=store, continuation=1) for n in t.neighbours}
    assert any(chunk + 1 in read and store.chunk(chunk).document == store.chunk(chunk + 1).document for chunk in read)
    starts = {n.token_offset % 63 for options in (dict(store=store), dict(self_retrieval=True))
              for t in model.generate(prompt, max_tokens=150, continuation=1, overlap=31, **options) for n in t.neighbours}
    assert starts == {0, 32}                             # 63 - 31: where a continuation begins in the chunk before
    with pytest.raises(drt.Invalid, match="set continuation"):
        model.session(self_retrieval=True, overlap=31)
    for n in (n for t in tokens for n in t.neighbours):
        chunk = store.chunk(n.chunk)
        assert n.source == "corpus" and chunk.document == n.document and chunk.token_offset == n.token_offset


def test_a_search_by_words_equals_the_program(model, model_folder, tmp_path, documents):
    drt.Store.build(documents, tmp_path / "store", model=model).close()
    program("drt-index", "lexical", "--store", tmp_path / "store")
    prompt, found = words(150, 8), set()
    with drt.Store(tmp_path / "store", model=model) as store:
        for n in (0, 3):
            wanted = program("drt-generate", "--model", model_folder, "--store", tmp_path / "store", "--corpus-retrieval",
                             "--searcher", "lexical", "--query-tokens", n, "--device", "cpu", "--greedy", "--ignore-eos",
                             "--max-tokens", 80, "--prompt", prompt)
            tokens = list(model.generate(prompt, max_tokens=80, ignore_eos=True, store=store, searcher="lexical",
                                         query_tokens=n))
            assert "".join(t.text for t in tokens).strip() == wanted.strip()
            found.add(frozenset(n.chunk for t in tokens for n in t.neighbours))
        assert len(found) == 2                           # the shorter query finds other chunks
        with pytest.raises(drt.Invalid, match="by words"):
            model.session(store=store, query_tokens=8)
        with pytest.raises(drt.Invalid, match="0 to 128"):
            model.session(store=store, searcher="lexical", query_tokens=129)
    with pytest.raises(ValueError, match="corpus retrieval"):
        model.session(self_retrieval=True, searcher="lexical")


def test_sampling_is_repeatable_and_stops(model):
    options = dict(max_tokens=25, temperature=0.9, top_k=40, top_p=0.95)
    first = [t.id for t in model.generate("the river", seed=4, **options)]
    assert first == [t.id for t in model.generate("the river", seed=4, **options)]
    assert first != [t.id for t in model.generate("the river", seed=5, **options)]
    text = "".join(t.text for t in model.generate("the river", seed=4, **options))
    stop = text[len(text) // 2:len(text) // 2 + 3]
    stopped = list(model.generate("the river", seed=4, stop=stop, **options))
    assert stopped[-1].end == "stop"
    assert "".join(t.text for t in stopped) == text[:text.index(stop)]


def test_an_abandoned_iterator_frees_its_session(model):
    tokens = model.generate("the river", max_tokens=1000, temperature=1.0)
    next(tokens)
    tokens.close()
    del tokens
    gc.collect()


def test_stop_gives_what_was_held_back(model):
    with model.session(temperature=0.9, top_k=40, seed=4, max_tokens=12) as session:
        session.feed("the river")
        tokens = list(session.tokens())
    text, n = "".join(t.text for t in tokens), 6
    with model.session(temperature=0.9, top_k=40, seed=4, max_tokens=12) as session:
        session.feed("the river")
        shown = "".join(session.next().text for _ in range(n)) + session.stop()
        assert shown == model.tokenizer.decode([t.id for t in tokens[:n]]) and text.startswith(shown.rstrip("\ufffd"))
        with pytest.raises(drt.Invalid):
            session.next()
        session.feed(" and stone")
        assert session.next().position == len(session) - 1


def test_a_session_goes_back_to_its_prompt(model):
    def ids(session):
        return [t.id for t in session.tokens()]

    with model.session(temperature=1, max_tokens=20, seed=3, rewind=True) as session:
        session.feed(words(70, 3))
        first = ids(session)
        session.rewind(4)
        second = ids(session)
        session.rewind(3)
        assert ids(session) == first != second
    with model.session(temperature=1, max_tokens=20, seed=4) as session:
        session.feed(words(70, 3))
        assert ids(session) == second
        with pytest.raises(drt.Unsupported, match="cannot go back"):
            session.rewind(3)


def test_the_bundled_model():
    """In a wheel and in a checkout: beside the library."""
    model = drt.Model.load(device="cpu")
    assert model.info.path.endswith("drt-28m") and model.info.parameters > 28e6
    scores = model.logprobs("The catalog names every file of a store.", top=2)
    assert len(scores.ids) > 5 and 1 < scores.perplexity < 1e4
    assert model.encode("A store.").shape == (1, model.info.dim)


def test_wrong_options(model):
    with pytest.raises(ValueError, match="store"):
        model.generate("x", memory="corpus")
    with pytest.raises(ValueError, match="memory"):
        model.generate("x", memory="mine")
    with pytest.raises(TypeError):
        model.generate("x", temprature=1)
    with model.session() as session, pytest.raises(drt.Invalid):
        session.next()
    with pytest.raises(ValueError, match="closed"):
        session.feed("x")


def test_missing_and_damaged_folders(tmp_path, model_folder):
    with pytest.raises(drt.NotFound, match="nowhere"):
        drt.Model.load(tmp_path / "nowhere")
    with pytest.raises(LookupError):
        drt.Model.load(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(drt.DrtError, match="config.json"):
        drt.Model.load(tmp_path)


def test_threads_with_shared_weights(model):
    ids = chunks_of(model, 16, 2)
    wanted = model.encode(ids)
    others = [model.share(device="cpu", threads=1) for _ in range(3)]
    found = [None] * 4

    def work(i):
        for _ in range(5):
            found[i] = ([model] + others)[i].encode(ids)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for rows in found:
        np.testing.assert_array_equal(rows, wanted)


def test_relative_path(model_folder, monkeypatch):
    """A session opens files of the model's folder, also after a change of the working directory."""
    monkeypatch.chdir(model_folder.parent)
    with drt.Model.load(model_folder.name, device="cpu", threads=1) as model:
        monkeypatch.chdir("/")
        assert model.info.path == str(model_folder)
        with pytest.raises(drt.NotFound, match=f"{model_folder}/memory.json: the model has no configuration"):
            model.session(memory="own")


def test_pickle(model):
    copy = pickle.loads(pickle.dumps(model))
    ids = chunks_of(model, 2)
    np.testing.assert_array_equal(copy.encode(ids), model.encode(ids))


def test_sessions_together_are_sessions_alone(model, store):
    """Several texts whose tokens are computed in one pass: each gets the tokens that it gets alone."""
    options = [{"seed": i, "temperature": i % 2, "max_tokens": 20 + 15 * i} for i in range(5)]
    prompts = [words(20 + 9 * i, i) for i in range(5)]

    def begun(i):
        session = model.session(store=store if i % 2 else None, **options[i])
        session.feed(prompts[i])
        return session

    alone = [[(t.id, t.logprob, t.text, t.end) for t in begun(i).tokens()] for i in range(5)]
    sessions, made, computed = [begun(i) for i in range(5)], [[] for _ in range(5)], 0
    left = list(range(5))
    while left:
        computed += drt.Session.prepare([sessions[i] for i in left])
        for i in list(left):
            t = sessions[i].next()
            made[i].append((t.id, t.logprob, t.text, t.end))
            if t.end is not None:
                left.remove(i)
    assert made == alone and computed > sum(map(len, made)) // 2
    assert drt.Session.prepare([]) == 0
    with pytest.raises(drt.Invalid, match="twice"):
        drt.Session.prepare([sessions[0], sessions[0]])
