#!/usr/bin/env python3
"""core/flag_syntax.h against Python's argparse, whose rules Megatron's users know: on random command lines both find the same
flag without its value, in the same words.

  argparse_agreement.py check_flags
"""
import argparse
import contextlib
import io
import os
import random
import subprocess
import sys

WORDS = ["--save", "--weight-decay", "--bf16", "--data-path", "--rampup", "-o", "x", "3", "-1", "-.5", "-", "y z", "- a b",
         "--unknown", "-x", "--save=--bf16", "--weight-decay=1", "--data-path=a", "-ofoo"]


def argparse_says(parser, words):
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_known_args(words)
    except SystemExit:
        return said.getvalue().strip().split("\n")[-1].split("error: argument ")[-1]
    return "ok"


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--save")
    parser.add_argument("--weight-decay")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--data-path", nargs="+")
    parser.add_argument("--rampup", nargs=3)
    parser.add_argument("-o")
    seed = int(os.environ.get("MS_TEST_SEED", random.SystemRandom().randrange(1 << 31)))
    print(f"MS_TEST_SEED={seed}")
    choose = random.Random(seed)
    lines = [[choose.choice(WORDS) for _ in range(choose.randint(1, 7))] for _ in range(5000)]
    ran = subprocess.run([sys.argv[1]], input="".join("\t".join(line) + "\n" for line in lines), capture_output=True, text=True,
                         check=True)
    ours = ran.stdout.splitlines()
    theirs = [argparse_says(parser, line) for line in lines]
    differ = [i for i in range(len(lines)) if ours[i] != theirs[i]]
    for i in differ[:10]:
        print(f"{lines[i]}: argparse: {theirs[i]}; ours: {ours[i]}")
    missing = sum(answer != "ok" for answer in theirs)
    print(f"{len(lines)} command lines, {missing} with a missing value, {len(differ)} answered differently")
    return 1 if differ or missing < 1000 or missing > 4000 else 0


if __name__ == "__main__":
    sys.exit(main())
