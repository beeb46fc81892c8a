#!/usr/bin/env python3
"""mstrain --save-tensors on two layouts, and msckpt diff --tensors: rounding, a planted difference, and bad command lines."""
import json
import sys

import training

SAVE = ["--train-iters", "1", "--save-tensors", "1", "--save-tensors-dir"]
TWO = ["--tensor-model-parallel-size", "2", "--sequence-parallel"]


def main():
    with training.workplace() as place:
        place.make_data()
        for name, flags, ranks in [("one", [], 1), ("noise", ["--save-tensors-perturbation", "1e-7"], 1), ("two", TWO, 2),
                                   ("other", [*TWO, "--rotary-base", "500"], 2)]:
            ran = place.run(*SAVE, name, *flags, ranks=ranks)
            place.expect(ran.exit == 0, f"{name}: the run succeeds", ran)
        diff = ["diff", "--tensors"]
        for more in [], ["--noise", "noise"]:
            ran = place.tool("msckpt", *diff, "one", "two", *more)
            place.expect(ran.exit == 0 and ran.stdout == "" and "none differs by more" in ran.stderr, f"{more}: rounding", ran)
        ran = place.tool("msckpt", *diff, "one", "other", "--noise", "noise")
        first = "decoder.layers.0.self_attention.core_attention:output"
        place.expect(ran.exit == 10 and ran.stdout.startswith(f"the first in the order of execution: {first}: relative L2 "),
                     "the planted difference is named", ran)
        ran = place.tool("msckpt", *diff, "one", "other", "--json")
        report = json.loads(ran.stdout)
        before = [row["beyond"] for row in report["tensors"][:2]]
        place.expect(report["first"] == first and before == [False, False], "the same as JSON", ran)
        ran = place.tool("msckpt", "verify", "two")
        place.expect(ran.exit == 0, "the folder verifies as a checkpoint", ran)
        ran = place.tool("msckpt", "diff", "one", "two", "--noise", "noise")
        place.expect(ran.exit == 2 and "--tensors" in ran.stderr, "--noise needs --tensors", ran)
        ran = place.tool("msckpt", *diff, "one", "two", "--rename", "x")
        place.expect(ran.exit == 2 and "--rename x: expected FROM=TO" in ran.stderr, "--rename wants both", ran)
        for blocks in 8, 40, 100:  # of 512 or 1024 bytes: in the data, in the closing of the file
            for flags in ["--save", f"limited{blocks}"], [*SAVE[2:], f"limited_tensors{blocks}"]:
                ran = place.run("--train-iters", "1", *flags, wrap=f'ulimit -f {blocks}; exec "$@"')
                place.expect(ran.exit == 4 and len(ran.errors) == 1, f"{flags}: a full disk is one error", ran)
        ran = place.run(*SAVE, "one", "--save", "one")
        place.expect(ran.exit == 2 and "--save-tensors-dir and --save are one folder" in ran.stderr, "one folder for both", ran)
        ran = place.run("--train-iters", "1", "--save-tensors", "1", "--save-tensors-dir", "d", "--save-tensors-filter", "(")
        place.expect(ran.exit == 2 and '--save-tensors-filter: "("' in ran.stderr, "an invalid expression", ran)


if __name__ == "__main__":
    sys.exit(main())
