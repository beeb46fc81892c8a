"""Runs of mstrain that share this machine in time slices: all but one are stopped (SIGSTOP), a quarter of a second each in turn. A
machine whose speed changes from second to second then slows all of them alike, which runs one after the other do not see."""
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SLICE_S, POLL_S, START_S = 0.25, 0.004, 300


def descendants(root):
    """root and the processes below it; of processes that end meanwhile, those that were seen."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(pathlib.Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


class Run:
    """A run of `warm_up + steps` iterations; steps_s has the seconds of those that are counted, of the run's own slices only."""

    def __init__(self, folder, command, warm_up, steps):
        self.metrics, self.warm_up, self.steps = folder / "metrics.jsonl", warm_up, steps
        self.command = [*command, "--train-iters", str(warm_up + steps), "--metrics-path", str(self.metrics),
                        "--data-cache-path", str(folder)]
        self.output = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=self.output, stderr=subprocess.STDOUT)
        self.steps_s, self.in_step_s = [], 0.0

    def rows(self):
        return self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0

    def check(self, ended_well):
        """Ends the script if the run failed, or ended where it should not."""
        if self.process.poll() is not None and (self.process.returncode != 0 or not ended_well):
            self.output.seek(0)
            sys.exit(f"{' '.join(self.command)}: exit {self.process.returncode}\n{self.output.read()}")

    def wait_for_warm_up(self):
        deadline = time.monotonic() + START_S
        while self.rows() < self.warm_up:
            self.check(ended_well=False)
            if time.monotonic() > deadline:
                sys.exit(f"{' '.join(self.command)}: no {self.warm_up} iterations in {START_S} s")
            time.sleep(POLL_S)
        self.processes = descendants(self.process.pid)
        self.send(signal.SIGSTOP)

    def send(self, number):
        for pid in self.processes:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def missing(self):
        return self.steps - len(self.steps_s)

    def take_slice(self):
        begin = time.monotonic()
        seen = self.warm_up + len(self.steps_s)
        self.send(signal.SIGCONT)
        while (now := time.monotonic()) < begin + SLICE_S:
            if self.rows() > seen:
                self.steps_s.append(self.in_step_s + now - begin)
                self.in_step_s, begin, seen = 0.0, now, seen + 1
                if not self.missing():
                    return
            time.sleep(POLL_S)
        self.send(signal.SIGSTOP)
        self.in_step_s += time.monotonic() - begin
        self.check(ended_well=False)

    def finish(self):
        self.send(signal.SIGCONT)
        self.process.wait()
        self.check(ended_well=True)


def step_seconds(commands, warm_up, steps):
    """{name: the seconds of each of `steps` iterations} of commands {name: mstrain's command line without --train-iters}. Their
    warm-up is one after the other. Ends the script if a run fails."""
    with tempfile.TemporaryDirectory() as name:
        runs = {}
        try:
            for number, (key, command) in enumerate(commands.items()):
                folder = pathlib.Path(name, str(number))
                folder.mkdir()
                runs[key] = Run(folder, command, warm_up, steps)
                runs[key].wait_for_warm_up()
            while any(run.missing() for run in runs.values()):
                for run in runs.values():
                    if run.missing():
                        run.take_slice()
                        if not run.missing():
                            run.finish()
        finally:
            for run in runs.values():
                for pid in reversed(descendants(run.process.pid)) if run.process.poll() is None else []:
                    os.kill(pid, signal.SIGKILL)
        return {key: run.steps_s for key, run in runs.items()}


def paired_ratios(first, second):
    """Of the times of equal iterations of two runs that shared the machine."""
    return [a / b for a, b in zip(first, second)]


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
