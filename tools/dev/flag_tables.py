#!/usr/bin/env python3
"""The tables of other programs' flags in train/README.md, made from `mstrain --print-flags` (ctest `docs.flags`).

  flag_tables.py [PAGE]            exit 1 if the tables of the page are not those of the built mstrain (MS_BIN)
  flag_tables.py --write [PAGE]    replaces them
"""
import json
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
BEGIN, END = "<!-- flag_tables.py begins -->", "<!-- flag_tables.py ends -->"


def flags():
    program = os.path.join(os.environ.get("MS_BIN", os.path.join(ROOT, "build/bin")), "mstrain")
    return json.loads(subprocess.run([program, "--print-flags"], capture_output=True, text=True, check=True).stdout)


def by_reason(entries):
    """{reason: flags}, in the order in which the reasons come."""
    out = {}
    for entry in entries:
        name = entry["flag"] + (" " + "\\|".join(entry["only"]) if "only" in entry else "")
        out.setdefault(entry["reason"], []).append(f"`{name}`")
    return out


def tables(entries):
    kind = lambda wanted: [entry for entry in entries if entry["kind"] == wanted]
    lines = ["Accepted without effect, with one notice in the log:", "", "| flags | why they have no effect |", "| --- | --- |"]
    lines += [f"| {' '.join(names)} | {reason} |" for reason, names in by_reason(kind("notice")).items()]
    lines += ["", "Refused, because leaving them out would change the numbers or the memory of the run:", "",
              "| flags | why |", "| --- | --- |"]
    lines += [f"| {' '.join(names)} | {reason} |" for reason, names in by_reason(kind("refused")).items()]
    lines += ["", "Read as flags of `mstrain`:", "", "| flag | read as |", "| --- | --- |"]
    lines += [f"| `{entry['flag']}` | `{' '.join(entry['reads_as'])}` |" for entry in kind("expansion")]
    return "\n".join(lines)


def main():
    arguments = [word for word in sys.argv[1:] if word != "--write"]
    path = arguments[0] if arguments else os.path.join(ROOT, "train/README.md")
    with open(path, encoding="utf-8") as file:
        page = file.read()
    block = re.compile("(?<=" + re.escape(BEGIN) + "\n)(.*?)\n?(?=" + re.escape(END) + ")", re.S)
    found = block.search(page)
    if not found:
        raise SystemExit(f"{path}: no {BEGIN} and {END}")
    wanted = tables(flags())
    if found.group(1) == wanted:
        print("the tables of flags are up to date")
        return 0
    if "--write" in sys.argv[1:]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page[:found.start()] + wanted + "\n" + page[found.end():])
        return 0
    for old, new in ((set(found.group(1).split("\n")), set(wanted.split("\n"))),):
        print("\n".join([f"missing: {line}" for line in new - old] + [f"not so: {line}" for line in old - new]))
    print(f"{path}: run tools/dev/flag_tables.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
