#!/usr/bin/env python3
"""Holistic Trace Analysis reads the output of mstrain --profile-format json and msprof convert; its temporal breakdown and overlap equal
msprof breakdown --compat hta, its idle times and queue lengths msprof analyze --compat hta (needs MS_PEERS_PYTHON; else skipped).

  hta_test.py MAKE_TRACE

Two traces: one with known times in whole microseconds, where HTA's rounding (ts up, end down) changes nothing and the exact
breakdown is equal, too; and a training run, where rounding matters.
"""
import functools
import gzip
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../bench/peers"), os.path.join(HERE, "../cli")]
import peers  # noqa: E402

peers.need("hta.trace_analysis")
import training  # noqa: E402
import pandas  # noqa: E402
from hta.common.trace import Trace  # noqa: E402
from hta.trace_analysis import TraceAnalysis  # noqa: E402

# HTA sorts events by start, unstably: where rounding makes starts equal and durations negative, its sums depend on the CPU.
pandas.DataFrame.sort_values = functools.partialmethod(pandas.DataFrame.sort_values, kind="stable")
# HTA forks its readers from a process with threads (of pandas): a child may wait forever for a lock held at the fork.
Trace.load_traces = functools.partialmethod(Trace.load_traces, use_multiprocessing=False)

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")
COLUMNS = ["idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)"]


def msprof(*arguments):
    ran = subprocess.run([MSPROF, *arguments], check=True, capture_output=True)
    return json.loads(ran.stdout)["result"] if "--json" in arguments else ran.stdout


def theirs(folder, keep_last=True):
    """{rank: (the four times, percent overlap)}"""
    analyzer = TraceAnalysis(trace_dir=folder, include_last_profiler_step=keep_last)
    times = analyzer.get_temporal_breakdown(visualize=False).set_index("rank")
    overlap = analyzer.get_comm_comp_overlap(visualize=False).set_index("rank")
    return {int(rank): ([float(times.loc[rank, c]) for c in COLUMNS], float(overlap.loc[rank, "comp_comm_overlap_pctg"]))
            for rank in times.index}


def compatible(folder, last="keep"):
    told = msprof("breakdown", folder, "--compat", "hta", "--last-step", last, "--json")
    overlap = {row["rank"]: row["comp_comm_overlap_pct"] for row in told["comm_comp_overlap"]}
    return {row["rank"]: ([row[c.replace("(us)", "_us")] for c in COLUMNS], overlap[row["rank"]]) for row in told["temporal_breakdown"]}


def their_streams(folder, keep_last=True):
    """{(rank, stream, kind or statistic): value}"""
    analyzer = TraceAnalysis(trace_dir=folder, include_last_profiler_step=keep_last)
    idle = analyzer.get_idle_time_breakdown(ranks=[0, 1], visualize=False)[0]
    out = {(int(r["rank"]), int(r["stream"]), r["idle_category"]): float(r["idle_time"]) for _, r in idle.iterrows()}
    queues = analyzer.get_queue_length_summary(ranks=[0, 1])
    for (rank, stream), row in (queues["queue_length"].iterrows() if queues is not None else ()):
        out.update({(int(rank), int(stream), word): float(value) for word, value in row.items()})
    return out


def our_streams(folder, last="keep"):
    told = msprof("analyze", folder, "--compat", "hta", "--last-step", last, "--json")["hta"]
    out = {(r["rank"], r["stream"], r["idle_category"]): r["idle_time"] for r in told["idle_time_breakdown"]}
    for row in told["queue_length_summary"]:
        out.update({(row["rank"], row["stream"], word): value for word, value in row.items() if word not in ("rank", "stream")})
    return out


def same_streams(place, what, hta, ours):
    place.expect(set(hta) == set(ours) and hta, f"{what}: {sorted(set(hta) ^ set(ours))}")
    for key in hta:
        place.expect(abs(hta[key] - ours[key]) <= 1e-5, f"{what}: {key}: HTA {hta[key]}, msprof {ours[key]}")


def exact(folder):
    out = {}
    for rank in msprof("breakdown", folder, "--json")["ranks"]:
        b = rank["breakdown"]
        # HTA's "non compute" is busy time without computing.
        out[rank["rank"]] = ([b["idle_us"], b["computing_us"], b["exposed_communication_us"] + b["exposed_memory_us"], b["span_us"]],
                             b["overlap_pct"])
    return out


def same(place, what, hta, ours):
    place.expect(set(hta) == set(ours) and len(hta) == 2, f"{what}: ranks {set(hta)} and {set(ours)}")
    for rank in hta:
        for column, a, b in zip(COLUMNS, hta[rank][0], ours[rank][0]):
            place.expect(abs(a - float(b)) <= 1e-6, f"{what}: rank {rank} {column}: HTA {a}, msprof {b}")
        place.expect(abs(hta[rank][1] - float(ours[rank][1])) <= 0.01, f"{what}: rank {rank} overlap: {hta[rank][1]}, msprof {ours[rank][1]}")


def main():
    with training.workplace() as place:
        made, converted = place.path("made"), place.path("converted")
        subprocess.run([sys.argv[1], made], check=True, capture_output=True)
        msprof("convert", made, "-o", converted + "/", "--format", "json.gz")
        hta = theirs(converted)
        same(place, "known times", hta, exact(made))
        same(place, "known times, --compat", hta, compatible(converted))
        same(place, "known times, --compat, native", hta, compatible(made))

        same_streams(place, "known times", their_streams(converted), our_streams(converted))
        same_streams(place, "known times, last step dropped", their_streams(converted, False), our_streams(converted, "drop"))

        place.make_data()
        for level, flags in (("level0", []), ("level1", ["--profile-with-cpu"])):
            ran = place.run("--train-iters", "5", "--tensor-model-parallel-size", "2", "--profile", "--profile-step-start", "2",
                            "--profile-step-end", "5", "--profile-ranks", "-1", "--profile-level", level, "--profile-save-path", level,
                            "--profile-format", "json.gz", *flags, ranks=2)
            place.expect(ran.exit == 0, f"{level} records", ran)
            folder = place.path(level)
            native = place.path(level + "_native")
            os.mkdir(native)
            for name in os.listdir(folder):
                if name.endswith(".mstrace"):
                    os.rename(os.path.join(folder, name), os.path.join(native, name))
                else:
                    with gzip.open(os.path.join(folder, name)) as file:
                        place.expect(len(json.load(file)["traceEvents"]) > 100, f"Python's json reads {name}")
            hta = theirs(folder)
            same(place, level, hta, compatible(folder))
            same(place, level + ", native", hta, compatible(native))
            same_streams(place, level, their_streams(folder), our_streams(folder))
            same(place, level + ", without the last step", theirs(folder, False), compatible(native, "drop"))


if __name__ == "__main__":
    sys.exit(main())
