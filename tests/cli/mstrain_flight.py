#!/usr/bin/env python3
"""The flight recorder of a run: where its files are and when they stay, what msprof flight says of them, and the one line of a
run whose rank is stopped. --log-straggler and --check-weight-hash-across-dp-replicas-interval of a healthy run."""
import json
import os
import re
import signal
import sys

import training

TIMEOUT_S = 3 * training.SLOWER
LAYOUT = ["--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2", "--global-batch-size", "4"]


def leftovers():
    """Folders of flight records in memory, msuite-flight-USER-PROCESS-.., of runs that have ended: others run beside this one."""
    names = {name for name in os.listdir("/dev/shm") if name.startswith("msuite-flight-")}
    return {name for name in names if not os.path.exists(f"/proc/{name.split('-')[3]}")}


def healthy(place):
    before = leftovers()
    ran = place.run("--train-iters", "3", "--log-straggler", "--straggler-minmax-count", "2", "--check-weight-hash-across-dp-replicas-interval",
                    "2", "--use-distributed-optimizer", ranks=2)
    place.expect(ran.exit == 0, "a healthy run", ran)
    place.expect(leftovers() <= before, f"nothing stays in memory after it: {leftovers() - before}")
    lines = re.findall(r"train\.straggler\] (?:no )?straggler: rank \d made the others wait .* \| waited most: rank \d", ran.stderr)
    place.expect(len(lines) == 3 and all(line.count("made the others wait") == 1 for line in lines) and " wait -" not in ran.stderr,
                 "a straggler line after each log line, of the one of two that made the other wait", ran)
    hashes = re.findall(r"weight hashes match after (\d+) iterations", ran.stderr)
    place.expect(hashes == ["0", "2"], f"weights are compared before the first step and every second one: {hashes}", ran)

    ran = place.run("--train-iters", "3", *LAYOUT, "--flight-recorder-dump-path", "records", "--flight-recorder-trace-buffer-size", "50", ranks=4)
    place.expect(ran.exit == 0, "records in a folder", ran)
    flight = place.tool("msprof", "flight", "records", "--json", "--operations", "1000")
    result = json.loads(flight.stdout)["result"]
    place.expect(result["findings"] == [], "all ranks agree", flight)
    place.expect([rank["process"] for rank in result["ranks"]] == ["ended"] * 4 and result["reported"] == [], "all have ended", flight)
    place.expect(all(rank["operations"] == 50 for rank in result["ranks"]), "the last 50 operations of each", flight)
    place.expect({"tp", "pp", "model", "world"} <= {row["group"] for row in result["operations"]}, "of every group", flight)
    doing = " ".join(row["doing"] or "" for row in result["operations"])
    place.expect("forward, micro-batch 1, iteration 3" in doing and "backward, micro-batch 1, iteration 3" in doing, "with what the rank was doing",
                 flight)

    flight = place.tool("msprof", "flight", "records")
    place.expect(flight.stdout.startswith("The run has ended as it should: ranks 0, 1, 2, 3 say so.\n"), "which the text says", flight)
    flight = place.tool("msprof", "flight", "records/rank_00001.flight")
    place.expect(flight.exit == 0 and flight.stdout.startswith(
        "The run has ended as it should: rank 1 says so. Here is no record of ranks 0, 2, 3.\n"), "and of one of its files", flight)

    ran = place.run("--train-iters", "1", ranks=1, data="data_text_document")
    place.expect(ran.exit == 0 and leftovers() <= before, "one rank alone records nothing", ran)
    ran = place.run("--train-iters", "1", "--flight-recorder-dump-path", "/dev/null/no", ranks=2)
    place.expect(ran.exit == 4 and len(ran.errors) == 1 and "/dev/null/no" in ran.errors[0], "a folder that cannot be is an error", ran)


