#!/usr/bin/env python3
"""What-if answers against real runs: an MPI program with a slow rank is recorded, then recorded again without the slow rank.
The saving that `critical-path` promises for the first run is the one that the second shows, within 5 percentage points.

  what_if_runs_test.py SLOW_RANK_PROGRAM

The program computes and waits by sleeping, so other load changes little; the median of three pairs of runs counts.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")
PROGRAM = sys.argv[1]
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n"]
ROUNDS, WORK_US, SLOW_US, PAIRS = 20, 10000, 30000, 3
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
    promised, saved = [], []
    for pair in range(PAIRS):
        slow_run = recorded_path(kind, ranks, slow, SLOW_US, os.path.join(root, f"{kind}_slow_{pair}"))
        even_run = recorded_path(kind, ranks, slow, WORK_US, os.path.join(root, f"{kind}_even_{pair}"))
        answers = {answer["change"]: answer for answer in slow_run["job_path_what_if"]}
        if change not in answers:
            expect(f"{kind}: answers '{change}'", False, list(answers))
            return
        promised.append(answers[change]["faster_pct"])
        saved.append(100 * (1 - even_run["runtime_us"] / slow_run["runtime_us"]))
    difference = statistics.median(p - s for p, s in zip(promised, saved))
    print(f"{kind}: promised {statistics.median(promised):.2f} %, saved {statistics.median(saved):.2f} %, apart {difference:+.2f} points")
    expect(f"{kind}: within {TOLERANCE} points", abs(difference) <= TOLERANCE, (promised, saved))
    # The planted change is worth much, so the promise is not met by chance.
    expect(f"{kind}: the slow rank matters", statistics.median(saved) > 30, saved)


with tempfile.TemporaryDirectory() as top:
    check("allreduce", 4, 2, top)
    check("pingpong", 2, 1, top)
    check("halo", 4, 2, top)
sys.exit(1 if FAILED else 0)
