#!/usr/bin/env python3
"""SIGKILL of msckpt reshard at random moments, with each write path, compressed or not: existing generations stay intact,
reported ones exist, and leftovers of killed runs do not disturb the next. Also of msckpt gc, whenever the root holds many
generations: the ones to keep stay intact, and the next gc completes the work.

  faults_kill_reshard.py [KILLS]     default 22 kills of reshard; about half as many of gc
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

import training

KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 22
LAYOUTS = [["--target-pipeline-parallel-size", "2"], ["--target-tensor-parallel-size", "2"], []]
PATHS = ["io_uring", "direct", "buffered"]


def generations(place, root):
    return sorted((n for n in os.listdir(place.path(root)) if re.fullmatch(r"iter_\d+(\.r\d+)?", n)),
                  key=lambda n: int(n.partition(".r")[2] or 0))


class Collector:
    """Runs msckpt gc --keep-last 2 and kills it several times, then lets one run finish."""

    def __init__(self, place):
        self.place, self.usual, self.killed = place, 0.05, 0

    def collect(self):
        place = self.place
        kept = generations(place, "to")[-2:]
        for attempt in range(7):
            began = time.monotonic()
            process = subprocess.Popen([os.path.join(place.bin, "msckpt"), "gc", "to", "--keep-last", "2"], cwd=place.folder,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if attempt < 6:
                time.sleep(self.usual * (attempt + 1) / 6 * place.random.uniform(0.2, 1.0))
                process.kill()
            _, err = process.communicate(timeout=training.LIMIT_S)
            if process.returncode == 0 and attempt == 6:
                self.usual = time.monotonic() - began
            self.killed += process.returncode < 0
            place.expect(process.returncode in (0, -9), f"gc: exit {process.returncode}\n{err}")
            there = generations(place, "to")
            place.expect(there[-2:] == kept, f"gc: {kept} was to stay, there is {there}")
            verified = place.tool("msckpt", "verify", "to")
            place.expect(verified.exit == 0 and kept[-1] in verified.stdout, "after gc: msckpt verify is clean", verified)
        rest = sorted(set(os.listdir(place.path("to"))) - {".msckpt.lock", "latest_checkpointed_iteration.txt"})
        place.expect(rest == sorted(kept), f"gc leaves {kept} and no rubbish: {rest}")


def main():
    with training.workplace(needs_mpirun=False) as place:
        make = os.path.join(os.environ["MS_BIN"], "..", "tests", "make_checkpoint")
        subprocess.run([make, "from", "2", "1", "2", "1", "100", "96"], cwd=place.folder, check=True, stdout=subprocess.PIPE)
        logical = lambda path: sorted((t["name"], t["role"], t["logical_xxh3"])
                                      for t in json.load(open(place.path(path, "manifest.json"), encoding="utf-8"))["tensors"])
        expected = logical("from/iter_0000100")
        usual, killed, committed, reported, kill = 0.3, 0, [], 0, -1
        works = set()
        collector = Collector(place)
        while killed < KILLS and kill < 5 * KILLS + 20:
            kill += 1
            path = PATHS[kill % len(PATHS)]
            flags = [*LAYOUTS[kill // len(PATHS) % len(LAYOUTS)], "--write-path", path, *(["--compress"] if kill % 5 == 4 else [])]
            command = [os.path.join(place.bin, "msckpt"), "reshard", "--load-dir", "from", "--save-dir", "to", *flags]
            began = time.monotonic()
            process = subprocess.Popen(command, cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True)
            if kill % 8 != 0:  # the others run to the end, to measure the usual time
                # Most of the work is after the program's start; the commit is at the end.
                time.sleep(usual * place.random.choice([place.random.uniform(0.1, 1.0), place.random.uniform(0.7, 1.0)]))
                process.kill()
            out, err = process.communicate(timeout=training.LIMIT_S)
            if process.returncode == 0:
                usual = time.monotonic() - began
                works.add(path)
            killed += process.returncode < 0
            if kill % 8 == 0 and process.returncode != 0:  # this machine lacks the write path: one line
                place.expect(process.returncode == 2 and path in err, f"{path}: exit {process.returncode}\n{err}")
            there = generations(place, "to") if os.path.isdir(place.path("to")) else []
            lost = [name for name in committed if name not in there]
            place.expect(not lost, f"kill {kill}: {lost} was there, and is gone")
            if out.endswith("\n"):
                reported += 1
                place.expect(os.path.basename(out.strip()) in there, f"kill {kill}: {out} was reported, and is not there")
            for name in there:
                if name not in committed:
                    place.expect(logical(f"to/{name}") == expected, f"kill {kill}: {name} holds other values")
            committed = there
            if there:
                verified = place.tool("msckpt", "verify", "to")
                place.expect(verified.exit == 0 and there[-1] in verified.stdout, f"kill {kill}: msckpt verify is clean", verified)
            if len(there) > 4:
                collector.collect()
                committed = generations(place, "to")
        final = place.tool("msckpt", "reshard", "--load-dir", "from", "--save-dir", "to")
        place.expect(final.exit == 0, "the next one succeeds", final)
        place.expect(killed == KILLS and reported > 0, f"{killed} were killed in time, {reported} reported")
        collector.collect()
        place.expect(collector.killed > 0, "gc was killed at least once")
        print(f"{killed} killed, {reported} reported, by {', '.join(sorted(works))}; gc: {collector.killed} killed")


if __name__ == "__main__":
    sys.exit(main())
