#!/usr/bin/env python3
"""Compares msprof with its peers on real traces: speed and memory, with all programs timed in turn in the same run.

  bench/profile/traces.py [--rounds 5] [--ranks 64] [--rank-mb 100] [TRACE...]

TRACE: Chrome JSON, gzipped; default: the five largest of MS_TRACE_DATA/hta. Times are CPU seconds on one core unless noted, because
other programs may share the machine; medians over rounds. Ratios, with the required value:

  columns   JSON in memory to the columns of the store: speed / speed of simdjson's on-demand pass that counts events (>= 0.5)
  two       the same with two threads: wall time of one thread / wall time of two (goal: 1.8; measurable only on an idle machine, or
            with real-time priority: chrt -f 10), and CPU time of both / CPU time of one
  zcat      .json.gz from disk to all default analyses: CPU time / CPU time of `zcat FILE > /dev/null` (<= 1.0)
  wall      the same in wall time, on all cores (two or more); its median over the traces comes last (<= 0.5)
  hta       load and breakdown of Holistic Trace Analysis (MS_PEERS_PYTHON), without its imports / all of msprof (>= 30);
            the median of three
  memory    peak memory of that analysis: bytes per additional event, compared with a trace of one in fifty of the events (<= 64 B, names
            included), and memory above that of an empty trace / bytes of text (<= 0.35)
  ranks     N ranks of M MB each, grown from the largest trace with collectives: all default analyses: speed / (cores x speed of one rank
            alone) (>= 0.9); and the same for as many concurrent processes with one rank each, the reference for cores that share
            execution units
"""
import argparse
import functools
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../peers")]
import google_benchmark  # noqa: E402
import peers  # noqa: E402

msprof = functools.partial(peers.binary, "msprof")
CORES = len(os.sched_getaffinity(0))


class Run:
    """Runs one program; returns CPU and wall seconds."""

    def __init__(self, *command, cores=None):
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores or own)  # the child inherits it
        began = time.monotonic()
        # posix_spawn: the cost of forking this interpreter would count as the program's.
        child = os.posix_spawnp(command[0], command, os.environ,
                                file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0), (os.POSIX_SPAWN_DUP2, 1, 2)])
        os.sched_setaffinity(0, own)
        _, status, usage = os.wait4(child, 0)
        self.wall_s = time.monotonic() - began
        if status != 0:
            sys.exit(f"{' '.join(command)}: status {status}")
        self.cpu_s = usage.ru_utime + usage.ru_stime


