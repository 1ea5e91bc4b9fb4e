import pickle
import threading

import numpy as np
import pytest
from conftest import TINY, words

import drt


@pytest.fixture(scope="module")
def tokenizer():
    return drt.Tokenizer.load(TINY / "tokenizer.json")


def test_round_trip(tokenizer):
    text = "Grüße an the river 🌊\n\ttabs  and spaces"
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int32 and ids.ndim == 1
    assert tokenizer.decode(ids) == text
    assert b"".join(tokenizer.bytes_of(i) for i in ids) == text.encode()


def test_special_tokens_are_text_unless_wanted(tokenizer):
    special = next(tokenizer.spelling(i) for i in range(tokenizer.vocab_size) if tokenizer.is_special(i))
    assert len(tokenizer.encode(special, special=True)) == 1
    assert tokenizer.id_of(special) == tokenizer.encode(special, special=True)[0]
    assert len(tokenizer.encode(special)) > 1
    assert tokenizer.decode(tokenizer.encode(special, special=True)) == ""
    assert tokenizer.decode(tokenizer.encode(special, special=True), skip_special=False) == special


def test_ids_that_do_not_exist(tokenizer):
    assert tokenizer.spelling(tokenizer.vocab_size + 5) is None
    assert tokenizer.id_of("no such token at all") is None
    with pytest.raises(drt.NotFound):
        tokenizer.bytes_of(tokenizer.vocab_size + 5)
    assert tokenizer.decode([tokenizer.vocab_size + 5]) == "\ufffd"


def test_wrong_arguments(tokenizer, tmp_path):
    with pytest.raises(TypeError):
        tokenizer.decode(np.array([1.5]))
    with pytest.raises(ValueError):
        tokenizer.decode([2**40])
    with pytest.raises(drt.NotFound, match="no-such"):
        drt.Tokenizer.load(tmp_path / "no-such")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(drt.DrtError, match="bad.json"):
        drt.Tokenizer.load(tmp_path / "bad.json")


def test_empty(tokenizer):
    assert tokenizer.encode("").shape == (0,)
    assert tokenizer.decode([]) == ""


def test_threads_and_pickle(tokenizer):
    texts = [words(300, i) for i in range(8)]
    alone = [tokenizer.encode(t).tolist() for t in texts]
    copy = pickle.loads(pickle.dumps(tokenizer))
    found = [None] * 8

    def work(i):
        for _ in range(20):
            found[i] = (tokenizer if i % 2 else copy).encode(texts[i]).tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == alone
