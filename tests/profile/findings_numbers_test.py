#!/usr/bin/env python3
"""Findings agree with the tables, on generated traces and on the synthetic ones of MS_TRACE_DATA if available.

  findings_numbers_test.py MAKE_TRACE

For each trace: computing and the findings add up to the time of the ranks, so no moment counts twice; every idle finding is the
sum of its cause in the idle table; every time and share in a sentence is in the JSON; the text shows the findings of the JSON;
every finding has a remedy, and its command succeeds. The excess computing of a late rank is compared with the sums of its
kernels, and the rate of a collective with its bytes and time.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")
MAKE_TRACE = sys.argv[1]
FAILED = []


def expect(what, condition, seen=""):
    if not condition:
        FAILED.append(what)
        print(f"FAILED {what}: {seen}")


def run(*args):
    return subprocess.run([MSPROF, *args], capture_output=True, text=True, check=False)


def times_of(value, out):
    """All times (keys that end in _us) inside `value`."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key.endswith("_us") and isinstance(item, (int, float)):
                out.append(item)
            elif key.endswith("_us") and isinstance(item, dict):
                out += [us for us in item.values() if isinstance(us, (int, float))]
            else:
                times_of(item, out)
    elif isinstance(value, list):
        for item in value:
            times_of(item, out)
    return out


def check_sums(name, result):
    findings = result["findings"]
    causes = {rank["rank"]: rank["idle_causes"] for rank in result["ranks"] if "idle_causes" in rank}
    for rank, idle in causes.items():
        total = sum(idle["by_cause_us"].values())
        expect(f"{name}: causes of rank {rank} add up", abs(total - idle["idle_us"]) < 0.01, (total, idle["idle_us"]))
    found = {}
    for finding in findings:
        if finding["kind"] != "idle":
            continue
        found[finding["cause"]] = finding["lost_us"]
        of_ranks = {rank: idle["by_cause_us"].get(finding["cause"], 0) for rank, idle in causes.items()}
        expect(f"{name}: idle {finding['cause']} is its table's sum", abs(sum(of_ranks.values()) - finding["lost_us"]) < 0.01, finding)
        expect(f"{name}: worst rank of idle {finding['cause']}", abs(max(of_ranks.values()) - finding["worst_us"]) < 0.01 and
               abs(of_ranks[finding["worst_rank"]] - finding["worst_us"]) < 0.01, (finding, of_ranks))
    in_tables = {cause for idle in causes.values() for cause, us in idle["by_cause_us"].items() if us > 0}
    expect(f"{name}: no idle cause without a finding", in_tables == set(found), (in_tables, found))

    # Imbalance lies within the waits; all other findings are disjoint.
    lost = [finding for finding in findings if finding["kind"] != "imbalance"]
    largest = max(lost, key=lambda finding: finding["lost_us"])
    wall = largest["lost_us"] / largest["share_pct"] * 100
    total = sum(finding["lost_us"] for finding in lost) + sum(result["imbalance"]["computing_us"].values())
    precision = 2 * wall * 5e-5 / largest["share_pct"] + 0.1  # of a share with four decimals
    expect(f"{name}: computing and losses are the whole time", abs(total - wall) <= precision, (total, wall))


def more_than_others(by_rank):
    """The excess of each rank over the median of the others, and over the average."""
    out = []
    for rank, own in by_rank.items():
        others = sorted(us for other, us in by_rank.items() if other != rank)
        out += [own - others[len(others) // 2]] if others else []
        out.append(own - sum(by_rank.values()) / len(by_rank))
    return out


def times_of_late_ranks(result):
    computing = {int(rank): us for rank, us in result["imbalance"]["computing_us"].items()}
    out = more_than_others(computing)
    names = {kernel["name"] for rank in result["ranks"] for kernel in rank["kernels"]["top"]}
    for name in names:
        out += more_than_others({rank["rank"]: sum(kernel["sum_us"] for kernel in rank["kernels"]["top"] if kernel["name"] == name)
                                 for rank in result["ranks"]})
    return out


def check_collective(name, text):
    """Checks and removes "send of 1.05 MB in group 0: 0.27 ms in 5 calls, hidden or not, 19.35 GB/s, best 26.21 GB/s seen" in the text."""
    found = re.search(r"; mainly \w+ of (\S+) MB.*?: (\S+) ms in (\d+) calls, hidden or not, (\S+) GB/s, best (\S+) GB/s seen", text)
    if found is None:
        return text
    mb, ms, calls, rate, best = (float(number) for number in found.groups())
    slowest, fastest = calls * (mb - 0.006) / (ms + 0.006), calls * (mb + 0.006) / max(ms - 0.006, 1e-9)
    expect(f"{name}: bytes by time are the rate of '{text}'", slowest - 0.006 <= rate <= fastest + 0.006, (slowest, fastest))
    expect(f"{name}: no rate above the best of '{text}'", rate <= best)
    return text[:found.start()]


def check_words(name, result, text):
    known = times_of(result, []) + times_of_late_ranks(result)
    in_ms = {f"{us / 1000:.{decimals}f}" for us in known for decimals in (2, 3)}
    in_ms |= {f"{(us + half) / 1000:.{decimals}f}" for us in known for decimals, half in ((2, 0.001), (2, -0.001))}  # ties
    lines = [line.strip() for line in text.splitlines()]
    for finding in result["findings"]:
        for number in re.findall(r"(\d+\.\d+) ms", check_collective(name, finding["text"])):
            expect(f"{name}: {number} ms of '{finding['text']}' is in no table", number in in_ms)
        expect(f"{name}: has a remedy", len(finding["remedy"]) > 10, finding)
        shown = [line for line in lines if line.endswith(finding["text"])]
        expect(f"{name}: the text shows '{finding['text']}'", len(shown) == 1, lines)
        if shown:
            ms, share = re.match(r"(\d+\.\d+) ms  (\d+\.\d+) %  ", shown[0]).groups()
            expect(f"{name}: its time and share", abs(float(ms) - finding["lost_us"] / 1000) <= 0.00501 and
                   abs(float(share) - finding["share_pct"]) <= 0.00506, (shown[0], finding))
            expect(f"{name}: the remedy follows", lines[lines.index(shown[0]) + 1] == finding["remedy"], lines)
    for command in {line for line in lines if line.startswith("msprof ")}:
        expect(f"{name}: '{command}' runs", run(*command.split()[1:]).returncode == 0)


def check(path):
    name = os.path.basename(path)
    as_json, as_text = run("analyze", path, "--json"), run("analyze", path)
    expect(f"{name}: analyze", as_json.returncode == 0 and as_text.returncode == 0, as_json.stderr)
    if as_json.returncode != 0:
        return
    result = json.loads(as_json.stdout)["result"]
    if not result.get("findings"):
        return
    check_sums(name, result)
    check_words(name, result, as_text.stdout)


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([MAKE_TRACE, os.path.join(folder, "made")], check=True, stdout=subprocess.DEVNULL)
        check(os.path.join(folder, "made"))
    synthetic = os.path.join(os.environ.get("MS_TRACE_DATA", ""), "synthetic")
    folders = sorted(os.listdir(synthetic)) if os.path.isdir(synthetic) else []
    for one in folders:
        path = os.path.join(synthetic, one)
        if not os.path.isdir(path):
            continue
        # "diff" contains two runs of one rank
        runs = [path] if one != "diff" else [os.path.join(path, each) for each in sorted(os.listdir(path))]
        for each in runs:
            check(each)
    print("FAILED" if FAILED else f"findings agree with the tables of {len(folders) + 1} traces")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
