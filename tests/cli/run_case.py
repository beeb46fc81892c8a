#!/usr/bin/env python3
"""Runs one command-line case: x.sh in an empty folder, with the built binaries first on PATH.

What it printed must be x.stdout and x.stderr, its exit status x.exit; a file that is not there stands for no output, and for 0.
In the expected files a line is literal, unless it starts with "~ " (a regular expression for the whole line) or is "..."
(any number of lines).

  run_case.py x.sh
"""
import os
import re
import subprocess
import sys
import tempfile


def line_matches(expected, line):
    return re.fullmatch(expected[2:], line) is not None if expected.startswith("~ ") else expected == line


def text_matches(expected, lines):
    """Both are lists of lines."""
    reachable = {0}  # how many lines the expected ones so far may have consumed
    for want in expected:
        if want == "...":
            reachable = set(range(min(reachable), len(lines) + 1)) if reachable else set()
        else:
            reachable = {n + 1 for n in reachable if n < len(lines) and line_matches(want, lines[n])}
    return len(lines) in reachable


def expectation(case, kind, default=""):
    path = f"{case}.{kind}"
    if not os.path.exists(path):
        return default
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    script = os.path.abspath(sys.argv[1])
    case = script[: -len(".sh")]
    environment = dict(os.environ, PATH=os.environ["MS_BIN"] + os.pathsep + os.environ["PATH"], CASE_DIR=os.path.dirname(case))
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(["bash", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    problems = []
    wanted_exit = int(expectation(case, "exit", "0"))
    if ran.returncode != wanted_exit:
        problems.append(f"exit status {ran.returncode}, expected {wanted_exit}")
    for kind, seen in (("stdout", ran.stdout), ("stderr", ran.stderr)):
        expected = expectation(case, kind)
        if not text_matches(expected.splitlines(), seen.splitlines()):
            problems.append(f"{kind} is\n{seen}---- expected\n{expected}----")
    print("\n".join(problems) if problems else "as expected")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
