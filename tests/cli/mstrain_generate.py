#!/usr/bin/env python3
"""--generate as a user's first command: with the checkpoint's own shape, with an empty prompt, without a checkpoint."""
import sys

import training


def main():
    with training.workplace(needs_mpirun=False) as place:
        place.make_data()
        ran = place.run("--train-iters", "2", "--save", "saved")
        place.expect(ran.exit == 0, "a model to continue from", ran)
        ran = place.tool("mstrain", "--load", "saved", "--use-checkpoint-args", "--generate", "The ", "--num-tokens-to-generate", "3",
                         "--threads-per-rank", "1")
        place.expect(ran.exit == 0 and ran.stdout.startswith("The ") and "W " not in ran.stderr,
                     "a checkpoint's positions are enough", ran)

        for flags in (["--generate", ""], ["--generate", "", "--load", "saved", "--use-checkpoint-args"]):
            ran = place.tool("mstrain", *flags)
            place.expect(ran.exit == 2 and len(ran.stderr.splitlines()) == 1 and "--generate is empty" in ran.stderr,
                         f"{flags} is refused by its name", ran)

        ran = place.run("--generate", "hi", "--num-tokens-to-generate", "3", data=None)
        warnings = [line for line in ran.stderr.splitlines() if line.startswith("W ")]
        place.expect("train.roofline" not in ran.stderr, "no roofline is measured where no step is timed", ran)
        place.expect(ran.exit == 0 and ran.stdout.startswith("hi") and len(warnings) == 1 and "--load" in warnings[0],
                     "random weights are warned of", ran)


if __name__ == "__main__":
    sys.exit(main())
