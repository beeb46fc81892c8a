#!/usr/bin/env python3
"""Every --schedules-method runs what --print-plan lists: the same actions on each stage, in the same order, in the trace."""
import collections
import json
import os
import shutil
import sys

import training

RANKS = 2
MICROBATCHES = 4
RECORD = ["--profile", "--profile-step-start", "1", "--profile-step-end", "2", "--profile-ranks", "-1", "--profile-format", "json",
         "--profile-save-path", "traces", "--metrics-path", "metrics.jsonl"]
PIPELINE = ["--pipeline-model-parallel-size", str(RANKS), "--num-layers", "4", "--global-batch-size", str(MICROBATCHES),
            "--train-iters", "2"]
CHUNKS = ["--num-virtual-stages-per-pipeline-rank", "2"]
# (flags, kinds of actions)
CASES = [
    ([], {"forward", "backward"}),
    (CHUNKS, {"forward", "backward"}),
    ([*CHUNKS, "--use-nanopipe"], {"forward", "backward_input", "backward_weight"}),
    ([*CHUNKS, "--recompute-in-bubble"], {"forward", "backward", "recompute"}),
    (["--schedules-method", "zb-h1"], {"forward", "backward_input", "backward_weight"}),
    (["--schedules-method", "zb-v"], {"forward", "backward_input", "backward_weight"}),
    (["--schedules-method", "dualpipev"], {"forward", "backward"}),
    (["--schedules-method", "dualpipev", "--dualpipev-dw-detach"], {"forward", "backward", "backward_input", "backward_weight"}),
]
SUFFIX = "-microbatch"
LETTERS = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W", "recompute": "R"}


def traced(path):
    """The actions of a trace, in the order in which they began."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    spans = [e for e in events if e.get("cat") == "user_annotation" and e["name"].endswith(SUFFIX)]
    return [e["name"].removesuffix(SUFFIX).replace("-", "_") for e in sorted(spans, key=lambda e: e["ts"])]


def expect_picture(place, name, flags, schedule):
    """msprof pipeline shows the planned actions with their micro-batches, in text and JSON, and divides the idle time by what it
    waits for."""
    told = place.tool("msprof", "pipeline", "traces", "--json")
    pipeline = json.loads(told.stdout)["result"]["pipeline"] if told.exit == 0 else {}
    actions = (pipeline or {}).get("actions")
    if not place.expect(actions is not None, f"{name}: msprof pipeline has the actions", told):
        return
    chunks = 1 + max(action["chunk"] for stage in schedule["stages"] for action in stage)
    place.expect((pipeline["microbatches"], pipeline["chunks"]) == (MICROBATCHES, chunks), f"{name}: micro-batches and chunks", told)
    # Of 1F1B, interleaved or not, this is a formula; the others are there to be better.
    ideal = (RANKS - 1) / (chunks * MICROBATCHES + RANKS - 1)
    expected = abs(pipeline["ideal_ratio"] - ideal) < 1e-5 if flags in ([], CHUNKS) else 0 < pipeline["ideal_ratio"] < 2 * ideal
    place.expect(expected and pipeline["ideal_from"] == "actions", f"{name}: the ideal is near {ideal}", told)
    for rank, planned in enumerate(schedule["stages"]):
        row = actions["per_rank"][str(rank)]
        seen = [(action["action"], action["microbatch"], action["chunk"]) for action in row["list"]]
        should_be = [(LETTERS[action["kind"]], action["microbatch"], action["chunk"]) for action in planned]
        place.expect(seen == should_be, f"{name}: msprof's actions of stage {rank}", f"{seen}\n{should_be}")
        place.expect({letter: total["count"] for letter, total in row["totals"].items()} == collections.Counter(a[0] for a in seen),
                     f"{name}: counts of the actions", row["totals"])
        times = [sum(a["dur_us"] for a in row["list"] if a["action"] == letter) for letter in row["totals"]]
        place.expect(all(abs(total["us"] - time) < 0.1 for total, time in zip(row["totals"].values(), times)),
                     f"{name}: times of the actions", f"{row['totals']} {times}")
        busy = sum(action["dur_us"] for action in row["list"])
        idle = sum(row["idle_us"].values())
        place.expect(abs(busy + idle - actions["duration_us"]) < 0.01 * actions["duration_us"],
                     f"{name}: {busy} us busy and {idle} idle of {actions['duration_us']}", told)
        place.expect(row["idle_us"]["fill"] >= 0 and row["idle_us"]["drain"] >= 0, f"{name}: no negative time", told)
    shown = place.tool("msprof", "pipeline", "traces")
    place.expect(shown.exit == 0 and all(text in shown.stdout for text in (
        f"Pipeline: {RANKS} stages, {MICROBATCHES} micro-batches, ", "Actions of the stages: F", "Stages in step 1", "their number and time")),
                 f"{name}: as text", shown)
    place.expect(" in a V, bubble" in shown.stdout if name.startswith("--schedules-method zb-v") else True, f"{name}: says that it is a V", shown)
    one = place.tool("msprof", "pipeline", "traces/rank_00001.json")
    place.expect(one.exit == 0 and "the pipeline of rank 1 continues in rank 0: give their traces too" in one.stderr,
                 f"{name}: one rank alone", one)


def main():
    with training.workplace() as place:
        place.make_data()
        losses = set()
        for flags, kinds in CASES:
            name = " ".join(flags) or "1F1B"
            plan = place.tool("mstrain", *training.MODEL, *PIPELINE, *flags, "--vocab-size", "257", "--print-plan", "--json",
                              "--plan-world-size", str(RANKS))
            if not place.expect(plan.exit == 0, f"{name}: --print-plan succeeds", plan):
                continue
            schedule = json.loads(plan.stdout)["schedule"]
            planned = [[action["kind"] for action in stage] for stage in schedule["stages"]]
            place.expect({kind for stage in planned for kind in stage} == kinds, f"{name}: kinds of actions", planned)
            ran = place.run(*PIPELINE, *flags, *RECORD, ranks=RANKS)
            if not place.expect(ran.exit == 0, f"{name}: the run succeeds", ran):
                continue
            for rank in range(RANKS):
                seen = traced(place.path("traces", f"rank_{rank:05}.json"))
                place.expect(seen == planned[rank], f"{name}: the trace of stage {rank} has the plan's actions", f"{seen}\n{planned[rank]}")
            expect_picture(place, name, flags, schedule)
            losses.add(tuple(place.losses("metrics.jsonl").values()))
            shutil.rmtree(place.path("traces"))
            os.remove(place.path("metrics.jsonl"))
        place.expect(len(losses) == 1 and len(min(losses)) == 2, f"all have the same losses: {losses}")


if __name__ == "__main__":
    sys.exit(main())
