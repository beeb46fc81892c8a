#!/usr/bin/env python3
"""A rank uses as many compute threads as it has cores; more than that give a warning with the cure."""
import os
import sys

import training

ONE_CPU = f'exec taskset -c {min(os.sched_getaffinity(0))} "$@"'
SHORTAGE = "compute threads of rank 0"


def main():
    with training.workplace(needs_mpirun=False) as place:
        place.make_data()

        def run(*flags, wrap=None):
            ran = place.run("--train-iters", "1", "--log-level", "debug", *flags, wrap=wrap)
            place.expect(ran.exit == 0, f"{' '.join(flags)}: exit 0", ran)
            return ran

        for flag, threads, wrap in (("0", len(os.sched_getaffinity(0)), None), ("0", 1, ONE_CPU), ("1", 1, ONE_CPU)):
            ran = run("--threads-per-rank", flag, wrap=wrap)
            place.expect(f"compute threads: {threads}\n" in ran.stderr and SHORTAGE not in ran.stderr, f"{flag}: {threads} threads", ran)
        ran = run("--threads-per-rank", "2", wrap=ONE_CPU)
        place.expect(f"2 {SHORTAGE} share 1 core" in ran.stderr and "--bind-to core" in ran.stderr and
                     "compute threads: 2\n" in ran.stderr, "two threads on one core are told", ran)


if __name__ == "__main__":
    sys.exit(main())
