"""Keys of a token memory from Python: with a build, after an addition; the same bytes as the program's."""

import json
import logging
import shutil

import pytest
from conftest import program

import drt


def keys_of(store):
    """The bytes of each file of keys."""
    return {file.name: file.read_bytes() for file in sorted((store / "keys").iterdir())}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, documents):
    """Two files, of the first 30 and of the last 10 documents."""
    folder = tmp_path_factory.mktemp("corpus")
    for name, part in (("first", documents[:30]), ("last", documents[30:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in part), encoding="utf8")
    return folder


@pytest.fixture(scope="module")
def by_program(tmp_path_factory, corpus, model_folder):
    """Built and extended by drt-index."""
    store = tmp_path_factory.mktemp("program") / "store"
    program("drt-index", "build", corpus / "first.jsonl", "--out", store, "--model", model_folder, "--keys")
    first = keys_of(store)
    program("drt-index", "add", corpus / "last.jsonl", "--store", store, "--model", model_folder)
    return first, keys_of(store)


@pytest.fixture
def built(tmp_path, corpus, model):
    with drt.Store.build(corpus / "first.jsonl", tmp_path / "store", model=model, keys=True) as store:
        yield store


@pytest.mark.parametrize("landmarks", [None, "none"])
def test_the_programs_bytes(tmp_path, corpus, model, by_program, landmarks):
    first, both = by_program
    path = tmp_path / "store"
    with drt.Store.build(corpus / "first.jsonl", path, model=model, keys=True, landmarks=landmarks) as store:
        assert store.report["keys_made"] == 1 and store.report["keys_chunks"] == store.info.chunks
        assert store.info.keys_files == 1 and store.info.keys_chunks == store.info.chunks
        assert keys_of(path) == first
        before = store.info.chunks
        report = store.add(corpus / "last.jsonl")
        assert report["keys_chunks"] == report["chunks"] == store.info.chunks - before > 0 and report["keys_lacking"] == 0
        assert store.info.keys_chunks == store.info.chunks
    assert keys_of(path) == both and first != both
    assert drt.Store.verify(path, deep=True) == []


def test_added_documents_of_python(built, tmp_path, documents, by_program):
    assert built.add([{"text": d["text"]} for d in documents[30:]])["keys_made"] == 1
    assert keys_of(tmp_path / "store") == by_program[1]


def test_keys_come_only_if_wanted(tmp_path, documents, model):
    with drt.Store.build(documents[:4], tmp_path / "s", model=model) as store:
        assert store.report["keys_files"] == 0 == store.info.keys_files
        assert store.add(documents[4:6])["keys_files"] == 0 and not (tmp_path / "s/keys").exists()
        report = store.add(documents[6:8], keys=True)
        assert report["keys_chunks"] == store.info.chunks == store.info.keys_chunks
    again = drt.Store.build(documents[:4], tmp_path / "t", model=model)
    again.close()
    with drt.Store.build(documents[:4], tmp_path / "t", model=model, keys=True) as store:
        assert store.report["already_built"] and store.report["keys_made"] == 1


def test_layer_and_step_are_kept(built, tmp_path, corpus, model_folder):
    path = tmp_path / "store"
    built.close()
    where = ("--store", path, "--model", model_folder)
    program("drt-index", "keys", "--store", path, "--remove")
    program("drt-index", "keys", *where, "--layer", 1, "--step", 4)
    shutil.copytree(path, tmp_path / "copy")
    program("drt-index", "add", corpus / "last.jsonl", "--store", tmp_path / "copy", "--model", model_folder)
    with drt.Store(path, model=built._model) as store:
        assert store.add(corpus / "last.jsonl")["keys_made"] == 1
    assert keys_of(path) == keys_of(tmp_path / "copy")


def test_rounding_is_not_mixed(built, tmp_path, documents, model_folder, caplog):
    path, exact = tmp_path / "store", drt.Model.load(model_folder, device="cpu", dtype="f32", threads=2)
    before = keys_of(path)
    if before["00000.keys"][80] != 2:
        pytest.skip("this processor does not round products to bf16")
    with pytest.raises(drt.Mismatch, match="--dtype auto.*--remove first"):
        built.add(documents[30:], model=exact, keys=True)
    assert built.info.generation == 1
    with caplog.at_level(logging.INFO, logger="drt"):
        report = built.add(documents[30:], model=exact)
    assert report["keys_lacking"] == report["chunks"] > 0 and keys_of(path) == before
    assert "computed with bf16 products, this run computes f32" in caplog.text and "run drt-index keys" in caplog.text
    shutil.rmtree(path / "keys")
    assert built.add(documents[30:], model=exact, keys=True)["keys_chunks"] == built.info.chunks
    assert keys_of(path)["00000.keys"][80] == 1
