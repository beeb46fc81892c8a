#!/usr/bin/env python3
"""Measures how much idle time msprof explains on real traces, and prints the findings.

  bench/profile/idle_explained.py FOLDER [--wanted 90]

Prints a Markdown table with one row per entry of FOLDER (a file, or a folder with the files of one job): the time without a
running device event, the share of it with a named cause, the share covered only by a user annotation, the first finding, and
the largest idle cause with its remedy. A named cause is an operator, Python frame, API call or data loader of the trace, not
`unknown` or an annotation alone. Exits with 10 if a trace with host events is below --wanted percent.
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
import peers  # noqa: E402

NOT_NAMED = ("unknown", "annotation")


def result_of(verb, path):
    ran = subprocess.run([peers.binary("msprof"), verb, path, "--json"], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        print(f"{path}: {ran.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(ran.stdout)["result"]


def host_events(info):
    """Whether any rank has host events; without them no idle time can be explained."""
    words = ("cpu_op", "python_function", "runtime", "driver", "user_annotation", "operator")
    return any(word in category.lower() for rank in info["ranks"] for category in rank["facts"]["by_cat"] for word in words)


def row_of(path):
    """Returns (cells of the table row, explained percent or None, whether the trace has host events)."""
    analysis, info, idle = (result_of(verb, path) for verb in ("analyze", "info", "idle"))
    name = os.path.basename(path.rstrip("/"))
    if analysis is None or info is None or idle is None:
        return None
    by_name, by_cause = {}, {}
    for rank in idle["ranks"]:
        causes = rank.get("idle_causes")
        if not causes:
            continue
        for cause, us in causes["by_cause_us"].items():
            by_cause[cause] = by_cause.get(cause, 0.0) + us
        for reason in causes["top"]:
            key = (reason["cause"], reason["name"])
            by_name[key] = by_name.get(key, 0.0) + reason["idle_us"]
    findings = analysis.get("findings", [])
    phases = {f["kind"]: f["lost_us"] for f in findings if f["kind"] in ("data_loading", "checkpoint")}
    total = sum(by_cause.values()) + sum(phases.values())
    if not total:
        return [name, "0", "-", "-", findings[0]["kind"] if findings else "-", "-", "-"], None, host_events(info)
    named = total - sum(by_cause.get(cause, 0.0) for cause in NOT_NAMED)
    annotated = by_cause.get("annotation", 0.0)
    first = findings[0]
    largest = max(list(by_name.items()) + [((kind, "see finding"), us) for kind, us in phases.items()], key=lambda item: item[1])
    of_cause = [f for f in findings if f["cause"] == largest[0][0] or f["kind"] == largest[0][0]]
    return [name, f"{total / 1000:.1f}", f"{100 * named / total:.1f}", f"{100 * annotated / total:.1f}",
            f"{first['kind']}{' ' + first['cause'] if first['cause'] else ''} {first['share_pct']:.0f} %: {short(first['detail'])}"
            f"{' in ' + short(first['where']) if first.get('where') else ''}",
            f"{largest[0][0]} {100 * largest[1] / total:.0f} %: {short(largest[0][1])}",
            of_cause[0]["remedy"] if of_cause else "-"], 100 * named / total, host_events(info)


def short(text, width=48):
    text = (text or "-").replace("|", "/")
    return text if len(text) <= width else text[:width - 2] + ".."


def main():
    parser = argparse.ArgumentParser(description="share of idle time with a named cause, for each trace of a folder")
    parser.add_argument("folder")
    parser.add_argument("--wanted", type=float, default=90, help="percent of each trace's idle time (default 90)")
    args = parser.parse_args()
    peers.binary("msprof")  # a missing one ends the script before the head of the table
    print("| trace | idle ms | named % | annotation only % | first finding | largest idle cause | remedy |\n|---|---|---|---|---|---|---|")
    below, measured = [], 0
    for entry in sorted(os.listdir(args.folder)):
        row = row_of(os.path.join(args.folder, entry))
        if row is None:
            continue
        cells, explained, has_host = row
        print("| " + " | ".join(cells) + " |", flush=True)
        if explained is None or not has_host:
            continue
        measured += 1
        if explained < args.wanted:
            below.append(f"{entry} {explained:.1f} %")
    print(f"\n{measured - len(below)} of {measured} traces with host events have at least {args.wanted:g} % of their idle time named")
    for line in below:
        print(f"below: {line}")
    return 10 if below else 0


if __name__ == "__main__":
    sys.exit(main())
