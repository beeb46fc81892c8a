#!/usr/bin/env python3
"""SIGKILL at random moments while a trace is recorded: msprof reads what was written and reports the loss.

  faults_killed_trace.py RECORD_LOOP
"""
import json
import os
import signal
import subprocess
import sys
import time

import training

LOOP_KILLS, JOB_KILLS = 17, 3
# Maximum loss at the end: a chunk is written every second, later on a busy machine.
LOST_S = 1 + 1.5 * training.SLOWER


def check(place, folder, killed_ns, ranks, what):
    """killed_ns: time of the kill by CLOCK_MONOTONIC, the clock of our traces."""
    info = place.tool("msprof", "info", folder, "--json")
    if not place.expect(info.exit == 0, f"{what}: msprof reads it", info):
        return 0
    told = json.loads(info.stdout)
    files, read = told["import"]["files"], told["result"]["ranks"]
    place.expect(told["import"]["data_loss"] and told["import"]["counts"] == {"truncated": ranks}, f"{what}: says what is lost", info)
    place.expect(len(files) == ranks and all(file["truncated"] for file in files), f"{what}: every file is cut", info)
    for rank in read:
        end_ns = rank["facts"]["last_end_ns"]
        place.expect(killed_ns - end_ns < LOST_S * 1e9, f"{what}: {(killed_ns - end_ns) / 1e9:.2f} s lost at the end", info)
    return sum(rank["facts"]["events"] for rank in read)


def has_events(place, folder, ranks):
    """True once the first chunk of every rank is complete: before that nothing can be lost."""
    names = [name for name in os.listdir(place.path(folder)) if name.endswith(".mstrace")] if os.path.isdir(place.path(folder)) else []
    if len(names) < ranks or any(os.path.getsize(place.path(folder, name)) <= 1000 for name in names):
        return False
    read = json.loads(place.tool("msprof", "info", folder, "--json").stdout)["result"]["ranks"]
    return all(rank["facts"]["events"] > 0 for rank in read)


def main():
    with training.workplace() as place:
        events = 0
        for kill in range(LOOP_KILLS):
            folder = f"loop{kill}"
            with subprocess.Popen([sys.argv[1], place.path(folder)]) as loop:
                training.wait_for(lambda: has_events(place, folder, 1), "the first chunk")
                time.sleep(place.random.uniform(0, 0.1))
                loop.kill()
                killed_ns = time.monotonic_ns()
            events += check(place, folder, killed_ns, 1, f"kill {kill}")
        place.expect(events > LOOP_KILLS * 1000, f"{events} events in all")

        place.make_data()
        for kill in range(JOB_KILLS):
            folder = f"job{kill}"
            job = place.start("--train-iters", "1000000", "--log-interval", "1000000", "--profile", "--profile-step-start", "2",
                              "--profile-step-end", "1000000", "--profile-ranks", "-1", "--profile-save-path", folder, ranks=2)
            training.wait_for(lambda: has_events(place, folder, 2), "the first chunk of both ranks")
            time.sleep(place.random.uniform(0, 0.3))
            job.kill()
            killed_ns = time.monotonic_ns()
            job.end()
            place.expect(check(place, folder, killed_ns, 2, f"job {kill}") > 0, f"job {kill}: events are there")
            analyzed = place.tool("msprof", "analyze", folder)
            place.expect(analyzed.exit == 0, f"job {kill}: msprof analyze", analyzed)


if __name__ == "__main__":
    sys.exit(main())
