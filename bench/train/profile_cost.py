#!/usr/bin/env python3
"""What recording costs a training run, at each level: spans per step x cost of a span, and paired blocks of steps with and
without it.

  bench/train/profile_cost.py [--steps 120] [--block 5] [--ranks 1]

The cost of a span is the minimum over many repetitions of the span benchmark, compared with two reads of the clock. The pairs
are blocks of one run in which SIGUSR2 turns recording on and off alternately, so that a machine that slows down does so for
both. It records at least --steps steps of each kind, and prints the mean of the paired differences, in percent of the steps
without recording, and its 95 % interval.
"""
import argparse
import json
import math
import os
import re
import signal
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../peers"), os.path.join(HERE, "../../tests/cli")]
import google_benchmark  # noqa: E402
import peers  # noqa: E402
import training  # noqa: E402

MODEL = ("--num-layers 6 --hidden-size 288 --num-attention-heads 6 --swiglu --normalization RMSNorm "
         "--position-embedding-type rope --disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --seq-length 256 "
         "--micro-batch-size 1 --global-batch-size 2 --bf16 --lr 1e-3 --lr-decay-style constant --eval-iters 0 "
         "--peak-tflops 0.1 --log-interval 1 --threads-per-rank 1").split()
LIMITS = {"level0": 0.5, "level1": 2.0, "level2": 5.0}  # percent of step time
READS = 1.25  # cost of a span, in multiples of two reads of the clock
OFF_NS = 2.0
FIRST = 5  # steps before are warm-up
LONG = 40  # steps in one trace


def span_costs(program):
    """ns by case: the minimum of all repetitions, because any disturbance only adds."""
    costs = {}
    for row in google_benchmark.iterations(program, "--benchmark_repetitions=20"):
        name = row["run_name"].split("/iterations")[0]
        costs[name] = min(row["ns"], costs.get(name, math.inf))
    return costs


def record_in_turn(place, level, args):
    """Seconds of each step, by iteration, and the iterations of each trace."""
    metrics = f"{level}.jsonl"
    job = place.start("--train-iters", "1000000", "--profile-level", level, "--profile-ranks", "-1", "--profile-save-path", level,
                      "--metrics-path", metrics, ranks=args.ranks, model=MODEL)
    job.wait_for_line(f"iteration {FIRST}/", 600)

    def done():
        return len(training.read(place.path(metrics)).splitlines())

    for _ in range(2 * math.ceil(args.steps / args.block) + 1):
        start = done()
        training.wait_for(lambda: done() >= start + args.block + 1, f"{args.block} steps", 600)
        os.kill(job.process.pid, signal.SIGUSR2)
    time.sleep(1)
    os.kill(job.process.pid, signal.SIGTERM)
    ran = job.end()
    rows = [json.loads(line) for line in training.read(place.path(metrics)).splitlines()]
    seconds = {row["iteration"]: row["elapsed time per iteration (ms)"] * 1e-3 for row in rows}
    windows = [(int(first) + 1, int(end)) for first, end in re.findall(r"trace of iterations (\d+) to (\d+) in", ran.stderr)]
    return seconds, windows


def bytes_an_event(place, level):
    """For one trace of LONG steps, so that what each trace stores besides events does not matter."""
    folder = level + "-long"
    ran = place.run("--train-iters", str(FIRST + LONG), "--profile", "--profile-step-start", str(FIRST), "--profile-step-end",
                    str(FIRST + LONG), "--profile-level", level, "--profile-save-path", folder, model=MODEL, limit_s=600)
    if ran.exit != 0:
        sys.exit(str(ran))
    info = json.loads(place.tool("msprof", "info", folder, "--json").stdout)
    return os.path.getsize(place.path(folder, "rank_00000.mstrace")) / info["result"]["ranks"][0]["facts"]["events"]


def interval(values):
    mean = statistics.fmean(values)
    half = 2.0 * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--block", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=1)
    args = parser.parse_args()
    program = peers.benchmark("bench.core.trace.span")
    for name in ("mstrain", "msdata", "msprof"):
        os.environ["MS_BIN"] = os.path.dirname(peers.binary(name))  # where training.py looks
    sys.argv = [sys.argv[0]]
    with training.workplace() as place:
        costs = span_costs(program)
        reads = costs["clock/two_reads"]
        print(f"two clock reads {reads:.1f} ns, two time stamps {costs['clock/two_time_stamps']:.1f} ns")
        place.expect(costs["span/off"] <= OFF_NS, f"a span costs {costs['span/off']:.2f} ns when nothing records, wanted {OFF_NS}")
        print(f"off {costs['span/off']:.2f} ns (wanted <= {OFF_NS})")
        place.make_data()
        for level, limit in LIMITS.items():
            cost = costs[f"span/{level}"]
            seconds, windows = record_in_turn(place, level, args)
            recorded = {i for first, end in windows for i in range(first, end + 1)}
            events = steps = 0
            for folder in os.listdir(place.path(level)):
                info = json.loads(place.tool("msprof", "info", os.path.join(level, folder), "--json").stdout)
                facts = info["result"]["ranks"][0]["facts"]
                events, steps = events + facts["events"], steps + len(facts["steps"])
            pairs = []  # a window and the block before it; medians, so that one interruption affects one step only
            for (first, end), before in zip(windows, [(FIRST, 0)] + windows):
                off = [seconds[i] for i in range(before[1] + 1, first) if i in seconds and i >= FIRST]
                on = [seconds[i] for i in range(first, end + 1) if i in seconds]
                if off and on:
                    pairs.append(100 * (statistics.median(on) / statistics.median(off) - 1))
            step_s = statistics.median(s for i, s in seconds.items() if i not in recorded and i >= FIRST)
            share = 100 * events / steps * cost * 1e-9 / step_s
            mean, low, high = interval(pairs)
            size = bytes_an_event(place, level)
            print(f"{level}: a span {cost:.1f} ns = {cost / reads:.2f} x two reads (wanted {READS}); {events / steps:.0f} events a step of "
                  f"{step_s * 1e3:.1f} ms: {share:.3f} % (wanted {limit}); {size:.2f} bytes an event; paired over {len(recorded)} steps in "
                  f"{len(pairs)} pairs: {mean:+.2f} % [{low:+.2f}, {high:+.2f}]", flush=True)
            place.expect(cost <= READS * reads, f"{level}: a span costs {cost:.1f} ns")
            place.expect(share <= limit, f"{level}: {share:.3f} % of a step")
            place.expect(low <= limit, f"{level}: the paired interval lies above {limit} %")
            place.expect(size <= 4, f"{level}: {size:.2f} bytes an event")


if __name__ == "__main__":
    sys.exit(main())
