# SPDX-License-Identifier: Apache-2.0
"""The table of offsets of 3.8 to 3.12 equals the headers of each version, compiled for x86-64 and for arm64; arm64
interpreters, as files, have all required parts. The agent's numbers of code objects are right."""
import glob
import os
import re
import shutil
import subprocess

import pytest

import host

pytestmark = pytest.mark.light

CLANG = shutil.which("clang-19") or shutil.which("clang")
HEADERS = os.path.join(host.CACHE, "arm64-headers")
SOURCE = os.path.join(host.ROOT, "src", "cpython", "offsets.c")
RUNTIME, INTERP, TSTATE, CODE = "_PyRuntimeState", "struct _is", "PyThreadState", "PyCodeObject"


def members(minor):
    """Where in the headers each entry of the table is."""
    gc = (RUNTIME if minor == 8 else INTERP)
    frame = "_PyInterpreterFrame" if minor >= 11 else "struct _frame"
    found = {
        "runtime_interpreters_head": (RUNTIME, "interpreters.head"),
        "interp_threads_head": (INTERP, "threads.head" if minor >= 11 else "tstate_head"),
        "interp_modules": (INTERP, "imports.modules" if minor >= 12 else "modules"),
        "tstate_thread_id": (TSTATE, "thread_id"),
        "tstate_context": (TSTATE, "context"),
        "gil": (INTERP if minor >= 12 else RUNTIME, "ceval.gil"),
        "gc_stats": (gc, "gc.generation_stats"),
        "gc_collecting_runtime" if minor == 8 else "gc_collecting_interp": (gc, "gc.collecting"),
        "frame_previous": (frame, "previous" if minor >= 11 else "f_back"),
        "frame_code": (frame, "f_code"),
        "frame_ip": (frame, "prev_instr" if minor >= 11 else "f_lasti"),
        "code_filename": (CODE, "co_filename"),
        "code_name": (CODE, "co_name"),
        "code_firstlineno": (CODE, "co_firstlineno"),
        "code_lines": (CODE, "co_linetable" if minor >= 10 else "co_lnotab"),
    }
    if minor >= 11:
        found.update(tstate_native_thread_id=(TSTATE, "native_thread_id"), tstate_cframe=(TSTATE, "cframe"),
                     tstate_frame=("_PyCFrame", "current_frame"), frame_owner=(frame, "owner"),
                     code_qualname=(CODE, "co_qualname"), code_bytecode=(CODE, "co_code_adaptive"))
    else:
        found.update(tstate_frame=(TSTATE, "frame"))
    if minor == 12:
        found.update(code_version=(CODE, "co_version"))
    return found


COMMON = {"interp_next": (INTERP, "next", 0), "tstate_next": (TSTATE, "next", 8), "tstate_interp": (TSTATE, "interp", 16),
          "last_holder": ("struct _gil_runtime_state", "last_holder", 8), "locked": ("struct _gil_runtime_state", "locked", 16),
          "cond": ("struct _gil_runtime_state", "cond", 32), "length": ("PyASCIIObject", "length", 16)}
SIZES = {"unicode_ascii_data": "PyASCIIObject", "unicode_compact_data": "PyCompactUnicodeObject"}


def table():
    """{minor: {entry: value}} of the source."""
    with open(SOURCE) as f:
        text = f.read()
    text = text[text.index("version_table[] = {"):text.index("\n};\n")]
    found = {}
    for entry in text.split("\t{\n")[1:]:
        values = {name: eval(value) for name, value in re.findall(r"\.(\w+) = ([\d +]+),", entry)}
        found[values.pop("minor")] = values
    return found


def constant(name):
    with open(SOURCE) as f:
        return int(re.search(rf"\b{name} = (\d+)", f.read()).group(1))


