import pickle
import re

from conftest import SOURCE

import drt


def test_version():
    wanted = re.search(r"project\(drt VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text())[1]
    assert drt.__version__ == wanted and drt.build.startswith("libdrt " + wanted)


def test_everything_public_is_documented():
    for name in drt.__all__:
        thing = getattr(drt, name)
        if callable(thing) and getattr(thing, "__module__", "").startswith("drt"):
            assert thing.__doc__, name
            for member, value in vars(thing).items():
                if callable(value) and not member.startswith("_"):
                    assert value.__doc__, f"{name}.{member}"


def test_errors_say_their_kind():
    assert issubclass(drt.NotFound, LookupError) and issubclass(drt.Invalid, ValueError)
    assert issubclass(drt.InputOutput, OSError) and all(
        issubclass(e, drt.DrtError) for e in (drt.Busy, drt.Corrupt, drt.Mismatch, drt.Unsupported, drt.VersionError))
    assert drt.NotFound.__module__ == "drt" and str(pickle.loads(pickle.dumps(drt.NotFound("a file")))) == "a file"
