#!/usr/bin/env python3
"""--swap-attention and --swap-optimizer in processes: the losses of a run without them, its numbers in plan and metrics, spans in the trace; a limit
of the size of files is one line with exit code 4; a folder that is absent, with 2 on every rank; and however a run ends, the folder is empty."""
import json
import os
import signal
import sys

import training

SWAP = ["--swap-attention", "--swap-dir", "tier", "--swap-min-tensor-kib", "0"]
PP2 = ["--pipeline-model-parallel-size", "2"]
LIMITED = f"ulimit -f 4; {training.NOTE_CODE}"  # KiB


def metrics(place, name):
    return [json.loads(line) for line in training.read(place.path(name)).splitlines()]


def check_numbers(place):
    train = ["--train-iters", "4", *PP2, "--global-batch-size", "4"]
    plain = place.run(*train, "--metrics-path", "plain.jsonl", ranks=2)
    swapped = place.run(*train, *SWAP, "--metrics-path", "swapped.jsonl", "--report-memory", ranks=2)
    place.expect(plain.exit == 0 and swapped.exit == 0, "both runs end well", swapped)
    place.expect(place.losses("plain.jsonl") == place.losses("swapped.jsonl"), "the losses are the same", swapped)
    place.expect("MB written" in swapped.stderr, "the log line has the tier", swapped)
    # The first stage has one layer, whose five tensors leave in each of four micro-batches.
    place.expect("swapping to tier: up to " in swapped.stderr and " MB in 20 tensors written by a rank in a step" in swapped.stderr,
                 "and the start says where, and how many", swapped)
    large = place.run("--train-iters", "1", "--swap-attention", "--swap-dir", "tier")
    place.expect(large.exit == 0 and "nothing leaves memory: no tensor has --swap-min-tensor-kib 512" in large.stderr,
                 "tensors that are all too small", large)
    planned = place.run(*train, *SWAP, "--print-plan", "--plan-world-size", "2", "--json", data=None)
    stage = json.loads(planned.stdout)["stages"][0]
    for row in metrics(place, "swapped.jsonl"):
        tier = row["swap tier"]
        place.expect(tier["bytes written"] == tier["bytes read"] == stage["swapped_bytes"] > 0, f"bytes written as planned: {row}")
        place.expect(tier["peak bytes"] == stage["memory_bytes"]["tier"] > 0, f"bytes at once as planned: {row}")
    place.expect("swap tier" not in metrics(place, "plain.jsonl")[0], "a run without it has no tier")
    text = place.run(*train, *SWAP, "--print-plan", "--plan-world-size", "2", data=None)
    place.expect("on the tier of --swap-dir" in text.stdout, "the plan has the tier", text)


def check_state(place):
    """The optimizer's state: equal losses, its numbers as planned, in a run that saves and one that continues."""
    train = ["--bf16", "--use-distributed-optimizer", "--global-batch-size", "4"]
    state = ["--swap-optimizer", "--swap-optimizer-times", "8", "--swap-dir", "tier"]
    for name, flags in (("plain", []), ("state", state)):
        for until, load in (("2", []), ("4", ["--load", f"saved_{name}", "--exit-on-missing-checkpoint"])):
            ran = place.run(*train, *flags, *load, "--train-iters", until, "--lr-decay-iters", "4", "--save", f"saved_{name}",
                            "--save-interval", "1", "--metrics-path", f"{name}{until}.jsonl", ranks=2)
            place.expect(ran.exit == 0, f"{name}: the run ends well", ran)
        place.expect("swapping the optimizer's state to tier: up to " in ran.stderr or not flags, "the start says where", ran)
    for until in ("2", "4"):
        place.expect(place.losses(f"plain{until}.jsonl") == place.losses(f"state{until}.jsonl"), "the losses are the same")
    same = place.tool("msckpt", "diff", "saved_plain/iter_0000004", "saved_state/iter_0000004")
    place.expect(same.exit == 0, "and all of the state", same)
    stages = [json.loads(place.run(*train, *flags, "--train-iters", "4", "--print-plan", "--plan-world-size", "2", "--json", data=None).stdout)["stages"][0]
              for flags in ([], state)]
    memory, whole = stages[1]["memory_bytes"], stages[0]["memory_bytes"]
    rows = metrics(place, "state4.jsonl")
    place.expect(all(row["swap tier"]["bytes written"] == row["swap tier"]["bytes read"] == stages[1]["swapped_bytes"] for row in rows),
                 f"bytes as planned: {rows}")
    place.expect(all(row["swap tier"]["peak bytes"] == memory["tier"] for row in rows), f"bytes at once as planned: {rows}")
    place.expect(0 < memory["master"] < 0.7 * whole["master"] and 0 < memory["optim"] < 0.7 * whole["optim"],
                 f"three of six chunks are in memory: {memory}, {whole}")


def check_trace(place):
    ran = place.run("--train-iters", "4", *SWAP, "--profile", "--profile-step-start", "1", "--profile-step-end", "3",
                    "--profile-level", "level1", "--profile-format", "json", "--profile-save-path", "trace")
    place.expect(ran.exit == 0, "a run with a trace ends well", ran)
    name = next(name for name in os.listdir(place.path("trace")) if name.endswith(".json"))
    events = json.loads(training.read(place.path("trace", name)))["traceEvents"]
    spans = {what: [event for event in events if event.get("name") == what and event.get("ph") == "X"]
             for what in ("swap_out", "swap_in")}
    place.expect(all(spans.values()) and len(spans["swap_out"]) == len(spans["swap_in"]), f"spans out and in: {spans}", ran)
    place.expect(all(event["cat"] == "gpu_memcpy" for event in spans["swap_out"]), "as copies", ran)


def check_limit(place):
    ran = place.run("--train-iters", "4", *SWAP, wrap=LIMITED)  # MPI itself needs larger files
    place.expect(ran.codes == [4], "with a limit: exit code 4", ran)
    place.expect(len(ran.errors) == 1 and all(word in ran.errors[0] for word in ("--swap-attention", "tier", "--swap-dir")),
                 "with a limit: one line says what to do", ran)
    ran = place.run("--train-iters", "4", "--swap-attention", "--swap-dir", "absent", ranks=2, wrap=training.NOTE_CODE,
                    mpirun=training.RECOVER)
    place.expect(ran.codes == [2, 2] and len(ran.errors) == 1 and "absent" in ran.errors[0], "a folder that is not there", ran)


def check_ends(place):
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        job = place.start("--train-iters", "1000000", *SWAP, wrap=training.NOTE_PID)
        job.wait_for_line("iteration 2/")
        os.kill(job.pid(0), number)
        ran = job.end()
        place.expect(ran.exit == 128 + number, f"ended by {number.name}", ran)
        place.expect(not os.listdir(place.path("tier")), f"{number.name}: nothing is left behind", ran)


def main():
    with training.workplace() as place:
        place.make_data()
        os.mkdir(place.path("tier"))
        check_numbers(place)
        check_state(place)
        check_trace(place)
        check_limit(place)
        check_ends(place)
        place.expect(not os.listdir(place.path("tier")), "the folder is empty")


if __name__ == "__main__":
    sys.exit(main())
