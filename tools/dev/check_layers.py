#!/usr/bin/env python3
"""Checks every #include of the tree against the module graph in tools/cmake/ms.cmake (ctest `layers`).

A module is a folder whose CMakeLists.txt declares ms_library(<name> ...); a file belongs to the nearest one above it.
Tests, tools and benchmarks may use every module. Rules, each with its own message:
  - a module includes only itself and the modules in MS_MAY_USE_<module>, and of those only public headers (not detail/);
  - within a module, a folder of ROOMS includes only itself, the module's own folder, and the rooms listed there;
  - quotes are for this repository, by paths from its root; angle brackets for everything else;
  - the headers of MPI, HDF5, oneDNN, Eigen, Highway and simdjson stay where EXTERNAL says;
  - a region for an instruction set is begun by kernels/impl/target_push.h, and nowhere else.

  check_layers.py [ROOT]       prints one line per finding and exits with 1
  check_layers.py --self-test  checks that each rule catches what it forbids
"""
import os
import re
import sys
import tempfile

from source_tree import read, run_check, walk, write

USE_EVERYTHING = ("tests", "tools", "bench")
SOURCES = (".h", ".cpp", ".inl")
# Header, the folders that may include it, and whether only their .cpp files (and .inl files, which those include) may.
EXTERNAL = (
    (re.compile(r"mpi\.h$"), ("core/comm", "profile/record"), False),
    (re.compile(r"(hdf5|H5\w+)\.h$"), ("core/io",), False),
    (re.compile(r"(oneapi/)?dnnl"), ("kernels",), True),
    (re.compile(r"Eigen/"), ("kernels", "core/layout", "profile/analysis"), True),
    (re.compile(r"hwy/"), ("kernels",), True),
    (re.compile(r"simdjson"), ("profile",), True),
)
TARGET_PUSH = "kernels/impl/target_push.h"
TARGET_REGION = re.compile(r"^\s*#\s*pragma\s+(?:GCC\s+(?:push_options|target)|clang\s+attribute\s+push)\b", re.M)
# Rooms: folders of one module, and those of the same module that each may include besides its own and the module's top.
# A room's detail/ belongs to it, and no other room includes it unless it is listed too.
ROOMS = {
    "core/io": (), "core/trace": ("core/io", "core/comm"), "core/comm": ("core/io", "core/trace"),
    "core/layout/formulas": ("core/layout",),
    "convert/families": (), "convert/gguf": (), "convert/torch": (),
    "convert/megatron": ("convert/torch",), "convert/deepspeed": ("convert/torch",),
    "profile/ingest": (), "profile/analysis": (), "profile/record": (),
    # Exports write the arguments of events again, in the text of the reader.
    "profile/report": ("profile/analysis", "profile/ingest", "profile/ingest/detail"),
    "profile/query": ("profile/analysis", "profile/report"),
    "train/memory": (), "train/parallel": (), "train/model": ("train/memory", "train/parallel"),
    "train/optim": ("train/memory", "train/model", "train/parallel"),
    "train/loop": ("train/memory", "train/model", "train/optim", "train/parallel"),
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.M)


def allowed_uses(root):
    """{module: set of modules it may use}, from the MS_MAY_USE_ table."""
    text = read(os.path.join(root, "tools/cmake/ms.cmake"))
    return {name: set(uses.split()) for name, uses in re.findall(r"set\(MS_MAY_USE_(\w+)([^)]*)\)", text)}


def module_folders(root):
    """{folder: module} of every ms_library in the tree."""
    folders = {}
    for path in walk(root):
        if os.path.basename(path) == "CMakeLists.txt":
            for name in re.findall(r"^\s*ms_library\((\w+)", read(os.path.join(root, path)), re.M):
                folders[os.path.dirname(path)] = name
    return folders


def owner(path, folders):
    """The module that a file belongs to, or None."""
    folder = os.path.dirname(path)
    while folder and folder not in folders:
        folder = os.path.dirname(folder)
    return folders.get(folder)


def check_quoted(root, path, module, included, uses, folders):
    if not os.path.isfile(os.path.join(root, included)):
        return f'"{included}" is no file of this repository: paths are from its root, others go in <>'
    if module is None:
        return None
    other = owner(included, folders)
    if other is None:
        return f"module {module} includes {included}, which belongs to no module"
    if other != module and other not in uses[module]:
        return f"module {module} may not use {other} ({included}); the graph is in tools/cmake/ms.cmake"
    if other != module and "detail" in included.split("/"):
        return f"{included} is private to module {other}"
    if path.endswith(".h") and "detail" in included.split("/") and "detail" not in path.split("/"):
        return f"public header includes {included}, which is not installed"
    return None


def room_of(path):
    """The room that a file is in, or the folder of its module's top."""
    folder = os.path.dirname(path)
    while folder and folder not in ROOMS:
        folder = os.path.dirname(folder)
    return folder


def check_room(path, included, folders):
    """Of two files of one module."""
    if owner(path, folders) != owner(included, folders):
        return None
    room, other = room_of(path), room_of(included)
    if other == room or not other:
        return None
    if room and other not in ROOMS[room]:
        return f"{room} may not use {other} ({included}); see ROOMS in tools/dev/check_layers.py"
    if "detail" in included.split("/") and os.path.dirname(included) not in ROOMS.get(room, ()):
        return f"{included} is private to {other}"
    return None


def check_external(path, included):
    for pattern, places, sources_only in EXTERNAL:
        if pattern.match(included):
            if not any(path.startswith(place + "/") for place in places):
                return f"<{included}> is included only under {', '.join(places)}"
            if sources_only and path.endswith(".h"):
                return f"<{included}> stays out of headers, so that the library can leave"
    return None


