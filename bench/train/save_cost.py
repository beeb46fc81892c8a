#!/usr/bin/env python3
"""What saving costs a training run: whole wall time of the same steps with a save every few of them and without, in turn.

  MS_BIN=build/bin bench/train/save_cost.py [--rounds 5] [--steps 60] [--interval 10] [--ranks 2] [-- MSTRAIN FLAGS]

Prints the ratio of the medians, the state's bytes, their rate over the interval beside a raw write of as many bytes in
the same folder, and the blocking part of a save. Flags behind -- go to the saving runs (--ckpt-lazy-snapshot, ..).
"""
import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/cli"))
import training  # noqa: E402

MODEL = ("--num-layers 4 --hidden-size 256 --num-attention-heads 8 --swiglu --normalization RMSNorm "
         "--position-embedding-type rope --disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --seq-length 256 "
         "--micro-batch-size 4 --global-batch-size 16 --bf16 --lr 1e-3 --lr-decay-style constant --eval-iters 0 "
         "--peak-tflops 0.1 --log-interval 1 --threads-per-rank 1").split()
FIRST = 5  # steps before are warm-up


def seconds_of_day(text):
    hours, minutes, seconds = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def steps_seconds(said, last):
    """From the end of step FIRST to the end of step `last`, saves between them included."""
    at = {int(i): seconds_of_day(t) for t, i in re.findall(r"^I ([\d:.]+) \S+ train.step\] iteration +(\d+)/", said, re.M)}
    return (at[last] - at[FIRST]) % 86400


def raw_write_rate(folder, size):
    """Bytes per second of one buffered write and fsync: below what the saver may reach."""
    block = os.urandom(1 << 20) * 8
    path = os.path.join(folder, "raw")
    began = time.monotonic()
    with open(path, "wb") as file:
        for _ in range(max(1, size // len(block))):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    rate = max(1, size // len(block)) * len(block) / (time.monotonic() - began)
    os.unlink(path)
    return rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--interval", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--folder", default=None, help="where to save: which disk is measured")
    parser.add_argument("flags", nargs="*")
    given = parser.parse_args()
    folder = tempfile.mkdtemp(dir=given.folder)
    os.environ["MS_BIN"] = os.path.abspath(os.environ["MS_BIN"])
    place = training.Place(folder, "save_cost")
    place.make_data(200000)
    last = FIRST + given.steps
    common = ["--train-iters", str(last), "--use-distributed-optimizer"]
    plain, saving, blocking, state = [], [], [], 0
    try:
        for _ in range(given.rounds):
            for wall, flags in ((plain, []), (saving, ["--save", "root", "--save-interval", str(given.interval), *given.flags])):
                ran = place.run(*common, *flags, ranks=given.ranks, model=MODEL, limit_s=900)
                if ran.exit != 0:
                    sys.exit(str(ran))
                wall.append(steps_seconds(ran.stderr, last))
                blocking += [float(ms) for ms in re.findall(r"snapshot: \d+ MB in ([\d.]+) ms", ran.stderr)]
                if flags:
                    newest = sorted(os.listdir(place.path("root")))[-2:]
                    newest = [n for n in newest if n.startswith("iter_")][-1]
                    files = place.path("root", newest)
                    state = sum(os.path.getsize(os.path.join(files, n)) for n in os.listdir(files))
                    shutil.rmtree(place.path("root"))
        interval_s = statistics.median(plain) / given.steps * given.interval
        rate = raw_write_rate(folder, state)
        print(json.dumps({"ratio": round(statistics.median(saving) / statistics.median(plain), 4),
                          "plain_s": [round(s, 3) for s in plain], "saving_s": [round(s, 3) for s in saving],
                          "state_bytes": state, "interval_s": round(interval_s, 3),
                          "state_per_interval_over_disk": round(state / interval_s / rate, 4),
                          "raw_write_GB_per_s": round(rate / 1e9, 2),
                          "blocking_ms_rank0": round(statistics.median(blocking), 2)}, indent=2))
    finally:
        shutil.rmtree(folder)


main()
