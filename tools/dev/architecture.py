#!/usr/bin/env python3
"""Draws architecture.svg: the programs, the modules, and who may use whom (ctest `docs.architecture`).

Modules and edges come from the table in tools/cmake/ms.cmake, programs from tools/CMakeLists.txt. An edge that follows from
others is left out. Each box stands as low as its users allow. The column and the caption of a box are in BOXES; a module or a
program that is missing there is an error.

  architecture.py               exit 1 if architecture.svg is not what the tables give
  architecture.py --write       writes it
  architecture.py --self-test   proves that another table gives another picture, and that a missing box is an error
"""
import os
import re
import sys
import tempfile
from html import escape

from check_layers import allowed_uses
from source_tree import read, write

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
PICTURE = "architecture.svg"

# Name: column (None: a box as wide as the picture), and the two lines under the name.
BOXES = {
    "msckpt": (0, "inspect, verify, diff,", "reshard, convert"),
    "mstrain": (1, "train, evaluate,", "generate"),
    "msdata": (2, "text to indexed", "data sets"),
    "msprof": (3, "analyse, check and", "convert traces"),
    "convert": (0, "Hugging Face, Megatron,", "DCP, DeepSpeed, GGUF"),
    "train": (1, "model, schedules, optimizer,", "one step, one run"),
    "profile": (3, "read traces, analyse,", "report"),
    "ckpt": (0, "plan, execute, prove;", "our checkpoints"),
    "ops": (1, "train/ops: operators on tensors,", "forward and backward"),
    "data": (2, "train/data: tokenizers,", "data sets, sampling"),
    "layout": (0, "core/layout: cuts, groups,", "schedules, formulas"),
    "core": (None, "errors, log, config, tensors, arena; comm/ (MPI), io/ (files, HDF5), trace/ (recording)", ""),
    "kernels": (None, "numbers, no tensors; compiled once per instruction set, chosen at start", ""),
}

WIDTH, HEIGHT, COLUMN_GAP, ROW_GAP, MARGIN = 206, 66, 30, 52, 24
COLUMNS = 4

STYLE = """
  .paper { fill: #ffffff; }
  .box { fill: #f3f6fa; stroke: #57606a; }
  .program { fill: #ddf4ff; stroke: #0969da; }
  .edge { fill: none; stroke: #57606a; stroke-width: 1.4; }
  .head { fill: #57606a; }
  text { font: 12px system-ui, sans-serif; fill: #424a53; text-anchor: middle; }
  .name { font-size: 15px; font-weight: 600; fill: #1f2328; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117; }
    .box { fill: #161b22; stroke: #8b949e; }
    .program { fill: #0c2d4a; stroke: #58a6ff; }
    .edge { stroke: #8b949e; }
    .head { fill: #8b949e; }
    text { fill: #c3cad1; }
    .name { fill: #f0f6fc; }
  }
"""


def programs(root):
    """{program: set of modules that it uses}, from the ms_tool() calls."""
    text = re.sub(r"#.*", "", read(os.path.join(root, "tools/CMakeLists.txt")))
    found = re.findall(r"ms_tool\((\w+)\b[^)]*?\bUSES\s+([^)]*)\)", text)
    return {name: set(re.split(r"\b[A-Z]+\b", uses)[0].split()) for name, uses in found}


def reduced(uses):
    """The graph without the edges that follow from others."""
    def reach(name):
        return set().union(*({other} | reach(other) for other in uses[name]))

    return {name: sorted(other for other in others if not any(other in reach(third) for third in others))
            for name, others in uses.items()}


def rows_of(uses, top):
    """{name: row}: programs in row 0, every module just below the lowest box that uses it."""
    rows = {name: 0 for name in top}

    def row(name):
        if name not in rows:
            rows[name] = 1 + max((row(user) for user in uses if name in uses[user]), default=-1)
        return rows[name]

    return {name: row(name) for name in uses}


def place(uses, top):
    """{name: (x, y, width)} of the boxes."""
    unknown = sorted(set(uses) - set(BOXES))
    if unknown:
        raise SystemExit(f"tools/dev/architecture.py: BOXES has no column and caption for {', '.join(unknown)}")
    places = {}
    for name, row in rows_of(uses, top).items():
        column = BOXES[name][0]
        width = COLUMNS * WIDTH + (COLUMNS - 1) * COLUMN_GAP if column is None else WIDTH
        spot = (MARGIN + (column or 0) * (WIDTH + COLUMN_GAP), MARGIN + row * (HEIGHT + ROW_GAP), width)
        if spot in places.values():
            raise SystemExit(f"tools/dev/architecture.py: two boxes in column {column} of row {row}: {name} needs another")
        places[name] = spot
    return places