def findings(root):
    uses = allowed_uses(root)
    folders = module_folders(root)
    for folder, name in folders.items():
        if name not in uses:
            yield f"{folder}/CMakeLists.txt: module {name} is not in the graph in tools/cmake/ms.cmake"
            return
    for path in walk(root):
        if not path.endswith(SOURCES):
            continue
        module = owner(path, folders)
        free = path.split("/")[0] in USE_EVERYTHING
        if module is None and not free:
            yield f"{path}: belongs to no module (no ms_library in a folder above it)"
            continue
        text = read(os.path.join(root, path))
        if path != TARGET_PUSH and TARGET_REGION.search(text):
            yield f"{path}: begins a region for an instruction set by itself: define MS_TARGET and include {TARGET_PUSH}"
        for quoted, angled in INCLUDE.findall(text):
            if quoted:
                problem = check_quoted(root, path, None if free else module, quoted, uses, folders)
                problem = problem or (None if free else check_room(path, quoted, folders))
            else:
                problem = None if free else check_external(path, angled)
            if problem:
                yield f"{path}: {problem}"


def self_test():
    good = {
        "tools/cmake/ms.cmake": "set(MS_MAY_USE_low)\nset(MS_MAY_USE_kernels)\nset(MS_MAY_USE_high low)\n"
                                "set(MS_MAY_USE_nested low)\nset(MS_MAY_USE_profile low)\n",
        "low/CMakeLists.txt": "ms_library(low SOURCES a.cpp)",
        "kernels/CMakeLists.txt": "ms_library(kernels SOURCES gemm.cpp)",
        "high/CMakeLists.txt": "ms_library(high SOURCES b.cpp USES low)",
        "high/nested/CMakeLists.txt": "ms_library(nested SOURCES c.cpp USES low)",
        "low/a.h": "#pragma once\n#include <vector>\n",
        "low/detail/secret.h": "#pragma once\n",
        "low/a.cpp": '#include "low/a.h"\n#include "low/detail/secret.h"\n',
        "kernels/gemm.cpp": "#include <dnnl.hpp>\n#include <Eigen/Core>\n#pragma GCC unroll 4\n",
        "kernels/impl/target_push.h": '#pragma GCC push_options\n#pragma GCC target("avx2")\n',
        "high/b.h": '#include "low/a.h"\n',
        "high/nested/c.h": '#include "low/a.h"\n',
        "profile/CMakeLists.txt": "ms_library(profile SOURCES store.cpp)",
        "profile/store.h": "#pragma once\n",
        "profile/ingest/read.h": '#include "profile/store.h"\n',
        "profile/analysis/detail/part.h": "#pragma once\n",
        "profile/analysis/sum.h": '#include "profile/store.h"\n',
        "profile/report/table.h": '#include "profile/analysis/sum.h"\n#include "profile/ingest/read.h"\n',
        "tests/a_test.cpp": '#include <mpi.h>\n#include "high/b.h"\n#include "low/detail/secret.h"\n',
    }
    bad = (
        ("low/up.cpp", '#include "high/b.h"\n', "module low may not use high"),
        ("high/nested/d.cpp", '#include "high/b.h"\n', "module nested may not use high"),
        ("high/spaced.cpp", '  #  include "high/nested/c.h"\n', "module high may not use nested"),
        ("high/peek.cpp", '#include "low/detail/secret.h"\n', "private to module low"),
        ("low/leak.h", '#include "low/detail/secret.h"\n', "public header includes"),
        ("high/tests.cpp", '#include "tests/a_test.cpp"\n', "belongs to no module"),
        ("profile/ingest/peek.cpp", '#include "profile/analysis/sum.h"\n', "profile/ingest may not use profile/analysis"),
        ("profile/query/peek.cpp", '#include "profile/analysis/detail/part.h"\n', "is private to profile/analysis"),
        ("low/near.cpp", '#include "a.h"\n', "is no file of this repository"),
        ("low/mpi.cpp", "#include <mpi.h>\n", "<mpi.h> is included only under core/comm, profile/record"),
        ("low/file.cpp", "#include <hdf5.h>\n", "<hdf5.h> is included only under core/io"),
        ("low/file2.cpp", "#include <H5Zpublic.h>\n", "<H5Zpublic.h> is included only under core/io"),
        ("low/gemm.cpp", "#include <oneapi/dnnl/dnnl.hpp>\n", "is included only under kernels"),
        ("low/json.cpp", "#include <simdjson.h>\n", "is included only under profile"),
        ("kernels/gemm.h", "#include <Eigen/Core>\n", "stays out of headers"),
        ("kernels/region.cpp", '#pragma GCC push_options\n#pragma GCC target("avx2")\n', "begins a region"),
        ("kernels/region.h", "  # pragma clang attribute push(__attribute__((target(1))), apply_to = function)\n", "begins a region"),
        ("stray/x.cpp", "int x;\n", "belongs to no module"),
        ("new/CMakeLists.txt", "ms_library(new SOURCES x.cpp)", "module new is not in the graph"),
    )
    with tempfile.TemporaryDirectory() as root:
        for path, text in good.items():
            write(root, path, text)
        clean = list(findings(root))
        assert not clean, clean
        for path, text, expected in bad:
            write(root, path, text)
            seen = list(findings(root))
            os.remove(os.path.join(root, path))
            assert len(seen) == 1 and seen[0].startswith(path) and expected in seen[0], (path, expected, seen)
    print(f"each of {len(bad)} forbidden files is caught, and nothing else")


if __name__ == "__main__":
    sys.exit(run_check(findings, self_test, "every #include follows the module graph"))
