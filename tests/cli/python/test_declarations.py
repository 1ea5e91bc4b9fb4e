"""The structs that ctypes declares are those of include/drt.h: sizes and offsets, compared through a C compiler."""

import re
import shutil
import subprocess

import pytest
from conftest import SOURCE

from drt import _library as lib

HEADER = SOURCE / "include/drt.h"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_structs_lie_as_in_the_header(tmp_path):
    lines = ["#include <drt.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    expected = []
    for struct in lib.STRUCTS:
        name = struct.__name__
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        expected.append(f"{name} {lib.c.sizeof(struct)}")
        for member, *_ in struct._fields_:
            lines.append(f'printf("{name}.{member} %zu %zu\\n", offsetof(struct {name}, {member}), '
                         f"sizeof(((struct {name} *)0)->{member}));")
            field = getattr(struct, member)
            expected.append(f"{name}.{member} {field.offset} {field.size}")
    (tmp_path / "layout.c").write_text("\n".join([*lines, "return 0; }"]))
    subprocess.run(["cc", "-I", HEADER.parent, tmp_path / "layout.c", "-o", tmp_path / "layout"], check=True)
    assert subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout.split("\n")[:-1] == expected


def test_every_struct_and_function_of_the_header_is_declared():
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    declared = {struct.__name__ for struct in lib.STRUCTS}
    assert set(re.findall(r"^struct (drt_\w+) \{", text, re.MULTILINE)) == declared
    functions = set(re.findall(r"^DRT_(?:CALL|API)[^(;]*?\b(drt_\w+)\(", text, re.MULTILINE))
    assert functions - {"drt_status_text", "drt_session_generate"} == set(lib._CALLS) | set(lib._OTHERS)


def test_status_numbers(tmp_path):
    text = HEADER.read_text()
    numbers = {int(n): name for name, n in re.findall(r"DRT_([A-Z_]+) = (-\d+)", text)}
    names = {-1: "IO", -2: "NO_SPACE", -4: "NOT_FOUND", -5: "INVALID", -6: "CORRUPT", -7: "MISMATCH", -8: "VERSION",
             -9: "BUSY", -10: "UNSUPPORTED", -11: "INTERRUPTED", -12: "READ_ONLY"}
    assert {n: numbers[n] for n in lib._ERRORS} == names
    assert numbers[-3] == "NO_MEMORY"
