#!/usr/bin/env python3
"""mstrain --save-tensors on two layouts, and msckpt diff --tensors: rounding, a planted difference, and bad command lines."""
import json
import os
import re
import signal
import sys

import training

SAVE = ["--train-iters", "1", "--save-tensors", "1", "--save-tensors-dir"]
TWO = ["--tensor-model-parallel-size", "2", "--sequence-parallel"]


def disk_goes_away(place):
    """--ckpt-on-error continue: a folder that is gone for a while costs the recordings of that time."""
    written, lost = ": what modules computed is in ", "; the run goes on (--ckpt-on-error continue)"
    folder, kept = place.path("away"), place.path("kept")
    job = place.start("--train-iters", "1000000", "--save-tensors-dir", "away", "--save-activations-interval", "50", "--ckpt-on-error", "continue",
                      wrap=training.NOTE_PID)
    job.wait_for_line(written)
    os.rename(folder, kept)
    with open(folder, "w", encoding="utf-8") as file:
        file.write("no folder")
    job.wait_for_line(lost)
    os.remove(folder)
    os.rename(kept, folder)
    before = job.said().count(written)
    training.wait_for(lambda: job.said().count(written) > before or job.process.poll() is not None, "a recording after it")
    os.kill(job.pid(0), signal.SIGTERM)
    ran = job.end()
    place.expect(ran.exit == 128 + signal.SIGTERM and not ran.errors and ran.stderr.count(written) > before, "the run goes on, and records again", ran)
    place.expect("--save-tensors-dir: " in ran.stderr.split(lost)[0].splitlines()[-1], "what is lost is said with the flag", ran)
    checked = place.tool("msckpt", "verify", "away")
    place.expect(checked.exit == 0, "what is there is whole", checked)


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
            place.expect(ran.exit == 0 and re.fullmatch(r"closest: \S+ at 0\.\d+ of what is allowed \(relative L2 .*\n", ran.stdout) and
                         "none differs by more" in ran.stderr, f"{more}: rounding", ran)
        ran = place.tool("msckpt", *diff, "one", "one", "--tolerance", "0")
        place.expect(ran.exit == 0 and ran.stdout == "identical to the bit\n", "a run and itself", ran)
        for name in "nan", "nan_too":  # 1e30 of each weight in the first update
            ran = place.run("--train-iters", "2", "--save-tensors", "2", "--save-tensors-dir", name, "--lr", "1e30",
                            "--no-check-for-nan-in-loss-and-grad")
            place.expect(ran.exit == 0, f"{name}: the run succeeds", ran)
        ran = place.tool("msckpt", *diff, "nan", "nan_too")
        place.expect(ran.exit == 10 and "identical to the bit\n" not in ran.stdout and
                     re.search(r"^\S+: \d+ NaN in both: not comparable$", ran.stdout, re.M), "two runs full of NaN", ran)
        ran = place.tool("msckpt", *diff, "one", "other", "--noise", "two")
        place.expect(ran.exit == 2 and "is not one of --save-tensors-perturbation" in ran.stderr, "any third run", ran)
        ran = place.tool("msckpt", "diff", "--resume", "one", "two")
        place.expect(ran.exit == 2 and "--resume: one is no checkpoint" in ran.stderr, "--resume of recordings", ran)
        ran = place.tool("msckpt", *diff, "one", "two", "--iteration", "2")
        place.expect(ran.exit == 2 and "--iteration 2: not in all of them: one has iteration 1; two has iteration 1" in ran.stderr,
                     "an iteration that was not recorded", ran)
        ran = place.tool("msckpt", *diff, "one", "other", "--noise", "noise")
        first = "decoder.layers.0.self_attention.core_attention:output"
        place.expect(ran.exit == 10 and ran.stdout.startswith(f"the first in the order of execution: {first}: relative L2 "),
                     "the planted difference is named", ran)
        place.expect(ran.stdout.count(first + ":") == 1, "and once", ran)
        place.expect("the configurations differ: model.rotary_base 10000.0 and 500.0\n" in ran.stderr, "and its flag", ran)
        place.expect("not measured" not in ran.stderr, "with noise limits are measured", ran)
        ran = place.tool("msckpt", *diff, "one", "other", "--json")
        report = json.loads(ran.stdout)
        before = [row["beyond"] for row in report["tensors"][:2]]
        place.expect(report["first"] == first and before == [False, False], "the same as JSON", ran)
        place.expect("a default of the dtype, not measured" in ran.stderr, "without noise they are defaults", ran)
        ran = place.tool("msckpt", "verify", "two")
        place.expect(ran.exit == 0, "the folder verifies as a checkpoint", ran)
        ran = place.tool("msckpt", "diff", "one", "two", "--noise", "noise")
        place.expect(ran.exit == 2 and "--tensors" in ran.stderr, "--noise needs --tensors", ran)
        ran = place.tool("msckpt", *diff, "one", "two", "--rename", "x")
        place.expect(ran.exit == 2 and "--rename x: expected FROM=TO" in ran.stderr, "--rename wants both", ran)
        ran = place.tool("msckpt", *diff, "--rename", "nosuch=x", "one", "two")
        place.expect(ran.exit == 0 and "--rename nosuch=x: changes no name of the second" in ran.stderr, "an idle --rename", ran)
        ran = place.tool("msckpt", *diff, "--rename", "^embedding=emb", "one", "two")
        place.expect(ran.exit == 10 and "embedding:output: only in the first\n" in ran.stdout and
                     "tensors of both differ by no more than rounding explains; 6 only in one of both" in ran.stderr,
                     "names that differ", ran)
        ran = place.run(*SAVE, "one")
        place.expect(ran.exit == 0 and "one: it holds recordings already, up to iteration 1" in ran.stderr and
                     "iteration 1: what modules computed is in one/iter_0000001.r1" in ran.stderr and
                     "saved iteration" not in ran.stderr, "a second recording", ran)
        for blocks in 8, 40, 100:  # of 512 or 1024 bytes: in the data, in the closing of the file
            for flags in ["--save", f"limited{blocks}"], [*SAVE[2:], f"limited_tensors{blocks}"]:
                ran = place.run("--train-iters", "1", *flags, wrap=f'ulimit -f {blocks}; exec "$@"')
                place.expect(ran.exit == 4 and len(ran.errors) == 1, f"{flags}: a full disk is one error", ran)
        place.expect("--save-tensors-dir: " in ran.stderr, "which names the flag", ran)
        disk_goes_away(place)
        ran = place.run(*SAVE, "one", "--save", "one")
        place.expect(ran.exit == 2 and "--save-tensors-dir and --save are one folder" in ran.stderr, "one folder for both", ran)
        ran = place.run("--train-iters", "1", "--save-tensors", "1", "--save-tensors-dir", "d", "--save-tensors-filter", "(")
        place.expect(ran.exit == 2 and '--save-tensors-filter: "("' in ran.stderr, "an invalid expression", ran)


if __name__ == "__main__":
    sys.exit(main())