def stopped(place):
    job = place.start("--train-iters", "1000000", "--log-interval", "20", *LAYOUT, "--distributed-timeout-minutes", str(TIMEOUT_S / 60), ranks=4,
                      wrap=training.NOTE_PID)
    job.wait_for_line("iteration 20/")
    os.kill(job.pid(2), signal.SIGSTOP)
    ran = job.end()
    place.expect(ran.exit == 5, "the run ends with code 5", ran)
    place.expect(len(ran.errors) == 1 and "rank [2] silent" in ran.errors[0] and "is stopped" in ran.errors[0] and " in group " in ran.errors[0],
                 "one line names the stopped rank, operation and group", ran)
    found = re.search(r"msprof flight (\S+)", ran.errors[0] if ran.errors else "")
    if not place.expect(found is not None, "and where the records are", ran):
        return
    folder = found.group(1)
    flight = place.tool("msprof", "flight", folder)
    lines = flight.stdout.splitlines()
    place.expect(flight.exit == 0 and lines[0].startswith("Reported: ") and "rank [2] silent" in lines[0], "msprof flight prints that line", flight)
    place.expect(lines[1] == "" and not any(line.startswith(("Cause", "Records", "Also")) for line in lines),
                 "and nothing that the records only suggest", flight)
    waited = [rank["waited_us"] for rank in json.loads(place.tool("msprof", "flight", folder, "--json").stdout)["result"]["ranks"]]
    place.expect(any(us is not None and us > 0.5e6 * TIMEOUT_S for us in waited), f"the ranks that wait have waited for the time-out: {waited}", flight)
    for inputs in [folder], [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".flight")]:
        flight = place.tool("msprof", "flight", *inputs, "--json")
        reported = json.loads(flight.stdout)["result"]["reported"]
        place.expect([row["file"] for row in reported] == [os.path.join(folder, "verdict")] and "rank [2] silent" in reported[0]["text"],
                     "JSON has that line too, also of single files", flight)
    place.expect("Reported\n" not in place.tool("msprof", "flight", folder).stdout, "the text has it once", flight)
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    os.rmdir(folder)


def shared(place):
    """Two runs with one --flight-recorder-dump-path, and files in it that are not ours."""
    flags = [*LAYOUT, "--flight-recorder-dump-path", "shared"]
    job = place.start("--train-iters", "1000000", "--log-interval", "20", *flags, ranks=4, wrap=training.NOTE_PID)
    job.wait_for_line("iteration 20/")
    before = training.read(place.path("shared", "rank_00000.flight"))
    ran = place.run("--train-iters", "1", *flags, ranks=4)
    place.expect(ran.exit == 4 and len(ran.errors) == 1 and "--flight-recorder-dump-path: " in ran.errors[0] and
                 re.search(r"process (%d), rank 0 of a run of 4 ranks that goes on" % job.pid(0), ran.errors[0]),
                 "the second run names the live one", ran)
    place.expect(os.path.exists(place.path("shared", "rank_00003.flight")) and before != "", "whose records stay", ran)
    flight = place.tool("msprof", "flight", "shared", "--json")
    place.expect([rank["process"] for rank in json.loads(flight.stdout)["result"]["ranks"]] == ["runs"] * 4, "and go on", flight)
    flight = place.tool("msprof", "flight", "shared")
    place.expect(re.match(r"The run goes on: |No rank waits for another one", flight.stdout) and "Cause" not in flight.stdout,
                 "so that no wait is called a cause", flight)
    os.kill(job.pid(3), signal.SIGKILL)
    job.end()
    for name in "rank_00009.flight", "notes.txt":
        with open(place.path("shared", name), "w", encoding="utf-8") as file:
            file.write("of another program")
    ran = place.run("--train-iters", "1", *flags, ranks=4)
    place.expect(ran.exit == 0 and "shared: the records of an earlier run are replaced, " in ran.stderr and
                 "rank_00009.flight; they stay" in ran.stderr, "records of a dead run are replaced, which is said", ran)
    place.expect(sorted(os.listdir(place.path("shared"))) ==
                 ["notes.txt", *(f"rank_0000{rank}.flight" for rank in (0, 1, 2, 3, 9))], "what others wrote stays", ran)
    for name in "rank_00001.flight", "verdict":
        with open(place.path("shared", name), "w", encoding="utf-8") as file:
            file.write("of another program")
        ran = place.run("--train-iters", "1", *flags, ranks=4)
        place.expect(ran.exit == 2 and len(ran.errors) == 1 and f"shared/{name} exists, and no run of mstrain has written it" in ran.errors[0],
                     f"{name} of another program is not overwritten", ran)
        place.expect(training.read(place.path("shared", name)) == "of another program", f"{name} stays", ran)
        os.remove(place.path("shared", name))


def main():
    with training.workplace() as place:
        place.make_data()
        shared(place)
        healthy(place)
        stopped(place)


if __name__ == "__main__":
    sys.exit(main())
