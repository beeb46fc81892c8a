#!/usr/bin/env python3
"""Prints the change between two result files of Google Benchmark, with its noise.

  build/bench/norm_bench --benchmark_repetitions=9 --benchmark_out=before.json
  bench_compare.py before.json after.json [--metric cpu_time|real_time|...] [--fail-above PERCENT]

One line per case: the medians, the change of the median, and the noise, which is the larger interquartile range of the two,
halved and relative to its median. A change within the noise is marked `~`. With --fail-above, a slow-down beyond PERCENT
and beyond the noise makes the exit status 1. `noise ?` means that there was only one repetition.
"""
import argparse
import json
import statistics
import sys


def repetitions(path, metric):
    """{case: its values of the metric}, in file order, without the aggregates that Google Benchmark computed."""
    with open(path, encoding="utf-8") as file:
        cases = {}
        for run in json.load(file)["benchmarks"]:
            if run.get("run_type", "iteration") == "iteration" and not run.get("error_occurred") and metric in run:
                cases.setdefault(run.get("run_name", run["name"]), []).append(float(run[metric]))
        return cases


def noise(values):
    """Half the interquartile range over the median; None for a single repetition."""
    if len(values) < 2:
        return None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 2 / statistics.median(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--metric", default="cpu_time", help="a time (less is better); default cpu_time")
    parser.add_argument("--fail-above", type=float, metavar="PERCENT")
    options = parser.parse_args()
    before, after = repetitions(options.before, options.metric), repetitions(options.after, options.metric)
    shared = [case for case in before if case in after]
    if not shared:
        sys.exit(f"no case with {options.metric} is in both files")

    failed = False
    width = max(len(case) for case in shared)
    print(f"{'case':{width}} {'before':>12} {'after':>12} {'change':>9} {'noise':>7}")
    for case in shared:
        old, new = statistics.median(before[case]), statistics.median(after[case])
        change = new / old - 1
        known = [n for n in (noise(before[case]), noise(after[case])) if n is not None]
        within = bool(known) and abs(change) <= max(known)
        failed |= options.fail_above is not None and change * 100 > options.fail_above and not within
        shown = f"{max(known):7.1%}" if known else "      ?"
        print(f"{case:{width}} {old:12.4g} {new:12.4g} {change:+9.1%} {shown}{' ~' if within else ''}")
    for case in before.keys() ^ after.keys():
        print(f"{case:{width}} only {'before' if case in before else 'after'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
