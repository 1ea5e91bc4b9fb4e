"""Fixtures: a tiny random model and a store of random words, made by the programs of the build (DRT_BIN)."""

import json
import os
import pathlib
import random
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ.get("DRT_SOURCE", pathlib.Path(__file__).parents[3]))
BIN = pathlib.Path(os.environ.get("DRT_BIN", SOURCE / "build/bin"))
TINY = SOURCE / "tests/cli/tiny"
WORDS = "the river and stone winding north other sand ring on table under seven lights of a harbour".split()


def words(n, seed):
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(n)) + f" number {seed}."


@pytest.fixture(scope="session")
def documents():
    return [{"text": words(40 + 7 * i % 200, i), "id": f"doc-{i}", "source": "made.txt"} for i in range(40)]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    subprocess.run([BIN / "drt-model", "init", "--config", TINY / "config.json", "--tokenizer", TINY / "tokenizer.json",
                    "--out", folder, "--seed", "3"], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def model(model_folder):
    import drt
    return drt.Model.load(model_folder, device="cpu", threads=2)


@pytest.fixture(scope="session")
def store_path(tmp_path_factory, documents, model_folder):
    """Built by the program from jsonl, so that Python does not read its own output."""
    folder = tmp_path_factory.mktemp("store")
    with open(folder / "corpus.jsonl", "w", encoding="utf8") as file:
        for document in documents:
            file.write(json.dumps(document) + "\n")
    subprocess.run([BIN / "drt-index", "build", folder / "corpus.jsonl", "--model", model_folder, "--out",
                    folder / "store"], check=True, capture_output=True)
    return folder / "store"


@pytest.fixture
def store(store_path):
    import drt
    with drt.Store(store_path) as opened:
        yield opened


def program(name, *arguments):
    """The output of a program on stdout."""
    return subprocess.run([BIN / name, *map(str, arguments)], check=True, capture_output=True, text=True).stdout