@pytest.mark.skipif(not CLANG, reason="no clang here")
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_table_is_what_the_headers_say(machine, tmp_path):
    compared = []
    for minor, values in table().items():
        folders = glob.glob(os.path.join(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")),
                                         "versions", f"3.{minor}.*", "include", f"python3.{minor}"))
        if not folders:
            continue
        asserts = [f"offsetof({struct}, {member}) == {values[name]}" for name, (struct, member) in members(minor).items()]
        asserts += [f"offsetof({struct}, {member}) == {value}" for struct, member, value in COMMON.values()]
        asserts += [f"sizeof({struct}) == {values[name]}" for name, struct in SIZES.items()]
        gc = RUNTIME if minor == 8 else INTERP
        asserts.append(f"offsetof({gc}, gc.long_lived_total) == offsetof({gc}, gc.collecting) + {constant('LONG_LIVED_AFTER_COLLECTING')}")
        headers = ["Python.h", "stddef.h", "pycore_runtime.h" if minor > 8 else "pycore_pystate.h", "pycore_gil.h",
                   "pycore_frame.h" if minor >= 11 else "frameobject.h"] + (["pycore_interp.h"] if minor > 8 else [])
        source = tmp_path / f"{minor}.c"
        source.write_text("#define Py_BUILD_CORE 1\n" + "".join(f"#include <{h}>\n" for h in headers)
                          + "".join(f'_Static_assert({a}, "{a}");\n' for a in asserts))
        sysroot = []
        if machine == "aarch64":
            own = subprocess.run([CLANG, "-print-resource-dir"], stdout=subprocess.PIPE, text=True).stdout.strip()
            sysroot = ["-nostdinc", "-isystem", own + "/include", "-isystem", HEADERS, "-isystem",
                       os.path.join(HEADERS, "aarch64-linux-gnu")]
        result = subprocess.run([CLANG, f"--target={machine}-linux-gnu", "-w", "-fsyntax-only", source, "-I", folders[0],
                                 "-I", folders[0] + "/internal", *sysroot], stderr=subprocess.PIPE, text=True)
        assert result.returncode == 0, f"3.{minor}: {result.stderr[:2000]}"
        # not offsets
        constants = {"frame_owner_internal"}
        assert set(values) - constants - set(members(minor)) - set(SIZES) == set(), minor
        compared.append(minor)
    if not compared:
        pytest.skip("no headers of CPython 3.8 to 3.12 here (pyenv's are looked at)")


# the value 20 bytes before the name of the file, in every code object, some short-lived
NUMBERS = """
import ctypes, gc, types
def words(address, n, kind):
    return (kind * n).from_address(address)
codes = {id(f.__code__): f.__code__ for f in gc.get_objects() if isinstance(f, types.FunctionType)}
sample = (lambda: 0).__code__
filename = 8 * list(words(id(sample), 20, ctypes.c_uint64)).index(id(sample.co_filename))
number = lambda code: words(id(code) + filename - 20, 1, ctypes.c_uint32)[0]
dying = [number(compile("0", "same", "eval")) for _ in range(997)]
print(len(codes), len({number(code) for code in codes.values()} - {0}), len(set(dying) - {0}))
"""


def test_code_objects_are_numbered():
    """Since 3.12 a number distinguishes code objects at the same address: no duplicates."""
    pythons = [p for p in host.find_pythons() + host.find_rooted_pythons() if p.version >= (3, 12)]
    if not pythons:
        pytest.skip("no CPython 3.12 or later here")
    for python in pythons:
        words = subprocess.check_output([*python.start, python.path, "-c", NUMBERS], text=True).split()
        codes, numbers, dying = map(int, words)
        assert codes == numbers > 100 and dying == 997, f"{python}: {words}"


def test_arm64_interpreters_can_be_read():
    """The unit test of the same name, with the downloaded files."""
    program = os.path.join(host.ROOT, "build", "tests", "unit", "test_arm64")
    if not os.path.exists(program):
        pytest.skip("the unit tests are not built: make unit")
    result = subprocess.run([program], cwd=host.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0 and re.search(r"[1-9]\d* arm64 interpreters", result.stdout), result.stdout
