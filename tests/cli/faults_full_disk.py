#!/usr/bin/env python3
"""A full disk: everything that writes exits with code 4 and one line, leaves no partial file, and files that were on the
disk before are unchanged. Needs the right to mount a small tmpfs; skipped without it."""
import os
import re
import shutil
import subprocess
import sys

import training

SIZE_KB = 1024


def files(place):
    return sorted(os.path.relpath(os.path.join(folder, name), place.path("disk"))
                  for folder, _, names in os.walk(place.path("disk")) for name in names)


def fill(place, leave_kb):
    """Fills the disk up to leave_kb with one file, disk/ballast, which may be removed again."""
    free = os.statvfs(place.path("disk")).f_bavail * os.statvfs(place.path("disk")).f_frsize
    with open(place.path("disk/ballast"), "wb") as file:
        file.write(bytes(max(0, free - leave_kb * 1024)))


def main():
    with training.workplace() as place:
        os.mkdir(place.path("disk"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_KB}k", "tmpfs", place.path("disk")], check=False,
                                 stderr=subprocess.DEVNULL) if shutil.which("mount") else None
        if mounted is None or mounted.returncode != 0:
            print("SKIPPED: needs the right to mount a tmpfs")
            sys.exit(77)
        try:
            fill_and_write(place)
        finally:
            subprocess.run(["umount", "-l", place.path("disk")], check=False)


def fill_and_write(place):
    place.make_data()
    ran = place.run("--train-iters", "2", "--save", "disk/checkpoints", "--save-interval", "2")
    place.expect(ran.exit == 0, "a checkpoint fits", ran)
    ran = place.run("--train-iters", "2", "--save", "elsewhere")
    place.expect(ran.exit == 0, "another elsewhere", ran)
    fill(place, 24)
    before = files(place)
    train = ["--train-iters", "6", "--load", "disk/checkpoints", "--save", "disk/checkpoints", "--save-interval", "1"]
    trace = ["--train-iters", "400", "--profile", "--profile-step-start", "1", "--profile-step-end", "399", "--profile-level", "level1",
             "--profile-with-cpu", "--profile-save-path", "disk"]
    with open(place.path("large.txt"), "w", encoding="utf-8") as file:
        file.write("many words " * 50000)
    cases = [
        ("an asynchronous save", lambda: place.run(*train)),
        ("a synchronous save", lambda: place.run(*train, "--no-async-save")),
        ("a save on two ranks", lambda: place.run(*train, ranks=2)),
        ("reshard", lambda: place.tool("msckpt", "reshard", "--load-dir", "elsewhere", "--save-dir", "disk/resharded",
                                       "--target-tensor-parallel-size", "2")),
        ("convert", lambda: place.tool("msckpt", "convert", "--load-dir", "elsewhere", "--save-dir", "disk/hf", "--drop-optimizer")),
        ("convert to Megatron", lambda: place.tool("msckpt", "convert", "--load-dir", "elsewhere", "--save-dir", "disk/mg",
                                                   "--save-model-type", "mg")),
        ("preprocess", lambda: place.tool("msdata", "preprocess", "large.txt", "--output-prefix", "disk/out")),
        ("metrics", lambda: place.run("--train-iters", "1000", "--metrics-path", "disk/metrics.jsonl")),
        ("trace", lambda: place.run(*trace)),
        ("activations of two ranks", lambda: place.run("--train-iters", "4", "--pipeline-model-parallel-size", "2", "--swap-attention",
                                                       "--swap-dir", "disk/", "--swap-min-tensor-kib", "0", ranks=2)),
        ("the state of two ranks", lambda: place.run("--train-iters", "4", "--bf16", "--use-distributed-optimizer", "--swap-optimizer",
                                                     "--swap-dir", "disk/", ranks=2)),
    ]
    for what, run in cases:
        ran = run()
        errors = [line for line in ran.stderr.splitlines() if line.startswith("E ")]
        place.expect(ran.exit == 4, f"{what}: exit code 4", ran)
        place.expect(len(errors) == 1 and re.search("No space left|are free", errors[0]) and "disk/" in errors[0], f"{what}: one line says where", ran)
        # Metrics and traces grow by complete lines and chunks: they are not partial files.
        left = [name for name in files(place) if name not in before and not name.endswith((".jsonl", ".mstrace", ".lock"))]
        place.expect(not left, f"{what}: leaves partial files: {left}", ran)
        for name in set(files(place)) - set(before):
            os.remove(place.path("disk", name))
        verified = place.tool("msckpt", "verify", "disk/checkpoints")
        place.expect(verified.exit == 0 and "iter_0000002" in verified.stdout, f"{what}: the old checkpoint is intact", verified)
    os.remove(place.path("disk/ballast"))
    fill(place, 136)  # enough to start, not to save
    for how in ([], ["--no-async-save"]):
        ran = place.run(*train, "--ckpt-on-error", "continue", *how)
        place.expect(ran.exit == 0 and "the run goes on" in ran.stderr and "iteration 6/6" in ran.stderr.replace(" ", "").replace(
            "iteration", "iteration "), f"--ckpt-on-error continue {how}: the run succeeds", ran)
        verified = place.tool("msckpt", "verify", "disk/checkpoints")
        place.expect(verified.exit == 0 and "iter_0000002" in verified.stdout, "and the old checkpoint is intact", verified)
    os.remove(place.path("disk/ballast"))
    ran = place.run("--train-iters", "3", "--load", "disk/checkpoints", "--exit-on-missing-checkpoint")
    place.expect(ran.exit == 0 and "loaded iteration 2 " in ran.stderr, "and loads", ran)


if __name__ == "__main__":
    sys.exit(main())
