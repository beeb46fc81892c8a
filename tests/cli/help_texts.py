#!/usr/bin/env python3
"""ctest `cli.help.PROGRAM`: what PROGRAM --help and PROGRAM VERB --help print is what help/ holds, byte for byte.

  help_texts.py PROGRAM..            exit 1 and a diff for each text that differs, is new, or is of a verb that is gone
  help_texts.py --write [PROGRAM..]  makes the files anew (default: of every program), from the binaries in MS_BIN or build/bin
"""
import difflib
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "help")
BIN = os.environ.get("MS_BIN", os.path.join(HERE, "../../build/bin"))
PROGRAMS = ("mstrain", "msckpt", "msprof", "msdata")
AGAIN = "python3 tests/cli/help_texts.py --write"


def answer(program, *verb):
    ran = subprocess.run([os.path.join(BIN, program), *verb, "--help"], capture_output=True, text=True, check=False)
    if ran.returncode != 0 or ran.stderr:
        raise SystemExit(f"{' '.join((program,) + verb)} --help: exit {ran.returncode}, stderr: {ran.stderr}")
    return ran.stdout


def texts(program):
    """{name of the file: text} of a program and its verbs."""
    text = answer(program)
    verbs = re.findall(r"^ {2}([a-z][\w-]*)", text.split("Subcommands:")[1], re.M) if "Subcommands:" in text else []
    return {f"{program}.stdout": text, **{f"{program}_{verb}.stdout": answer(program, verb) for verb in verbs}}


def kept(program):
    """{name of the file: text} of what help/ holds of a program."""
    found = {}
    for name in sorted(os.listdir(FOLDER) if os.path.isdir(FOLDER) else []):
        if re.fullmatch(rf"{program}(_[\w-]+)?\.stdout", name):
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                found[name] = file.read()
    return found


def differences(program):
    expected, seen = kept(program), texts(program)
    for name in sorted(expected.keys() | seen.keys()):
        old, new = expected.get(name, ""), seen.get(name, "")
        if old != new:
            yield from difflib.unified_diff(old.splitlines(), new.splitlines(), f"tests/cli/help/{name}",
                                            "printed now" if name in seen else "no such verb", lineterm="", n=1)


def write(program):
    os.makedirs(FOLDER, exist_ok=True)
    for name in kept(program):
        os.remove(os.path.join(FOLDER, name))
    for name, text in texts(program).items():
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
            file.write(text)


def main():
    programs = [word for word in sys.argv[1:] if word != "--write"] or PROGRAMS
    if "--write" in sys.argv[1:]:
        for program in programs:
            write(program)
        return 0
    problems = [line for program in programs for line in differences(program)]
    print("\n".join(problems + [f"if the new texts are right: {AGAIN}"]) if problems else "as expected")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
