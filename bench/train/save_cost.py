#!/usr/bin/env python3
"""What saving costs a training run: wall time of the same steps with a save every few steps, without saves, and beside
processes that only write as many bytes as often, in turn.

  bench/train/save_cost.py [--rounds 5] [--steps 60] [--interval 10] [--ranks 2] [--size small|large]
      [--folder DIR] [-- MSTRAIN FLAGS]

Prints the ratio of the medians and, per save:
  - its cost compared with the time of copying and hashing the state (hashing twice, for chunks and for tensors; the time in
    which the saver does all three in one pass is printed too), and with what writing the bytes costs the training if other
    processes do it, which copy and hash nothing: if all cores compute, no saver can cost less;
  - its blocking part compared with a memcpy, and how long it waited for the save before;
  - the share of the disk's time that saves use, including removal of old ones, which a file system mounted with discard makes
    as slow as writing.
within_a_run: the cost from the steps around each save, so that a machine whose speed changes from minute to minute does not
distort it: the median and its 95 % interval. The reference rates are measured in the same run by as many processes as there
are ranks (bench.ckpt.ceiling). Flags after -- are passed to the saving runs (--ckpt-lazy-snapshot, ..).

  --size small: 3 M parameters, so that saves use little of the disk. large: 75 M and short steps; with --interval 1 or
  2 saves use much of it.
"""
import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../peers"), os.path.join(HERE, "../../tests/cli")]
import peers  # noqa: E402
import training  # noqa: E402

COMMON = ("--num-attention-heads 8 --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
          "--hidden-dropout 0 --attention-dropout 0 --bf16 --lr 1e-3 --lr-decay-style constant --eval-iters 0 "
          "--peak-tflops 0.1 --log-interval 1 --threads-per-rank 1").split()
SIZES = {
    "small": "--num-layers 4 --hidden-size 256 --seq-length 256 --micro-batch-size 4 --global-batch-size 16".split(),
    "large": "--num-layers 6 --hidden-size 1024 --seq-length 32 --micro-batch-size 1 --global-batch-size 2".split(),
}
FIRST = 5  # steps before are warm-up


def seconds_of_day(text):
    hours, minutes, seconds = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def steps_seconds(said, last):
    """From the end of step FIRST to the end of step `last`, including saves between them."""
    at = {int(i): seconds_of_day(t) for t, i in re.findall(r"^I ([\d:.]+) \S+ train.step\] iteration +(\d+)/", said, re.M)}
    return (at[last] - at[FIRST]) % 86400


def costs_within(said, last, interval):
    """Seconds that each save costs, from the steps around it: the steps from the save until its commit, with what is between
    them, minus as many of the steps from there to the next save (a machine that slows down does so for both)."""
    at = {int(i): seconds_of_day(t) for t, i in re.findall(r"^I ([\d:.]+) \S+ train.step\] iteration +(\d+)/", said, re.M)}
    committed = {int(i): seconds_of_day(t) for t, i in re.findall(r"^I ([\d:.]+) \S+ ckpt.commit\] saved iteration (\d+) ", said, re.M)}
    costs = []
    for save in range(FIRST + 1, last - interval + 1):
        if save % interval != 0 or save not in committed:
            continue
        touched = next((n for n in range(1, interval) if at[save + n] >= committed[save]), None)
        if touched is None:
            continue  # the save lasts until the next one: nothing to compare with
        steps = [at[step] - at[step - 1] for step in range(save + touched + 1, save + interval + 1)]
        if save > FIRST + interval:  # the steps before it, back to where the previous save was long finished
            steps += [at[step] - at[step - 1] for step in range(save - interval + touched + 1, save + 1)]
        costs.append(at[save + touched] - at[save] - touched * statistics.median(steps))
    return costs


