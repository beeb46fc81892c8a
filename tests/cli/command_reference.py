#!/usr/bin/env python3
"""ctest `cli.command_reference`: manual pages and completions name every flag that --help prints, and are well formed."""
import os
import re
import shutil
import subprocess
import sys

BIN = os.environ["MS_BIN"]
PROGRAMS = ("mstrain", "msckpt", "msprof", "msdata")
FLAG = re.compile(r"--[A-Za-z0-9][\w-]*")
OTHER_LISTS = re.compile(r"^(accepted with one notice|refused, because|aliases of other flags)", re.M)  # of mstrain, not completed
# What a user has typed, and what must be among the completions; "" : files.
TYPED = (
    ("msckpt co", ["convert"]),
    ("msckpt --comp", ["--completion"]),
    ("msckpt --completion ", ["bash", "zsh"]),
    ("msckpt convert --target-t", ["--target-tensor-parallel-size"]),
    ("msckpt convert --write-path ", ["auto", "buffered", "direct", "io_uring"]),
    ("msckpt reshard --write-path = b", ["buffered"]),
    ("msckpt inspect iter", []),
    ("msprof ranks traces --last-step ", ["drop", "keep"]),
    ("msprof crit", ["critical-path"]),
    ("msdata preprocess --append", ["--append-eod"]),
    ("mstrain --tensor-model-p", ["--tensor-model-parallel-size"]),
    ("mstrain --hidden-size 8 --seq-l", ["--seq-length"]),
)


def run(*command, **how):
    return subprocess.run(command, text=True, check=True, stdout=subprocess.PIPE, **how).stdout


def program(name, *args):
    return run(os.path.join(BIN, name), *args)


def help_flags(text):
    """Names at the beginning of the lines of a --help."""
    text = OTHER_LISTS.split(text)[0]
    lefts = re.findall(r"^  (-\S.*?)(?:  .*)?$", text, re.M)
    return {flag for left in lefts for flag in FLAG.findall(left.split("{")[0])}


def completed(script, words):
    """The answers of the completion function for a command line whose last word is being typed."""
    code = f"source /dev/stdin <<<\"$SCRIPT\"; COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; " \
           f"_{words[0]}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return [line for line in run("bash", "-euc", code, env={**os.environ, "SCRIPT": script}).split("\n") if line]


def problems_of(name):
    manual, script = program(name, "--man"), program(name, "--completion", "bash")
    plain = manual.replace("\\-", "-")
    text = program(name, "--help")
    verbs = re.findall(r"^ {2}([a-z][\w-]*)", text.split("Subcommands:")[1], re.M) if "Subcommands:" in text else []
    wanted = [([name], help_flags(text))] + [([name, verb], help_flags(program(name, verb, "--help"))) for verb in verbs]
    for words, flags in wanted:
        if not flags:
            yield f"{' '.join(words)} --help has no flags: is this check blind?"
        missing = {flag for flag in flags if f"\\fB{flag}\\fR" not in plain}
        if missing:
            yield f"{name} --man lacks {sorted(missing)} of {' '.join(words)} --help"
        missing = flags - set(completed(script, words + ["--"]))
        if missing:
            yield f"the completions of {' '.join(words)} lack {sorted(missing)}"
    if set(completed(script, [name, ""])) != set(verbs):
        yield f"the verbs of {name} are completed as {completed(script, [name, ''])}"
    if shutil.which("groff"):
        seen = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=manual, text=True, capture_output=True, check=False)
        if seen.returncode != 0 or seen.stderr:
            yield f"groff warns of {name} --man: {seen.stderr[:500]}"
    zsh = program(name, "--completion", "zsh")
    if shutil.which("zsh"):
        seen = subprocess.run(["zsh", "-n", "/dev/stdin"], input=zsh, text=True, capture_output=True, check=False)
        if seen.returncode != 0 or seen.stderr:
            yield f"zsh does not parse the completions of {name}: {seen.stderr[:500]}"
    missing = {flag for _, flags in wanted for flag in flags if f"'{flag}[" not in zsh}
    if missing:
        yield f"the completions of {name} for zsh lack {sorted(missing)}"


def main():
    problems = [problem for name in PROGRAMS for problem in problems_of(name)]
    scripts = {name: program(name, "--completion", "bash") for name in PROGRAMS}
    for line, expected in TYPED:
        words = line.split(" ")
        seen = completed(scripts[words[0]], words)
        if sorted(seen) != expected:
            problems.append(f'"{line}" is completed as {seen}, expected {expected}')
    for name in PROGRAMS:
        seen = subprocess.run([os.path.join(BIN, name), "--completion", "fish"], capture_output=True, text=True, check=False)
        if seen.returncode != 2 or "fish" not in seen.stderr:
            problems.append(f"{name} --completion fish: exit {seen.returncode}, {seen.stderr}")
    print("\n".join(problems) or "every flag of --help is in the manual pages and completed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