def ports(edges, places):
    """{edge: (x1, y1, x2, y2)}: the ends of a box's edges share its width, in the order of their other ends."""
    def middle(name):
        return places[name][0] + places[name][2] / 2

    def spread(name, others):
        others = sorted(others, key=middle)
        return {other: places[name][0] + places[name][2] * (i + 1) / (len(others) + 1) for i, other in enumerate(others)}

    lines = {}
    for user, used in edges:
        x1 = spread(user, [b for a, b in edges if a == user])[used]
        x2 = x1 if BOXES[used][0] is None else spread(used, [a for a, b in edges if b == used])[user]
        if BOXES[user][0] is None:
            x1 = x2
        lines[user, used] = (x1, places[user][1] + HEIGHT, x2, places[used][1])
    return lines


def svg(root):
    top = programs(root)
    uses = {**allowed_uses(root), **top}
    places = place(uses, top)
    edges = [(user, used) for user, others in reduced(uses).items() for used in others]
    width = max(x + w for x, _, w in places.values()) + MARGIN
    height = max(y for _, y, _ in places.values()) + HEIGHT + MARGIN
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
             "<!-- Made by tools/dev/architecture.py from tools/cmake/ms.cmake. -->",
             "<title>Programs and modules of msuite; an arrow leads from a user to what it uses</title>",
             f"<style>{STYLE}</style>",
             '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
             '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker>',
             f'<rect class="paper" width="{width}" height="{height}"/>']
    for (user, used), (x1, y1, x2, y2) in ports(edges, places).items():
        lines.append(f'<path class="edge" marker-end="url(#head)" d="M{x1:.0f} {y1} C{x1:.0f} {y1 + 30} {x2:.0f} {y2 - 30} '
                     f'{x2:.0f} {y2}"><title>{user} uses {used}</title></path>')
    for name, (x, y, w) in places.items():
        kind = "program" if name in top else "box"
        lines.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{HEIGHT}" rx="6"/>')
        first, second = BOXES[name][1:]
        lines.append(f'<text class="name" x="{x + w / 2:.0f}" y="{y + 22}">{escape(name)}</text>')
        lines += [f'<text x="{x + w / 2:.0f}" y="{y + 40 + 15 * i}">{escape(text)}</text>'
                  for i, text in enumerate((first, second)) if text]
    return "\n".join(lines + ["</svg>"]) + "\n"


def self_test():
    with tempfile.TemporaryDirectory() as root:
        tool = "ms_tool(msdata SOURCES msdata.cpp USES data core COMPONENT x)\n"
        table = "set(MS_MAY_USE_kernels)\nset(MS_MAY_USE_core kernels)\nset(MS_MAY_USE_data core kernels)  # a note\n"
        write(root, "tools/CMakeLists.txt", tool)
        write(root, "tools/cmake/ms.cmake", table)
        first = svg(root)
        uses = {**allowed_uses(root), **programs(root)}
        assert reduced(uses) == {"kernels": [], "core": ["kernels"], "data": ["core"], "msdata": ["data"]}, uses
        assert rows_of(uses, programs(root)) == {"kernels": 3, "core": 2, "data": 1, "msdata": 0}, uses
        write(root, "tools/cmake/ms.cmake", table + "set(MS_MAY_USE_ops kernels)\n")
        assert "ops uses kernels" in svg(root) and svg(root) != first
        write(root, "tools/cmake/ms.cmake", table + "set(MS_MAY_USE_novel core)\n")
        try:
            svg(root)
        except SystemExit as error:
            assert "novel" in str(error), error
        else:
            raise AssertionError("a module without a box was drawn")
    print("another table gives another picture, and a module without a box is an error")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    wanted = svg(ROOT)
    path = os.path.join(ROOT, PICTURE)
    if sys.argv[1:] == ["--write"]:
        write(ROOT, PICTURE, wanted)
    elif not os.path.exists(path) or read(path) != wanted:
        print(f"{PICTURE} is not what tools/cmake/ms.cmake gives: run tools/dev/architecture.py --write")
        return 1
    print(f"{PICTURE} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
