"""drt: a chunk retrieval store and the retrieval language model that reads it.

    import drt
    store = drt.Store.build(["a text", {"text": "another", "id": "2"}], "docs.store")
    for hit in store.search("what is asked", k=3):
        print(hit.score, hit.document.source, hit.text)
    for token in drt.Model.load().generate("Once", store=store):
        print(token.text, end="")

Arrays are numpy arrays. The docstring of each function has their shapes and types. Long calls release the GIL.
"""

import ctypes as _c

from . import _library
from ._calls import Report, TqdmReport
from ._library import (Busy, Corrupt, DrtError, InputOutput, Interrupted, Invalid, Mismatch, NotFound, ReadOnly,
                       Unsupported, VersionError)
from .model import Model, ModelInfo, Neighbour, Scores, Session, Token
from .store import Chunk, Document, Finding, Hit, Store, StoreInfo
from .tokenizer import Tokenizer

_version = _library.new(_library.version_info)
_library.library.drt_version(_c.byref(_version))
#: Version of the library.
__version__ = f"{_version.major}.{_version.minor}.{_version.patch}"
#: Version, commit, FAISS and CUDA of the library in one line.
build = _library.decoded(_version.text)

__all__ = ["Busy", "Chunk", "Corrupt", "Document", "DrtError", "Finding", "Hit", "InputOutput", "Interrupted", "Invalid",
           "Mismatch", "Model", "ModelInfo", "Neighbour", "NotFound", "ReadOnly", "Report", "Scores", "Session", "Store",
           "StoreInfo", "Token", "Tokenizer", "TqdmReport", "Unsupported", "VersionError", "build", "__version__"]
