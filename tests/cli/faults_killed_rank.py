#!/usr/bin/env python3
"""A rank that dies within a step, or fails alone: the others exit with code 5 within the timeout and name the silent rank,
and the checkpoint still loads."""
import os
import signal
import sys
import time

import training

TIMEOUT_S = 3 * training.SLOWER
GRACE_S = 12 * training.SLOWER  # for a busy machine


def start(place, name, layout, **how):
    return place.start("--train-iters", "1000000", "--log-interval", "1000", "--save", name, "--save-interval", "40",
                       "--distributed-timeout-minutes", str(TIMEOUT_S / 60), *layout, ranks=2, **how)


def kill_rank(job, rank):
    pid = job.pid(rank)
    job.wait_for_line("saved iteration")
    os.kill(pid, signal.SIGKILL)
    return time.monotonic()


def wait_for_code(job, rank):
    training.wait_for(lambda: job.code(rank) is not None, f"rank {rank} to end")
    return time.monotonic()


def main():
    with training.workplace() as place:
        place.make_data()
        cases = [("tp", ["--tensor-model-parallel-size", "2", "--sequence-parallel"], 1),
                 ("pp", ["--pipeline-model-parallel-size", "2"], 0),
                 ("zero", ["--use-distributed-optimizer"], 1)]
        jobs = [start(place, name, layout, wrap=training.NOTE_CODE, mpirun=training.RECOVER) for name, layout, _ in cases]
        kills = [kill_rank(job, victim) for job, (_, _, victim) in zip(jobs, cases)]
        for (name, _, victim), job, killed in zip(cases, jobs, kills):
            survivor = 1 - victim
            took = wait_for_code(job, survivor) - killed
            ran = job.end()
            place.expect(ran.codes[survivor] == 5 and ran.codes[victim] == 128 + signal.SIGKILL, f"{name}: the survivor exits 5", ran)
            place.expect(TIMEOUT_S * 0.9 < took < TIMEOUT_S + GRACE_S, f"{name}: it waited {took:.1f} s, the limit is {TIMEOUT_S} s", ran)
            place.expect(len(ran.errors) == 1 and f"r{survivor} mstrain]" in ran.errors[0] and f"rank [{victim}] silent" in ran.errors[0],
                         f"{name}: one line names rank {victim}", ran)

        # Plain mpirun terminates the survivors after about a second; on SIGTERM they print the same line.
        job = start(place, "plain", cases[0][1], wrap=training.NOTE_PID)
        kill_rank(job, 1)
        ran = job.end()
        place.expect(ran.exit not in (0, None), "plain mpirun: the job fails", ran)
        place.expect(len(ran.errors) == 1 and "rank [1] silent" in ran.errors[0], "plain mpirun: one line names rank 1", ran)

        for name in [case[0] for case in cases] + ["plain"]:
            verified = place.tool("msckpt", "verify", name)
            place.expect(verified.exit == 0, f"{name}: the checkpoint is intact", verified)
            iteration = int(verified.stdout.strip()[-7:])
            ran = place.run("--train-iters", str(iteration + 2), "--load", name, "--exit-on-missing-checkpoint")
            place.expect(ran.exit == 0 and f"loaded iteration {iteration} " in ran.stderr, f"{name}: the checkpoint loads", ran)

        # An error that the ranks cannot agree on ends the job at once, with its own code.
        ran = place.run("--train-iters", "1000000", "--log-interval", "1000", "--metrics-path", "/dev/full", ranks=2)
        place.expect(ran.exit == 4 and "--metrics-path /dev/full" in ran.errors[0] and ran.seconds < 20,
                     "a rank that fails alone ends the job", ran)


if __name__ == "__main__":
    sys.exit(main())
