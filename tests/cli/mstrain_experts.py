#!/usr/bin/env python3
"""The load of experts of a run, as its traces, its metrics and its routing traces (--moe-routing-trace-path) have it: msprof experts
reads the same tokens in all three, and Megatron's own reader would (a line for each layer and micro-batch, as json.dumps writes it)."""
import json

import training

EXPERTS, TOPK, STEPS, TOKENS = 4, 2, 4, 32
MOE = f"--num-experts {EXPERTS} --moe-router-topk {TOPK} --moe-ffn-hidden-size 16 --moe-aux-loss-coeff 0.01".split()
LAYOUTS = [("allgather", 2, "--expert-model-parallel-size 2 --moe-token-dispatcher-type allgather"),
           ("parts", 4, "--expert-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel"),
           ("stages", 4, "--expert-model-parallel-size 2 --pipeline-model-parallel-size 2"),
           ("mtp", 2, "--expert-model-parallel-size 2 --mtp-num-layers 1 --moe-alltoall-overlap-comm --moe-shared-expert-intermediate-size 16")]
KEYS = ["step", "stage", "block", "layer", "rank", "num_tokens", "topk", "top_indices"]


def experts(place, *arguments):
    told = place.tool("msprof", "experts", *arguments, "--json", "--num-experts", str(EXPERTS))
    place.expect(told.exit == 0, f"msprof experts {' '.join(arguments)}", told)
    return json.loads(told.stdout)["result"]["experts"]


def tokens(use):
    return {(layer["layer"], layer["mtp"]): layer["tokens"] for layer in use["layers"]}


def check_routing(place, folder, ranks, last=STEPS):
    for rank in range(ranks):
        lines = training.read(place.path(folder, f"router_trace_rank{rank}.jsonl")).splitlines()
        records = [json.loads(line) for line in lines]
        place.expect(all(json.dumps(record) == line for record, line in zip(records, lines)), "written as json.dumps does")
        place.expect(all(list(record) == KEYS for record in records), "with Megatron's keys")
        place.expect([record["step"] for record in records] == sorted(record["step"] for record in records), "in order of the steps")
        place.expect({record["step"] for record in records} == set(range(last)), f"{last} steps")
        for record in records:
            rows = record["top_indices"]
            place.expect(len(rows) == record["num_tokens"] and all(len(set(row)) == record["topk"] == TOPK for row in rows)
                         and all(row == sorted(row) for row in rows) and record["rank"] == rank, f"a whole record: {record}")


def on_two_ranks(place):
    ran = place.run("--train-iters", str(STEPS), *MOE, "--expert-model-parallel-size", "2", "--moe-routing-trace-path", "routes",
                    "--metrics-path", "metrics.jsonl", "--profile", "--profile-step-start", "0", "--profile-step-end", str(STEPS),
                    "--profile-ranks", "-1", "--profile-save-path", "traces", ranks=2)
    place.expect(ran.exit == 0, "a run with experts on two ranks", ran)
    check_routing(place, "routes", 2)
    metrics, routes, traces = experts(place, "metrics.jsonl"), experts(place, "routes"), experts(place, "traces")
    place.expect([use["source"] for use in (metrics, routes, traces)] == ["tokens", "chosen", "rows"], "by their sources")
    place.expect(tokens(metrics) == tokens(routes) == tokens(traces) and set(tokens(traces)) == {(0, None), (1, None)},
                 f"the same tokens: {tokens(metrics)}, {tokens(routes)}, {tokens(traces)}")
    place.expect(all(sum(of) == STEPS * TOKENS * TOPK for of in tokens(traces).values()), "k for each token", ran)
    place.expect([step["tokens"] for step in traces["steps"]] == [2 * TOKENS * TOPK] * STEPS, f"in each step: {traces['steps']}")
    for layer in traces["layers"]:
        place.expect(list(layer["tokens_of_ranks"].values()) == [sum(layer["tokens"][:2]), sum(layer["tokens"][2:])],
                     f"two experts of four on each rank: {layer}")
        # counts and rows forward, rows and weights backward; another exchange of counts in backward there is none
        counts = [layer[f"{kind}_exchanges"] for kind in ("dispatch", "combine", "dispatch_gradient", "combine_gradient")]
        place.expect(counts == [2 * STEPS, STEPS, 2 * STEPS, 2 * STEPS], f"the exchanges of each layer are found: {counts}")
    report = place.tool("msprof", "report", "traces", "-o", "report.html")
    page = training.read(place.path("report.html"))
    place.expect(report.exit == 0 and 'id="table-experts"' in page and '"load":"' in page, "and shown in the report", report)


def in_layouts(place):
    for name, ranks, flags in LAYOUTS:
        ran = place.run("--train-iters", "2", *MOE, *flags.split(), "--global-batch-size", "4", "--moe-routing-trace-path", f"{name}/routes",
                        "--metrics-path", f"{name}.jsonl", "--profile", "--profile-step-start", "0", "--profile-step-end", "2",
                        "--profile-ranks", "-1", "--profile-save-path", f"{name}/traces", ranks=ranks)
        place.expect(ran.exit == 0, name, ran)
        uses = [experts(place, what) for what in (f"{name}.jsonl", f"{name}/routes", f"{name}/traces")]
        seen = [tokens(use) for use in uses]
        place.expect(seen[0] == seen[1] == seen[2], f"{name}: the same tokens in metrics, routing traces and traces: {seen}")
        steps = [[(step["step"], step["tokens"]) for step in use["steps"]] for use in uses]
        place.expect(steps[0] == steps[1] == steps[2] and [step for step, _ in steps[0]] == [0, 1], f"{name}: in the same steps: {steps}")


def of_one_rank(place):
    """What recomputation and evaluation route is not recorded."""
    ran = place.run("--train-iters", "3", *MOE, "--moe-routing-trace-path", "alone", "--moe-routing-trace-max-training-iters", "2",
                    "--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "2",
                    "--metrics-path", "alone.jsonl", "--eval-iters", "1", "--eval-interval", "1",
                    "--train-data-path", "data_text_document", "--valid-data-path", "data_text_document", data=None)
    place.expect(ran.exit == 0, "a run with recomputation", ran)
    check_routing(place, "alone", 1, last=2)
    place.expect([sum(of) for of in tokens(experts(place, "alone")).values()] == [2 * TOKENS * TOPK] * 2, "two of three iterations")
    place.expect([sum(of) for of in tokens(experts(place, "alone.jsonl")).values()] == [3 * TOKENS * TOPK] * 2, "metrics have three")
    ran = place.run("--train-iters", "1", *MOE, "--moe-routing-trace-path", "/dev/null/no")
    place.expect(ran.exit == 4 and len(ran.errors) == 1 and "--moe-routing-trace-path /dev/null/no" in ran.errors[0],
                 "a folder that cannot be", ran)


with training.workplace() as workplace:
    workplace.make_data()
    on_two_ranks(workplace)
    in_layouts(workplace)
    of_one_rank(workplace)
