#!/usr/bin/env python3
"""Hours of training on more ranks than cores, with frequent saves and a reshard between runs: every loss is finite, memory does
not grow, and no file is left behind.

MS_SOAK_MINUTES: duration (120). Each run continues from the previous checkpoint, resharded or not, on another layout.
"""
import json
import math
import os
import re
import shutil
import sys
import time

import training

# Flags of a layout and the msckpt arguments that make its checkpoint; four ranks each.
LAYOUTS = [
    (["--tensor-model-parallel-size", "2", "--sequence-parallel", "--use-distributed-optimizer"], ["2", "1"]),
    (["--pipeline-model-parallel-size", "2", "--use-distributed-optimizer"], ["1", "2"]),
    (["--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"], ["2", "2"]),
    (["--use-distributed-optimizer", "--no-async-save"], ["1", "1"]),
]
RANKS = 4
GROWTH_MB = 8  # growth of a rank's resident memory from the second quarter of a run to its end; pages of libraries arrive late


def minutes():
    return float(os.environ.get("MS_SOAK_MINUTES", "120"))


def resident_mb(pid):
    fields = training.read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6 if len(fields) > 1 else None


def generations(folder):
    return sorted(name for name in os.listdir(folder) if re.fullmatch(r"iter_\d+(\.r\d+)?", name))


def forget_old(folder, keep=3):
    for name in generations(folder)[:-keep]:
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def watch(place, job, root, seconds):
    """Lets the job run and samples the memory of its ranks; stops it at a step boundary."""
    pids = [job.pid(rank) for rank in range(RANKS)]
    samples = [[] for _ in pids]
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.process.poll() is None:
        for rank, pid in enumerate(pids):
            value = resident_mb(pid)
            if value:
                samples[rank].append(value)
        forget_old(place.path(root))
        time.sleep(0.5)
    for pid in pids:
        if job.process.poll() is None:
            os.kill(pid, 15)
    return samples


def growth(samples):
    """From the median of the second quarter of the time to the median of the last quarter."""
    quarter = len(samples) // 4
    middle = lambda values: sorted(values)[len(values) // 2]
    return middle(samples[3 * quarter:]) - middle(samples[quarter:2 * quarter]) if quarter > 0 else 0


def check_losses(place, metrics, what):
    losses = []
    for line in training.read(place.path(metrics)).splitlines():
        row = json.loads(line)
        losses.append((row["iteration"], row["lm loss"], row["grad norm"]))
    finite = all(math.isfinite(float(loss)) and math.isfinite(float(norm)) for _, loss, norm in losses)
    place.expect(losses and finite, f"{what}: every loss and norm is a number")
    steps = [i for i, _, _ in losses]
    place.expect(steps == list(range(min(steps, default=0), max(steps, default=-1) + 1)), f"{what}: no step is missing")
    return losses


def main():
    with training.workplace() as place:
        place.make_data()
        began, limit_s = time.monotonic(), minutes() * 60
        run_s = min(120, max(20, limit_s / 8))
        root, steps, run, worst, reached = "root0", 0, 0, 0, 0
        while time.monotonic() - began < limit_s:
            flags, _ = LAYOUTS[run % len(LAYOUTS)]
            metrics, what = f"metrics{run}.jsonl", f"run {run}"
            job = place.start("--train-iters", "500000", "--data-cache-path", "cache", "--log-interval", "1000", "--load", root,
                              "--save", root, "--save-interval", "2", "--global-batch-size", "4", "--metrics-path", metrics, *flags, ranks=RANKS,
                              wrap=training.NOTE_CODE, mpirun=training.RECOVER)
            job.wait_for_line("saved iteration")
            samples = watch(place, job, root, run_s)
            ran = job.end()
            place.expect(all(code == 128 + 15 for code in ran.codes) and not ran.errors, f"{what}: every rank ends by the signal", ran)
            if run > 0:
                place.expect(f"loaded iteration {reached} " in ran.stderr, f"{what}: goes on from iteration {reached}", ran)
            for rank, values in enumerate(samples):
                worst = max(worst, growth(values))
                place.expect(growth(values) < GROWTH_MB, f"{what}: rank {rank} grew by {growth(values):.1f} MB", ran)
            steps += len(check_losses(place, metrics, what))
            os.remove(place.path(metrics))
            left = [name for name in os.listdir(place.path(root)) if ".tmp-" in name]
            place.expect(not left, f"{what}: no stale file, but {left}", ran)
            verified = place.tool("msckpt", "verify", root)
            place.expect(verified.exit == 0, f"{what}: its newest checkpoint is whole", verified)
            reached = int(re.search(r"iter_(\d+)", verified.stdout).group(1))
            run += 1
            _, (tp, pp) = LAYOUTS[run % len(LAYOUTS)]
            if run % 2 == 1:
                made = place.tool("msckpt", "reshard", "--load-dir", root, "--save-dir", f"root{run}",
                                  "--target-tensor-parallel-size", tp, "--target-pipeline-parallel-size", pp)
                place.expect(made.exit == 0, f"{what}: reshards", made)
                shutil.rmtree(place.path(root))
                root = f"root{run}"
        print(f"{(time.monotonic() - began) / 60:.1f} minutes, {run} runs, {steps} steps, memory grew by at most {worst:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
