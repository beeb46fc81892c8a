#!/usr/bin/env python3
"""Which experts MindSpeed's own expert_placement_greedy puts together, as tests/data/train/expert_packing.json
(tests/core/layout/expert_packing_test.cpp).

  expert_placement.py            # compares the stored file with the MindSpeed at hand
  expert_placement.py --write    # writes it

MS_MINDSPEED: a copy of MindSpeed's sources (exit 77 without).
"""
import ast
import copy
import itertools
import json
import os
import pathlib
import random
import sys

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "train" / "expert_packing.json"
PLANNER = "mindspeed/core/transformer/moe/expert_placement/planner.py"
SIZES = [(4, 2), (8, 2), (8, 4), (12, 3), (16, 16), (64, 8), (256, 32)]  # experts, ranks


def greedy_of(folder):
    """The class is all that is run of the file, whose imports need a device."""
    tree = ast.parse((pathlib.Path(folder) / PLANNER).read_text())
    kept = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ExpertDynamicplacement"]
    names = {"copy": copy, "itertools": itertools}
    exec(compile(ast.Module(kept, []), PLANNER, "exec"), names)  # noqa: S102
    return names["ExpertDynamicplacement"].expert_placement_greedy


def cases():
    draw = random.Random(7)
    for experts, ranks in SIZES:
        yield ranks, [draw.randrange(1000) for _ in range(experts)]
        yield ranks, [draw.randrange(4) for _ in range(experts)]  # many are equal
        yield ranks, [int(1000 / (expert + 1)) for expert in range(experts)]  # a few are hot
    yield 2, [0] * 8
    yield 4, [9, 9] + [0] * 6


def main():
    if "MS_MINDSPEED" not in os.environ:
        print("SKIPPED: set MS_MINDSPEED to a copy of MindSpeed")
        sys.exit(77)
    greedy = greedy_of(os.environ["MS_MINDSPEED"])
    made = []
    for ranks, load in cases():
        _, of_ranks = greedy(dict(enumerate(load)), list(range(ranks)))
        made.append({"ranks": ranks, "load": load, "together": sorted(sorted(group) for group in of_ranks.values())})
    if "--write" in sys.argv[1:]:
        GOLDEN.write_text("[\n" + ",\n".join(json.dumps(case) for case in made) + "\n]\n")
        return
    wrong = made != json.loads(GOLDEN.read_text())
    print(f"{GOLDEN.name}: {len(made)} cases, {'another result than' if wrong else 'as'} MindSpeed's")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