def side_by_side(commands):
    """Runs the programs concurrently, each on its own core; returns the wall seconds until all have ended."""
    began = time.monotonic()
    running = [subprocess.Popen(["taskset", "-c", str(core), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for core, command in enumerate(commands)]
    if any([process.wait() != 0 for process in running]):
        sys.exit("side by side: one has failed")
    return time.monotonic() - began


def peak_bytes(*command):
    """Peak memory, measured by `time`: a child of a large process inherits its peak."""
    with tempfile.NamedTemporaryFile("r") as said:
        subprocess.run(["/usr/bin/time", "-f", "%M", "-o", said.name, *command], check=True, capture_output=True)
        return int(said.read()) * 1024


def peak_of_analysis(trace):
    """The median of five."""
    return statistics.median(peak_bytes(msprof(), "analyze", trace, "--json", "--threads", "1") for _ in range(5))


def events_of(trace):
    info = json.loads(subprocess.run([msprof(), "info", trace, "--json"], check=True, capture_output=True, text=True).stdout)
    return info["import"]["files"][0]["events"]


def thinned(trace, folder):
    """A trace with one in fifty of the events, which runs the same code."""
    with gzip.open(trace) as file:
        document = json.load(file)
    events = document["traceEvents"]
    document["traceEvents"] = [event for i, event in enumerate(events) if event.get("ph") == "M" or i % 50 == 0]
    path = os.path.join(folder, "thinned.json.gz")
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(document, file)
    return path


def median(runs, what):
    return statistics.median(getattr(run, what) for run in runs)


def columns(traces, rounds):
    """By trace: CPU seconds of simdjson (None: not available) and msprof, and wall and CPU seconds of two threads / those of one."""
    rows = google_benchmark.iterations(peers.benchmark("bench.profile.ingest"), *traces, f"--benchmark_repetitions={rounds}",
                                       "--benchmark_enable_random_interleaving=true", "--benchmark_min_time=0.05")

    def of(case, trace, what):
        name = os.path.join(os.path.basename(os.path.dirname(trace)), os.path.basename(trace))
        values = [row[what] / 1e9 for row in rows if row["name"].startswith(case.replace("FILE", name))]
        return statistics.median(values) if values else None

    def by_one(trace, what):
        return of("columns/msprof/threads:2/FILE", trace, what) / of("columns/msprof/FILE", trace, what)

    return {t: (of("count/simdjson/FILE", t, "cpu_time"), of("columns/msprof/FILE", t, "cpu_time"),
                1 / by_one(t, "real_time"), by_one(t, "cpu_time")) for t in traces}


HTA = """
import sys, time, logging, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
logging.disable(logging.CRITICAL)
began = time.process_time()
TraceAnalysis(trace_files={0: sys.argv[1]}).get_temporal_breakdown(visualize=False)
print(time.process_time() - began)
"""


def hta_seconds(trace):
    python = os.environ.get("MS_PEERS_PYTHON")
    if not python:
        return None
    ran = subprocess.run([python, "-c", HTA, trace], capture_output=True, text=True)
    return float(ran.stdout.split()[-1]) if ran.returncode == 0 else None


def grow(trace, folder, ranks, rank_bytes):
    """Writes files of `ranks` ranks that repeat the events of `trace` one after the other in time; returns the text of one."""
    text = gzip.open(trace, "rt", errors="surrogateescape").read()
    start = text.index("[", text.index('"traceEvents"'))
    parsed, end = json.JSONDecoder().raw_decode(text, start)
    events = text[start + 1:end - 1].strip().rstrip(",")
    times = [e["ts"] for e in parsed if e.get("ph") == "X"]
    width = max(times) - min(times) + 1e6
    stamp = re.compile(r'"ts": ?(\d+)')
    copies = max(1, round(rank_bytes / len(events)))
    body = b'{"traceEvents": [' + b",".join(
        stamp.sub(lambda m, by=int(i * width): f'"ts": {int(m[1]) + by}', events).encode(errors="surrogateescape")
        for i in range(copies))
    packed = gzip.compress(body, 6)
    for rank in range(ranks):
        tail = f'], "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {ranks}}}}}'
        with open(os.path.join(folder, f"rank-{rank}.json.gz"), "wb") as file:
            file.write(packed + gzip.compress(tail.encode()))  # two members are one stream
    return len(body), copies * len(parsed)


def many_ranks(trace, ranks, rank_bytes):
    with tempfile.TemporaryDirectory() as folder:
        raw, events = grow(trace, folder, ranks, rank_bytes)
        one = [Run(msprof(), "analyze", os.path.join(folder, f"rank-{r}.json.gz"), "--threads", "1", "--json") for r in range(5)]
        info = subprocess.run([msprof(), "info", os.path.join(folder, "rank-0.json.gz"), "--json"], check=True, capture_output=True)
        if json.loads(info.stdout)["import"]["files"][0]["events"] != events:
            sys.exit(f"a grown rank should hold {events} events")
        alone = [(msprof(), "analyze", os.path.join(folder, f"rank-{core}.json.gz"), "--threads", "1", "--json") for core in range(CORES)]
        beside = statistics.median(side_by_side(alone) for _ in range(5))
        whole = (msprof(), "analyze", folder, "--json", "--threads", str(CORES))
        every, peak = Run(*whole), peak_bytes(*whole)
        share = ranks * median(one, "wall_s") / (CORES * every.wall_s)
        cores = median(one, "wall_s") / beside
        print(f"\n{ranks} ranks x {raw / 1e6:.0f} MB: {every.wall_s:.1f} s wall, {every.cpu_s:.1f} s CPU, "
              f"{ranks * raw / every.wall_s / 1e9:.2f} GB/s; one rank alone {median(one, 'wall_s'):.2f} s; "
              f"speed by {CORES} cores x one {share:.2f} (by CPU seconds {ranks * median(one, 'cpu_s') / every.cpu_s:.2f}); "
              f"{CORES} processes side by side {cores:.2f}, share of that {share / cores:.2f}; peak {peak / 2**30:.2f} GiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rank-mb", type=float, default=100)
    parser.add_argument("traces", nargs="*")
    given = parser.parse_args()
    folder = os.path.join(os.environ.get("MS_TRACE_DATA", "../shared/traces"), "hta")
    traces = given.traces
    if not traces:
        found = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".json.gz")]
        traces = sorted(found, key=os.path.getsize, reverse=True)[:5]
    if not traces:
        sys.exit(f"{folder}: no traces; set MS_TRACE_DATA or name some")

    msprof()  # a missing one ends the script here, not after the first measurement
    timed = columns(traces, given.rounds)
    with tempfile.TemporaryDirectory() as folder:
        empty = os.path.join(folder, "empty.json")
        with open(empty, "w", encoding="ascii") as file:
            file.write('{"traceEvents": []}')
        own = peak_of_analysis(empty)
    print(f"{'trace':32} {'MB':>6} {'events':>7} {'columns':>8} {'GB/s':>5} {'two':>5} {'CPU':>5} {'zcat':>5} {'wall':>5} {'hta':>5} {'B/event':>8} {'of text':>8}")
    walls = []
    for trace in traces:
        zcat, ours, loads, parallel = [], [], [], []
        for _ in range(given.rounds):
            zcat.append(Run("zcat", trace, cores={0}))
            parallel.append(Run(msprof(), "analyze", trace, "--json"))
            ours.append(Run(msprof(), "analyze", trace, "--json", "--threads", "1", cores={0}))
            loads.append(Run(msprof(), "breakdown", trace, "--threads", "1", cores={0}))
        with gzip.open(trace) as file:
            raw = sum(len(block) for block in iter(lambda: file.read(1 << 20), b""))
        events = events_of(trace)
        simdjson, one, two, two_cpu = timed[trace]
        hta = [hta_seconds(trace) for _ in range(3)]
        hta = None if None in hta else statistics.median(hta)
        peak = peak_of_analysis(trace)
        with tempfile.TemporaryDirectory() as folder:
            few = thinned(trace, folder)
            an_event = (peak - peak_of_analysis(few)) / (events - events_of(few))

        def show(value, digits=2):
            return "-" if value is None else f"{value:.{digits}f}"

        name = os.path.join(os.path.basename(os.path.dirname(trace)), os.path.basename(trace))
        walls.append(median(parallel, "wall_s") / median(zcat, "wall_s"))
        print(f"{name:32} {raw / 1e6:6.1f} {events:7} {show(simdjson and simdjson / one):>8} {raw / one / 1e9:5.2f} {two:5.2f} {two_cpu:5.2f} "
              f"{median(ours, 'cpu_s') / median(zcat, 'cpu_s'):5.2f} {walls[-1]:5.2f} "
              f"{show(hta and hta / median(loads, 'cpu_s'), 0):>5} {an_event:8.1f} {(peak - own) / raw:8.3f}", flush=True)
    print(f"all default analyses on {CORES} cores: {statistics.median(walls):.2f} of zcat's time in the median of {len(walls)} traces")
    if given.ranks > 0:
        with_comm = [t for t in traces if b"Collective name" in gzip.open(t).read()]
        many_ranks((with_comm or traces)[0], given.ranks, given.rank_mb * 1e6)


main()
