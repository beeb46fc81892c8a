#!/usr/bin/env python3
"""The tables of features and of other programs' flags in train/README.md, made from `mstrain --print-active-features` and
`mstrain --print-flags` (ctest `docs.flags`).

  flag_tables.py [PAGE]            exit 1 if the tables of the page are not those of the built mstrain (MS_BIN)
  flag_tables.py --write [PAGE]    replaces them
"""
import json
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
# What --print-active-features needs to know of a run.
A_RUN = "--num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 --train-iters 1 --lr 1".split()


def mstrain(*args):
    program = os.path.join(os.environ.get("MS_BIN", os.path.join(ROOT, "build/bin")), "mstrain")
    return json.loads(subprocess.run([program, *args], capture_output=True, text=True, check=True).stdout)


def feature_table():
    lines = ["| feature | level | flags | effect | rules |", "| --- | --- | --- | --- | --- |"]
    for feature in mstrain("--print-active-features", "--json", *A_RUN):
        flags = " ".join(f"`{flag}`" for flag in feature["flags"])
        rules = "; ".join(re.sub(r"(--[\w-]+(?: (?!needs|and|or|exclude|above|below)\w+)?)", r"`\1`", rule) for rule in feature["needs"] + feature["excludes"])
        lines.append(f"| {feature['name']} | {feature['level']} | {flags} | {feature['effect']} | {rules} |")
    return "\n".join(lines)


def by_reason(entries):
    """{reason: flags}, in the order in which the reasons come."""
    out = {}
    for entry in entries:
        name = entry["flag"] + (" " + "\\|".join(entry["only"]) if "only" in entry else "")
        out.setdefault(entry["reason"], []).append(f"`{name}`")
    return out


def flag_table():
    entries = mstrain("--print-flags")
    kind = lambda wanted: [entry for entry in entries if entry["kind"] == wanted]
    lines = ["Accepted without effect, with one notice in the log:", "", "| flags | why they have no effect |", "| --- | --- |"]
    lines += [f"| {' '.join(names)} | {reason} |" for reason, names in by_reason(kind("notice")).items()]
    lines += ["", "Refused, because leaving them out would change the numbers or the memory of the run:", "",
              "| flags | why |", "| --- | --- |"]
    lines += [f"| {' '.join(names)} | {reason} |" for reason, names in by_reason(kind("refused")).items()]
    lines += ["", "Read as flags of `mstrain`:", "", "| flag | read as |", "| --- | --- |"]
    lines += [f"| `{entry['flag']}` | `{' '.join(entry['reads_as'])}` |" for entry in kind("expansion")]
    return "\n".join(lines)


TABLES = {"features": feature_table, "flags": flag_table}


def main():
    arguments = [word for word in sys.argv[1:] if word != "--write"]
    path = arguments[0] if arguments else os.path.join(ROOT, "train/README.md")
    with open(path, encoding="utf-8") as file:
        page = file.read()
    differs = False
    for name, make in TABLES.items():
        begin, end = f"<!-- flag_tables.py: {name} begin -->\n", f"<!-- flag_tables.py: {name} end -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise SystemExit(f"{path}: expected one line {begin.strip()} and one line {end}")
        at, until = page.index(begin) + len(begin), page.index(end)
        found, wanted = page[at:until], make() + "\n"
        page = page[:at] + wanted + page[until:]
        if found == wanted:
            continue
        differs = True
        old, new = set(found.split("\n")), set(wanted.split("\n"))
        print("\n".join([f"missing: {line}" for line in new - old] + [f"not so: {line}" for line in old - new]))
    if not differs:
        print("the tables of flags are up to date")
        return 0
    if "--write" in sys.argv[1:]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
        return 0
    print(f"{path}: run tools/dev/flag_tables.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
