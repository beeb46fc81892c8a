#!/usr/bin/env python3
"""--ckpt-writer process: every rank is killed as soon as it has its snapshot. That generation is committed nevertheless; a
run that is started at once waits for it and continues from it, in the same layout and in another."""
import re
import sys
import time

import training

FLAGS = ["--train-iters", "50000", "--use-distributed-optimizer", "--log-interval", "1000", "--log-rank", "all", "--save", "root",
         "--load", "root", "--save-interval", "4", "--ckpt-writer", "process"]
LAYOUTS = [["--tensor-model-parallel-size", "2"], ["--pipeline-model-parallel-size", "2"], []]


def main():
    with training.workplace() as place:
        place.make_data()
        saved = 0
        for kill, slow in enumerate([True, False, True]):
            layout = LAYOUTS[kill % len(LAYOUTS)]
            # At this rate the writers still have a second of work when the trainer is killed.
            limit = ["--ckpt-io-limit", str(0.05 / training.SLOWER)]
            job = place.start(*FLAGS, *layout, *(limit if slow else []), ranks=2)
            snapshots = lambda: [re.findall(rf" r{rank} train.save\] saving iteration (\d+)", job.said()) for rank in range(2)]
            training.wait_for(lambda: all(snapshots()) or job.process.poll() is not None, "a snapshot of each rank")
            job.kill(spare="--checkpoint-writer-process")
            killed = time.monotonic()
            ran = job.end()
            taken = [max(map(int, of_rank), default=0) for of_rank in snapshots()]
            place.expect(min(taken) > saved, f"kill {kill}: both ranks took a snapshot, {taken}", ran)
            if kill > 0:
                place.expect(f"loaded iteration {saved} " in ran.stderr, f"kill {kill}: went on from iteration {saved}", ran)
            if slow:
                place.expect(f"saved iteration {min(taken)} " not in ran.stderr, f"kill {kill}: the ranks were killed before the commit", ran)
            # Start the next run at once. It must load the snapshot that both ranks had taken.
            again = place.start(*FLAGS, *LAYOUTS[(kill + 1) % len(LAYOUTS)], "--exit-interval", "1", ranks=2).end()
            loaded = re.search(r"loaded iteration (\d+) ", again.stderr)
            saved = int(loaded.group(1)) if loaded else 0
            place.expect(saved >= min(taken), f"kill {kill}: snapshots of {taken}, then {saved} was loaded", again)
            if slow:
                waits = re.findall("has died, but a process that it started still writes", again.stderr)
                place.expect(len(waits) == 1, f"kill {kill}: said once that it waits", again)
            place.expect(time.monotonic() - killed < 20, f"kill {kill}: within seconds", again)
            verified = place.tool("msckpt", "verify", "--all", "root")
            place.expect(verified.exit == 0, f"kill {kill}: msckpt verify is clean", verified)
            saved = max(int(i) for i in re.findall(r"iter_(\d+)", verified.stdout))
        print(f"iteration {saved} after {kill + 1} kills")


if __name__ == "__main__":
    sys.exit(main())