def ceilings(program, folder, size, processes):
    """Seconds of the slowest of so many processes, each with its share of the bytes, at the rates of shares larger than caches."""
    share = size // processes
    measured = max(share, 256 << 20)
    command = [program, folder, str(measured)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    said = [json.loads(process.communicate()[0]) for process in running]
    return {key: max(one[key] for one in said) * share / measured for key in ("copy_s", "hash_s", "one_pass_s", "write_s", "remove_s")}


def spread(prefix, costs, interval_s, copy_and_hash_s):
    """The median and its 95 % interval, by order statistics."""
    if len(costs) < 6:
        return {}
    costs, half = sorted(costs), math.sqrt(len(costs))
    low, high = max(0, int(len(costs) / 2 - half)), min(len(costs) - 1, math.ceil(len(costs) / 2 + half))
    cost = statistics.median(costs)
    return {prefix + "saves": len(costs), prefix + "cost_s": [round(each, 4) for each in (costs[low], cost, costs[high])],
            prefix + "ratio": round(1 + cost / interval_s, 4), prefix + "cost_over_copy_and_hash": round(cost / copy_and_hash_s, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--interval", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--keep", type=int, default=2, help="checkpoints; 0: all of them, and the disk removes none")
    parser.add_argument("--folder", default=None, help="where to save: which disk is measured")
    parser.add_argument("flags", nargs="*")
    given = parser.parse_args()
    ceiling_bench = peers.benchmark("bench.ckpt.ceiling")
    for name in ("mstrain", "msdata"):
        os.environ["MS_BIN"] = os.path.dirname(peers.binary(name))  # where training.py looks
    folder = tempfile.mkdtemp(dir=given.folder)
    place = training.Place(folder, "save_cost")
    place.make_data(200000)
    last = FIRST + given.steps
    common = [*SIZES[given.size], "--train-iters", str(last), "--use-distributed-optimizer"]
    plain, saving, beside, within, blocking, waited, state = [], [], [], [], [], [], 0
    saves = len([step for step in range(FIRST + 1, last + 1) if step % given.interval == 0])

    def run(*flags):
        ran = place.run(*common, *flags, ranks=given.ranks, model=COMMON, limit_s=1800)
        if ran.exit != 0:
            sys.exit(str(ran))
        return ran, steps_seconds(ran.stderr, last)

    try:
        for _ in range(given.rounds):
            plain.append(run()[1])
            keep = ["--save-keep-last", str(given.keep)] if given.keep > 0 else []
            ran, wall = run("--save", "root", "--save-interval", str(given.interval), *keep, *given.flags)
            saving.append(wall)
            within += costs_within(ran.stderr, last, given.interval)
            blocking += [float(ms) / 1e3 for ms in re.findall(r"snapshot: \d+ MB in ([\d.e+-]+) ms", ran.stderr)]
            waited += [float(ms) / 1e3 for ms in re.findall(r"having waited ([\d.e+-]+) ms", ran.stderr)]
            newest = [name for name in sorted(os.listdir(place.path("root"))) if name.startswith("iter_")][-1]
            files = place.path("root", newest)
            state = sum(os.path.getsize(os.path.join(files, name)) for name in os.listdir(files))
            shutil.rmtree(place.path("root"))
            interval_s = statistics.median(plain) / given.steps * given.interval
            writers = [subprocess.Popen([ceiling_bench, place.path(f"beside{rank}"), str(state // given.ranks),
                                         str(interval_s)]) for rank in range(given.ranks)]
            try:
                beside.append(run()[1])
            finally:
                for writer in writers:
                    writer.kill()
                    writer.wait()
        ceiling = ceilings(ceiling_bench, folder, state, given.ranks)
        interval_s = statistics.median(plain) / given.steps * given.interval
        cost = statistics.median(with_ - without for with_, without in zip(saving, plain)) / saves
        writing = statistics.median((with_ - without) * interval_s / with_ for with_, without in zip(beside, plain))
        copy_and_hash = ceiling["copy_s"] + ceiling["hash_s"]
        print(json.dumps({"ratio": round(statistics.median(saving) / statistics.median(plain), 4),
                          "plain_s": [round(s, 3) for s in plain], "saving_s": [round(s, 3) for s in saving],
                          "beside_writers_s": [round(s, 3) for s in beside],
                          "state_bytes": state, "interval_s": round(interval_s, 3),
                          "state_per_interval_over_disk": round(
                              (ceiling["write_s"] + (ceiling["remove_s"] if given.keep > 0 else 0)) / interval_s, 4),
                          "cost_of_a_save_s": round(cost, 4),
                          "copy_and_hash_s": round(copy_and_hash, 4),
                          "cost_over_copy_and_hash": round(cost / copy_and_hash, 3),
                          "one_pass_s": round(ceiling["one_pass_s"], 4),
                          **spread("within_a_run_", within, interval_s, copy_and_hash),
                          "cost_of_writing_alone_s": round(writing, 4),
                          "cost_over_copy_hash_and_writing": round(cost / (copy_and_hash + max(writing, 0)), 3),
                          "blocking_s": round(statistics.median(blocking), 5),
                          "memcpy_s": round(ceiling["copy_s"], 5),
                          "blocking_limit_s": round(ceiling["copy_s"] / 0.7 + 0.002, 5),
                          "saves_that_waited": len(waited), "longest_wait_s": max(waited, default=0)}, indent=2))
    finally:
        shutil.rmtree(folder)


main()
