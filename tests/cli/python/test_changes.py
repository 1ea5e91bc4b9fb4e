"""Whole stores from Python: verify, delete, compact, join, freeze; each is compared with the programs."""

import json

import numpy as np
import pytest
from conftest import program

import drt


def texts(store, model):
    """The texts of the remaining documents, in order."""
    left = []
    for i in range(store.info.documents):
        try:
            left.append(store.document_text(i, model))
        except drt.NotFound:
            continue
    return left


@pytest.fixture
def made(tmp_path, documents, model):
    with drt.Store.build(documents[:12], tmp_path / "store", model=model) as store:
        yield store


def test_delete_by_number_key_and_source(made, tmp_path, documents, model):
    wanted = [d["text"] for d in documents[:12]]
    trial = made.delete([3, 7], dry_run=True)
    assert trial["documents"] == 2 and trial["ids"] == [3, 7] and trial["generation"] == 1
    assert texts(made, model) == wanted
    done = made.delete([7, 3])
    assert {**done, "generation": 1} == trial and made.info.generation == 2       # the object shows the new generation at once
    assert texts(made, model) == [t for i, t in enumerate(wanted) if i not in (3, 7)]
    assert all(hit.document.id not in (3, 7) for hit in made.search(wanted[3], k=5, model=model))
    shown = json.loads(program("drt-index", "stats", "--store", tmp_path / "store", "--json"))
    assert shown["generation"] == 2
    assert made.delete(sources=["other*"])["documents"] == 0
    assert made.delete(keys=[made.document(4).key, "none"])["ids"] == [4] and made.delete(keys=["none"])["ids"] == []
    assert made.delete(sources=["made.*"])["documents"] == 9 and len(made) == 0
    with pytest.raises(drt.NotFound, match="1000"):
        made.delete([1000])
    assert made.info.generation >= 3                     # open again after a failure
    with pytest.raises(drt.Invalid, match="either"):
        made.delete()
    with pytest.raises(drt.Invalid, match="either"):
        made.delete([1], sources=["a"])
    with pytest.raises(TypeError, match="sources: str where a list of str"):
        made.delete(sources="made.*")
    other = drt.Store(tmp_path / "store", model=model)
    with pytest.raises(drt.Busy):
        made.delete([1])
    other.close()


def test_compact_keeps_what_is_left(made, tmp_path, documents, model):
    rows = [made.landmarks()[d.first_chunk:d.first_chunk + d.chunks] for d in map(made.document, (0, 2, 3))]
    made.delete([1, *range(4, 12)])
    with made.compact(tmp_path / "small", threads=1) as small:
        assert small.report["documents"] == 3 == small.info.documents and small.info.dropped_documents == 0
        assert texts(small, model) == [documents[i]["text"] for i in (0, 2, 3)]
        np.testing.assert_array_equal(small.landmarks(), np.concatenate(rows))
    assert len(texts(made, model)) == 3                  # the old store stays, and this object is open
    assert drt.Store.verify(tmp_path / "small", deep=True) == []
    with pytest.raises(drt.Invalid, match="devices is -2"):
        made.compact(tmp_path / "none", devices=-2)
    made.delete([0, 2, 3])
    with pytest.raises(drt.Invalid, match="no document"):
        made.compact(tmp_path / "none")


def test_verify_names_file_and_remedy(made, tmp_path):
    with pytest.raises(drt.Busy):
        drt.Store.verify(tmp_path / "store")
    made.close()
    seen = []
    assert drt.Store.verify(tmp_path / "store", deep=True, progress=lambda *step: seen.append(step)) == []
    assert seen and all(stage and unit and done >= 0 for stage, unit, done, _ in seen)
    file = next((tmp_path / "store/landmarks").iterdir())
    data = bytearray(file.read_bytes())
    data[600] ^= 1
    file.write_bytes(data)
    assert drt.Store.verify(tmp_path / "store") == []    # sizes are right
    found = drt.Store.verify(tmp_path / "store", deep=True)
    assert len(found) == 1 and found[0].file.endswith(file.name) and "repair" in found[0].remedy and found[0].problem
    with pytest.raises(drt.NotFound, match="no-store"):
        drt.Store.verify(tmp_path / "no-store")

    def stop(*_step):
        raise RuntimeError("enough")
    with pytest.raises(RuntimeError, match="enough"):
        drt.Store.verify(tmp_path / "store", deep=True, progress=stop)


def test_parts_are_joined(tmp_path, store, store_path, model):
    corpus = store_path.parent / "corpus.jsonl"
    for i in (2, 1):
        drt.Store.build(corpus, tmp_path / f"part{i}", model=model, part=(i, 2)).close()
    with drt.Store.join([tmp_path / "part1", tmp_path / "part2"], tmp_path / "whole", model=model, lexical=True) as whole:
        assert whole.report["linked"] > 0 and not whole.report["already_joined"] and whole.info.lexical
        assert texts(whole, model) == texts(store, model)
        np.testing.assert_array_equal(whole.landmarks(), store.landmarks())
    with pytest.raises(drt.Mismatch):
        drt.Store.join([tmp_path / "part1"], tmp_path / "half")
    with pytest.raises(drt.Invalid, match="part is 3 of 2"):
        drt.Store.build(corpus, tmp_path / "part3", model=model, part=(3, 2))
    with pytest.raises(TypeError, match="parts: str where a list of str or paths"):
        drt.Store.join(str(tmp_path / "part1"), tmp_path / "half")
    with pytest.raises(drt.Invalid, match="devices is -2"):
        drt.Store.join([tmp_path / "part1", tmp_path / "part2"], tmp_path / "half", devices=-2)
    with pytest.raises(drt.Invalid, match="n_parts"):
        drt.Store.join([], tmp_path / "half")


def test_a_snapshot_stays(made, tmp_path, documents, model):
    with made.freeze(tmp_path / "snap", copy=True) as snap:
        assert snap.report["copied"] > 0 and snap.report["linked"] == 0
        made.delete([0])
        assert len(texts(snap, model)) == 12 and len(texts(made, model)) == 11
        with pytest.raises(drt.ReadOnly):
            snap.delete([1])
        assert len(texts(snap, model)) == 12             # open again after the failure
