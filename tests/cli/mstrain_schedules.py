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
# (flags, kinds of actions, tensor-parallel ranks)
PAIRS = ["--schedules-method", "dualpipev"]
CASES = [
    ([], {"forward", "backward"}, 1),
    (CHUNKS, {"forward", "backward"}, 1),
    ([*CHUNKS, "--use-nanopipe"], {"forward", "backward_input", "backward_weight"}, 1),
    ([*CHUNKS, "--recompute-in-bubble"], {"forward", "backward", "recompute"}, 1),
    (["--schedules-method", "zb-h1"], {"forward", "backward_input", "backward_weight"}, 1),
    (["--schedules-method", "zb-v"], {"forward", "backward_input", "backward_weight"}, 1),
    (["--schedules-method", "dualpipev"], {"forward", "backward"}, 1),
    (["--schedules-method", "dualpipev", "--dualpipev-dw-detach"], {"forward", "backward", "backward_input", "backward_weight"}, 1),
    ([*PAIRS, "--dualpipev-dw-detach"], {"forward", "backward", "backward_input", "backward_weight"}, 2),
    ([*PAIRS, "--delay-wgrad-compute", "--sequence-parallel"], {"forward", "backward", "backward_input", "backward_weight"}, 2),
]
SUFFIX = "-microbatch"
LETTERS = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W", "recompute": "R"}


def traced(path):
    """The actions of a trace as (kind, micro-batch, chunk), in the order in which they began. Those that are interleaved have several
    spans."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    spans = [e for e in events if e.get("cat") == "user_annotation" and e["name"].endswith(SUFFIX)]
    actions = [(e["name"].removesuffix(SUFFIX).replace("-", "_"), e["args"]["microbatch"], e["args"]["chunk"])
               for e in sorted(spans, key=lambda e: e["ts"])]
    return list(dict.fromkeys(actions)), len(actions)


def begins_pair(actions, i):
    """Whether a forward and the backward of another chunk behind it are interleaved."""
    return i + 1 < len(actions) and actions[i][0] in ("F", "forward") and actions[i + 1][0] in ("B", "I", "backward", "backward_input") \
        and actions[i][2] != actions[i + 1][2]


def in_turn(planned, tp):
    """The planned actions as a list of sets: of a pair either may begin."""
    groups, i = [], 0
    while i < len(planned):
        count = 2 if tp > 1 and begins_pair(planned, i) else 1
        groups.append(set(planned[i:i + count]))
        i += count
    return groups


def grouped(seen, groups):
    seen, result = list(seen), []
    for group in groups:
        result.append(set(seen[:len(group)]))
        seen = seen[len(group):]
    return result + ([set(seen)] if seen else [])


def expect_picture(place, name, flags, schedule, tp):
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
    for rank in range(RANKS * tp):
        planned = schedule["stages"][rank // tp]
        row = actions["per_rank"][str(rank)]
        seen = list(dict.fromkeys((action["action"], action["microbatch"], action["chunk"]) for action in row["list"]))
        should_be = in_turn([(LETTERS[action["kind"]], action["microbatch"], action["chunk"]) for action in planned], tp)
        place.expect(grouped(seen, should_be) == should_be, f"{name}: msprof's actions of stage {rank}", f"{seen}\n{should_be}")
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
    if tp > 1:
        return
    one = place.tool("msprof", "pipeline", "traces/rank_00001.json")
    place.expect(one.exit == 0 and "the pipeline of rank 1 continues in rank 0: give their traces too" in one.stderr,
                 f"{name}: one rank alone", one)


def main():
    with training.workplace() as place:
        place.make_data()
        losses = {1: set(), 2: set()}
        for flags, kinds, tp in CASES:
            name = " ".join(flags) or "1F1B"
            size = ["--tensor-model-parallel-size", str(tp)]
            plan = place.tool("mstrain", *training.MODEL, *PIPELINE, *size, *flags, "--vocab-size", "257", "--print-plan", "--json",
                              "--plan-world-size", str(RANKS * tp))
            if not place.expect(plan.exit == 0, f"{name}: --print-plan succeeds", plan):
                continue
            schedule = json.loads(plan.stdout)["schedule"]
            planned = [[(action["kind"], action["microbatch"], action["chunk"]) for action in stage] for stage in schedule["stages"]]
            place.expect({action[0] for stage in planned for action in stage} == kinds, f"{name}: kinds of actions", planned)
            ran = place.run(*PIPELINE, *size, *flags, *RECORD, ranks=RANKS * tp)
            if not place.expect(ran.exit == 0, f"{name}: the run succeeds", ran):
                continue
            for rank in range(RANKS * tp):
                seen, spans = traced(place.path("traces", f"rank_{rank:05}.json"))
                should_be = in_turn(planned[rank // tp], tp)
                place.expect(grouped(seen, should_be) == should_be, f"{name}: the trace of rank {rank} has the plan's actions",
                             f"{seen}\n{should_be}")
                place.expect((spans > len(seen)) == (tp > 1), f"{name}: pairs are interleaved with tensor parallelism", f"{spans} {len(seen)}")
            expect_picture(place, name, flags, schedule, tp)
            losses[tp].add(tuple(place.losses("metrics.jsonl").values()))
            shutil.rmtree(place.path("traces"))
            os.remove(place.path("metrics.jsonl"))
        for of_size in losses.values():
            place.expect(len(of_size) == 1 and len(min(of_size)) == 2, f"all have the same losses: {of_size}")


if __name__ == "__main__":
    sys.exit(main())
