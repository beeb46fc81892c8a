#!/usr/bin/env python3
"""What-if answers compared with real runs: an MPI program is recorded with a slow rank, then without. The saving that
`critical-path` predicts for the first run must equal the measured one within 5 percentage points.

  what_if_runs_test.py SLOW_RANK_PROGRAM

The program computes and waits by sleeping, much longer than a wake-up takes on a busy machine. The shortest of five runs of
each kind counts, because other load only makes runs longer.
"""
import json
import os
import subprocess
import sys
import tempfile

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")
PROGRAM = sys.argv[1]
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n"]
ROUNDS, WORK_US, SLOW_US, RUNS = 8, 50000, 150000, 5
TOLERANCE = 5.0  # percentage points
FAILED = []


def expect(what, condition, seen=""):
    if not condition:
        FAILED.append(what)
        print(f"FAILED {what}: {seen}")


def recorded_path(kind, ranks, slow, slow_us, folder):
    """The critical path of a recorded run."""
    ran = subprocess.run([MSPROF, "record", "-o", folder, "--json", "--", *MPIRUN, str(ranks), PROGRAM, kind, str(ROUNDS), str(WORK_US),
                          str(slow), str(slow_us)], capture_output=True, text=True, check=False)
    expect(f"{kind}: recorded", ran.returncode == 0, ran.stderr)
    path = subprocess.run([MSPROF, "critical-path", folder, "--json"], capture_output=True, text=True, check=False)
    expect(f"{kind}: critical path", path.returncode == 0, path.stderr)
    return json.loads(path.stdout)["result"]


def check(kind, ranks, slow, root):
    change = f"rank {slow} computes like the median rank"
    slow_runs = [recorded_path(kind, ranks, slow, SLOW_US, os.path.join(root, f"{kind}_slow_{run}")) for run in range(RUNS)]
    even_runs = [recorded_path(kind, ranks, slow, WORK_US, os.path.join(root, f"{kind}_even_{run}")) for run in range(RUNS)]
    slow_run, even_run = (min(runs, key=lambda path: path["runtime_us"]) for runs in (slow_runs, even_runs))
    answers = {answer["change"]: answer["faster_pct"] for answer in slow_run["job_path_what_if"]}
    if change not in answers:
        expect(f"{kind}: answers '{change}'", False, answers)
        return
    promised, saved = answers[change], 100 * (1 - even_run["runtime_us"] / slow_run["runtime_us"])
    print(f"{kind}: promised {promised:.2f} %, saved {saved:.2f} %, apart {promised - saved:+.2f} points")
    expect(f"{kind}: within {TOLERANCE} points", abs(promised - saved) <= TOLERANCE)
    expect(f"{kind}: the slow rank is worth something", saved > 30)  # so the promise is not met by chance


with tempfile.TemporaryDirectory() as top:
    check("allreduce", 4, 2, top)
    check("pingpong", 2, 1, top)
    check("halo", 4, 2, top)
sys.exit(1 if FAILED else 0)
