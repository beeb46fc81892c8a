#!/usr/bin/env python3
"""ctest `examples.*`: runs an example and compares what it prints with tools/examples/README.md.

  examples.py NAME     NAME.sh, whose output the page has behind the line "$ tools/examples/NAME.sh"
  examples.py slurm    the Slurm script as far as it goes without Slurm: mstrain takes its flags, on as many ranks

In the page ".." stands for any text within a line, and "..." alone for any number of lines.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["MS_SOURCE"])
EXAMPLES = SOURCE / "tools/examples"
SKIPPED = 77


def expected_output(name):
    page = (EXAMPLES / "README.md").read_text()
    blocks = re.findall(rf"^\$ (?:\w+=\S+ )*tools/examples/{re.escape(name)}(?: .*)?\n(.*?)^```", page, re.M | re.S)
    if len(blocks) != 1:
        sys.exit(f"FAILED: tools/examples/README.md has {len(blocks)} outputs of {name}")
    return blocks[0].splitlines()


def line_matches(expected, line):
    return re.fullmatch(".*".join(map(re.escape, expected.split(".."))), line) is not None


def first_difference(expected, lines):
    """None if all lines are expected, else what is wrong."""
    reachable = {0}
    for number, want in enumerate(expected):
        if want == "...":
            reachable = set(range(min(reachable), len(lines) + 1))
            continue
        reached = {n + 1 for n in reachable if n < len(lines) and line_matches(want, lines[n])}
        if not reached:
            return f"the page's line {number + 1} is\n  {want}\nand this is not what comes after line {min(reachable)}"
        reachable = reached
    return None if len(lines) in reachable else f"unexpected lines from {max(reachable) + 1} on"


def run_example(name, folder):
    script = f"{name}.sh"
    expected = expected_output(script)
    ran = subprocess.run(["bash", EXAMPLES / script], cwd=folder, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = ran.stdout.splitlines()
    if ran.returncode == SKIPPED:
        print(next((line for line in lines if line.startswith("SKIPPED")), f"SKIPPED: {script}"))
        return SKIPPED
    difference = first_difference(expected, lines)
    if ran.returncode != 0 or difference:
        print(f"FAILED: {script}: exit {ran.returncode}; {difference}\n{ran.stdout}")
        return 1
    print(f"{script} prints what its page says")
    return 0


def run_slurm(folder):
    """srun is replaced by a program that starts the ranks of one node by mpirun, with --print-config in place of training."""
    shims = pathlib.Path(folder) / "shims"
    shims.mkdir()
    (shims / "srun").write_text('#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\n'
                                'exec mpirun --oversubscribe --bind-to none -n 4 "$@" --print-config --vocab-size 1000\n')
    (shims / "msckpt").write_text("#!/bin/sh\necho msckpt \"$@\"\n")
    for shim in shims.iterdir():
        shim.chmod(0o755)
    environment = {**os.environ, "PATH": f"{shims}:{os.environ['MS_BIN']}:{os.environ['PATH']}"}
    ran = subprocess.run(["bash", EXAMPLES / "slurm.sbatch", "data", "checkpoints"], cwd=folder, env=environment, text=True, check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for text in ('"tensor_model_parallel_size": 4', '"exit_signal_handler": true', "msckpt verify checkpoints"):
        if ran.returncode != 0 or text not in ran.stdout:
            print(f"FAILED: slurm.sbatch: exit {ran.returncode}, expected {text} in\n{ran.stdout}{ran.stderr}")
            return 1
    print("mstrain takes the flags of slurm.sbatch")
    return 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        return run_slurm(folder) if sys.argv[1] == "slurm" else run_example(sys.argv[1], folder)


if __name__ == "__main__":
    sys.exit(main())
