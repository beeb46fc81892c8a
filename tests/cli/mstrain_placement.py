#!/usr/bin/env python3
"""Experts that move between ranks (--enable-expert-placement): a text of one letter sends all tokens to the same experts, of which a seed
puts all on one rank. The log names what moves, the loss is the same to the last bit, and what ranks wait for each other by
msprof experts falls to less than half."""
import json
import re

import training

EXPERTS, RANKS, STEPS, FIRST_TRACED = 8, 2, 8, 3
MODEL = ("--num-layers 1 --hidden-size 64 --ffn-hidden-size 64 --seq-length 256 --micro-batch-size 2 --global-batch-size 4 --lr 1e-6 "
         f"--num-experts {EXPERTS} --moe-router-topk 2 --moe-ffn-hidden-size 512 --expert-model-parallel-size {RANKS}").split()
PLACED = "--enable-expert-placement --expert-placement-freq 2 --print-expert-load".split()
ROWS = 4 * 256 * 2  # of a step: tokens, times the experts of each
ATTEMPTS = 3  # others may use the machine


def tokens_of_ranks(place, metrics):
    """Of each step, the tokens of the experts that each rank begins with."""
    each = EXPERTS // RANKS
    rows = [json.loads(line) for line in training.read(place.path(metrics)).splitlines()]
    loads = [row["experts"][0]["tokens"] for row in rows]
    return [[sum(load[rank * each:(rank + 1) * each]) for rank in range(RANKS)] for load in loads]


def uneven_seed(place):
    for seed in range(1, 40):
        ran = place.run("--train-iters", "1", *MODEL, "--seed", str(seed), "--metrics-path", f"seed{seed}.jsonl", ranks=RANKS)
        place.expect(ran.exit == 0, "one step", ran)
        if tokens_of_ranks(place, f"seed{seed}.jsonl") == [[ROWS, 0]]:
            return str(seed)
    raise AssertionError("no seed sends all tokens to experts of one rank")


def run(place, name, seed, *flags):
    ran = place.run("--train-iters", str(STEPS), *MODEL, "--seed", seed, *flags, "--metrics-path", f"{name}.jsonl", "--profile",
                    "--profile-step-start", str(FIRST_TRACED), "--profile-step-end", str(STEPS), "--profile-ranks", "-1",
                    "--profile-save-path", name, ranks=RANKS)
    place.expect(ran.exit == 0, name, ran)
    told = place.tool("msprof", "experts", name, "--json", "--num-experts", str(EXPERTS))
    place.expect(told.exit == 0, "msprof experts", told)
    return ran, json.loads(told.stdout)["result"]["experts"]


def moves_are_told(place, ran):
    moved = re.findall(r"iteration 2: layer 0: expert (\d+) from rank 0 to 1.*; coefficient of variation of its ranks' load (\S+), "
                       r"predicted (\S+)$", ran.stderr, re.MULTILINE)
    place.expect(len(moved) == 1 and float(moved[0][1]) > 1.41 and float(moved[0][2]) == 0, f"what moves is in the log: {moved}", ran)
    place.expect(re.search(r"iteration 2: \d+ experts of 1 of 1 layers moved in \S+ ms; this rank received \S+ MiB", ran.stderr),
                 "and what that sent", ran)
    place.expect(not re.search(r"iteration [468]: layer 0: expert", ran.stderr), "an even load leaves experts where they are", ran)


def load_is_printed(place, ran):
    loads = re.findall(r"iteration (\d+): layer 0: tokens of its ranks: (\d+) (\d+); coefficient of variation (\S+)$", ran.stderr, re.MULTILINE)
    want = [(str(i), *((str(ROWS), "0", "1.414") if i <= 2 else (str(ROWS // 2), str(ROWS // 2), "0.000"))) for i in range(1, STEPS + 1)]
    place.expect(loads == want, f"the load of ranks is in the log: {loads}", ran)


def metrics_say_where(place):
    told = place.tool("msprof", "experts", "moved0.jsonl", "--json")
    place.expect(told.exit == 0, "msprof experts of metrics", told)
    of_ranks = json.loads(told.stdout)["result"]["experts"]["layers"][0]["tokens_of_ranks"]
    place.expect(of_ranks == {"0": 2 * ROWS + (STEPS - 2) * ROWS // 2, "1": (STEPS - 2) * ROWS // 2}, f"metrics count where experts have been: {of_ranks}", told)


def waiting_falls(place):
    seed = uneven_seed(place)
    for attempt in range(ATTEMPTS):
        _, stay = run(place, f"stay{attempt}", seed)
        ran, moved = run(place, f"moved{attempt}", seed, *PLACED)
        if attempt == 0:
            moves_are_told(place, ran)
            load_is_printed(place, ran)
            place.expect(place.losses("moved0.jsonl") == place.losses("stay0.jsonl"), "the same loss to the last bit", ran)
            place.expect([layer["tokens"] for layer in moved["layers"]] == [layer["tokens"] for layer in stay["layers"]],
                         "traces count the tokens of an expert wherever it is")
            place.expect(sorted(moved["layers"][0]["tokens_of_ranks"].values()) == [ROWS * (STEPS - FIRST_TRACED) // 2] * 2,
                         f"and those of ranks: {moved['layers'][0]['tokens_of_ranks']}")
            metrics_say_where(place)
        print(f"waiting in the exchanges: {stay['wait_us']:.0f} us of experts that stay, {moved['wait_us']:.0f} us of those that moved", flush=True)
        if moved["wait_us"] <= 0.5 * stay["wait_us"]:
            return
    place.expect(False, f"half the waiting in one of {ATTEMPTS} attempts")


def plan_has_moves(place):
    plan = ["--print-plan", "--plan-world-size", str(RANKS), *MODEL, "--train-iters", "1", "--vocab-size", "257"]
    text = place.run(*plan, *PLACED, data=None)
    row = re.search(r"moves of experts every 2 steps.*\n.*\n +0 +4 +(\S+) +(\S+)\n", text.stdout)
    # weights and two moments in fp32 of 4 experts of 3 x 64 x 512
    place.expect(row and float(row[1]) == 4 * 3 * 64 * 512 * 12 / 2**20 and float(row[2]) == 0, "the plan says what moves send", text)
    place.expect("moves of experts" not in place.run(*plan, data=None).stdout, "of a run without them nothing")


with training.workplace() as workplace:
    with open(workplace.path("text.txt"), "w", encoding="utf-8") as file:
        file.write("a" * 20000)
    made = workplace.tool("msdata", "preprocess", "text.txt", "--output-prefix", "data")
    workplace.expect(made.exit == 0, "a text of one letter", made)
    waiting_falls(workplace)
    plan_has_moves(workplace)
