#!/usr/bin/env python3
"""The load of experts of a run: msprof experts reads the same tokens in its traces and in its metrics."""
import json

import training

EXPERTS, TOPK, STEPS, TOKENS = 4, 2, 4, 32
MOE = f"--num-experts {EXPERTS} --moe-router-topk {TOPK} --moe-ffn-hidden-size 16 --moe-aux-loss-coeff 0.01".split()


def experts(place, *arguments):
    told = place.tool("msprof", "experts", *arguments, "--json", "--num-experts", str(EXPERTS))
    place.expect(told.exit == 0, f"msprof experts {' '.join(arguments)}", told)
    return json.loads(told.stdout)["result"]["experts"]


def tokens(use, steps=None):
    return {(layer["layer"], layer["mtp"]): layer["tokens"] for layer in use["layers"]}


def on_two_ranks(place):
    ran = place.run("--train-iters", str(STEPS), *MOE, "--expert-model-parallel-size", "2",
                    "--metrics-path", "metrics.jsonl", "--profile", "--profile-step-start", "0", "--profile-step-end", str(STEPS),
                    "--profile-ranks", "-1", "--profile-save-path", "traces", ranks=2)
    place.expect(ran.exit == 0, "a run with experts on two ranks", ran)
    metrics, traces = experts(place, "metrics.jsonl"), experts(place, "traces")
    place.expect([use["source"] for use in (metrics, traces)] == ["tokens", "rows"], "by their sources")
    place.expect(tokens(metrics) == tokens(traces) and set(tokens(traces)) == {(0, None), (1, None)},
                 f"the same tokens: {tokens(metrics)}, {tokens(traces)}")
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


with training.workplace() as workplace:
    workplace.make_data()
    on_two_ranks(workplace)
