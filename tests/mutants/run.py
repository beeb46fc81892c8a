#!/usr/bin/env python3
"""Plants each error of a table in a copy of the tree, and requires that the test of that module fails.

  run.py [--only TEXT] [--jobs N] FOLDER        FOLDER: for the copy and its build; kept, so that a second run is faster
  run.py --check                                only whether the table fits the tree

The text that a mutant replaces must be in its file once, so that the table cannot go stale unseen.
"""
import argparse
import contextlib
import os
import shutil
import subprocess
import sys

import model

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT_S = 600


def stale():
    """A line for each mutant whose text is not in its file once."""
    lines = []
    for file, old, *_ in model.MUTANTS:
        count = read(os.path.join(ROOT, model.MODEL, file)).decode().count(old)
        if count != 1:
            lines.append(f"{file}: {count} times {old!r}, not once")
    return lines


def copy_tree(folder):
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, stdout=subprocess.PIPE,
                           text=True).stdout.splitlines()
    for name in files:
        source, target = os.path.join(ROOT, name), os.path.join(folder, name)
        if not os.path.isfile(source) or (os.path.isfile(target) and read(source) == read(target)):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(source, target)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class Build:
    def __init__(self, folder, jobs):
        self.tree, self.build, self.jobs = os.path.join(folder, "tree"), os.path.join(folder, "build"), str(jobs)
        os.makedirs(self.tree, exist_ok=True)
        copy_tree(self.tree)
        self.call("cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DMS_UNITY_BUILD=OFF")

    def call(self, *command):
        ran = subprocess.run(command, cwd=self.tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        if ran.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit {ran.returncode}\n{ran.stdout[-4000:]}")
        return ran.stdout

    def make(self, targets):
        self.call("ninja", "-C", self.build, "-j", self.jobs, *targets)

    @contextlib.contextmanager
    def planted(self, file, old, new):
        """The tree with a mutant in it."""
        path = os.path.join(self.tree, model.MODEL, file)
        text = read(path).decode()
        write(path, text.replace(old, new))
        try:
            yield
        finally:
            write(path, text)

    def passes(self, test):
        """Whether the program ends with 0. A crash and a hang are failures, too."""
        program = os.path.join(self.build, "tests", test)
        try:
            return subprocess.run([program], cwd=self.build, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT_S,
                                  check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False


def program_of(test):
    """of "mlp", a module of train/model; ".tp_overlap" and "optim.zero", of train/; "core.comm.two_levels"."""
    if "." not in test:
        return f"test.train.model.{test}"
    return f"test.{test}" if test.startswith("core.") else f"test.train.{test.lstrip('.')}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutants whose file or test contains this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--check", action="store_true", help="build nothing: compare the table with the tree")
    parser.add_argument("folder", nargs="?")
    options = parser.parse_args()
    failed = stale()
    if options.check or failed:
        print("\n".join(f"FAILED: {line}" for line in failed) or f"{len(model.MUTANTS)} mutants fit the tree")
        return 1 if failed else 0
    if options.folder is None:
        parser.error("give a FOLDER for the build")
    mutants = [m for m in model.MUTANTS if options.only in m[0] or options.only in m[3]]
    build = Build(os.path.abspath(options.folder), options.jobs)
    tests = {m[3]: program_of(m[3]) for m in mutants}
    build.make(tests.values())
    failed = [f"{name} fails without its mutants" for name in tests if not build.passes(tests[name])]
    survivors = 0
    for number, (file, old, new, test, *_) in enumerate(mutants):
        with build.planted(file, old, new):
            build.make([tests[test]])
            caught = not build.passes(tests[test])
        print(f"{number + 1:3} {'caught  ' if caught else 'SURVIVES'} {test}: {file}: {old.splitlines()[0].strip()[:90]}", flush=True)
        survivors += 0 if caught else 1
    for line in failed:
        print(f"FAILED: {line}")
    print(f"{len(mutants)} mutants, {survivors} survive")
    return 1 if survivors or failed else 0


if __name__ == "__main__":
    sys.exit(main())
