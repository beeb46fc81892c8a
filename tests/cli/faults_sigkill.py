#!/usr/bin/env python3
"""SIGKILL of the whole job at random moments, SIGINT and SIGTERM: the last checkpoint is intact, and a run that continues
from it is bitwise identical to an undisturbed run.

  faults_sigkill.py [KILLS]     default 5
"""
import os
import re
import shutil
import signal
import sys
import time

import training

KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
FLAGS = ["--train-iters", "50000", "--use-distributed-optimizer", "--log-interval", "1000"]


def newest(place, root):
    """The iteration of the newest checkpoint, after verifying it."""
    verified = place.tool("msckpt", "verify", root)
    place.expect(verified.exit == 0, f"{root}: msckpt verify is clean", verified)
    return int(re.search(r"iter_(\d+)", verified.stdout).group(1)) if verified.exit == 0 else 0


def forget_old(place, root):
    """Keeps the newest five: fifty runs that save every third step would fill the disk."""
    for name in sorted(n for n in os.listdir(place.path(root)) if re.fullmatch(r"iter_\d+(\.r\d+)?", n))[:-5]:
        shutil.rmtree(place.path(root, name))


def main():
    with training.workplace() as place:
        place.make_data()
        saved = 0
        for kill in range(KILLS + 1):
            metrics = f"metrics{kill}.jsonl"
            job = place.start(*FLAGS, "--load", "root", "--save", "root", "--save-interval", "3", "--metrics-path", metrics, ranks=2,
                              wrap=training.NOTE_CODE if kill == KILLS else None)
            job.wait_for_line("saved iteration")
            if kill == KILLS:
                break
            time.sleep(place.random.uniform(0, 0.3))
            job.kill()
            ran = job.end()
            if kill > 0:
                place.expect(f"loaded iteration {saved} " in ran.stderr, f"kill {kill}: went on from iteration {saved}", ran)
            told = max(int(i) for i in re.findall(r"saved iteration (\d+)", ran.stderr))
            saved = newest(place, "root")
            forget_old(place, "root")
            place.expect(saved >= told, f"kill {kill}: iteration {told} was saved, the newest is {saved}", ran)

        # Ctrl-C: mpirun forwards it, the ranks stop at a step boundary.
        job.process.send_signal(signal.SIGINT)
        ran = job.end()
        place.expect(ran.exit not in (0, None) and not ran.errors, "SIGINT ends the job without an error", ran)
        signalled = (128 + signal.SIGTERM, 128 + signal.SIGINT, None)  # None: mpirun's SIGKILL came before the code was noted
        place.expect(all(code in signalled for code in ran.codes), "SIGINT: every rank exits 128 + n", ran)
        last = newest(place, "root")

        # SIGTERM of a single rank.
        job = place.start(*FLAGS, "--load", "root", "--save", "root", "--save-interval", "3")
        job.wait_for_line("saved iteration")
        job.process.send_signal(signal.SIGTERM)
        ran = job.end()
        place.expect(ran.exit == 128 + signal.SIGTERM and not ran.errors and "ended by signal 15" in ran.stderr, "SIGTERM: exit 143", ran)
        place.expect(f"loaded iteration {last} " in ran.stderr, "SIGTERM: the checkpoint of the interrupted run was loaded", ran)
        after = newest(place, "root")
        place.expect(after > last, "SIGTERM: its checkpoint is intact", ran)

        # The undisturbed run, up to the iteration that the others reached.
        disturbed = [place.losses(f"metrics{kill}.jsonl") for kill in range(KILLS + 1)]
        end = max(max(losses) for losses in disturbed)
        job = place.start(*FLAGS, "--metrics-path", "undisturbed.jsonl", ranks=2)
        training.wait_for(lambda: end in place.losses("undisturbed.jsonl") or job.process.poll() is not None, f"iteration {end}",
                          60 + end / 20)
        job.kill()
        ran = job.end()
        undisturbed = place.losses("undisturbed.jsonl")
        for kill, losses in enumerate(disturbed):
            place.expect(losses and all(undisturbed.get(i) == loss for i, loss in losses.items()),
                         f"run {kill}, iterations {min(losses)} to {max(losses)}: the losses of an undisturbed run", ran)
        print(f"{KILLS} kills, {sum(map(len, disturbed))} steps compared up to iteration {end}")


if __name__ == "__main__":
    sys.exit(main())
