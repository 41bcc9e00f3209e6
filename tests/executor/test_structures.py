"""The structures that Python and C share."""

import ctypes
import shutil
import subprocess

from hpccoll.executor.build import FOLDER
from hpccoll.executor.structures import STRUCTURES


def test_every_field_lies_where_the_c_compiler_puts_it(tmp_path, require):
    compiler = shutil.which("cc") or shutil.which("gcc")
    require(compiler, "there is no C compiler")
    here = {f"sizeof({name})": ctypes.sizeof(structure) for name, structure in STRUCTURES.items()}
    for name, structure in STRUCTURES.items():
        here |= {
            f"offsetof({name}, {field})": getattr(structure, field).offset
            for field, _ in structure._fields_
        }
    program, numbers = (
        tmp_path / "numbers.c",
        ", ".join(f"(int)({expression})" for expression in here),
    )
    program.write_text(
        '#include "executor.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n'
        f"  const int numbers[] = {{{numbers}}};\n"
        f'  for (int i = 0; i < {len(here)}; i++) printf("%d ", numbers[i]);\n}}\n'
    )
    subprocess.run(
        [compiler, "-std=c11", f"-I{FOLDER}", program, "-o", tmp_path / "numbers"], check=True
    )
    there = subprocess.run(
        [tmp_path / "numbers"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert here == dict(zip(here, map(int, there), strict=True))
