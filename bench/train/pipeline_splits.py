#!/usr/bin/env python3
"""The layers that --automated-pipeline gives each stage, compared with all other splits, as measured: whole runs of mstrain on two
stages, in turns, for a model with one heavy layer (the only one without a sliding window) and one with a large vocabulary.

  bench/train/pipeline_splits.py [--rounds 3] [--steps 12]

A split's time is the median of its steps of all rounds, without each run's first two. The automated run must be within 5 % of the
fastest split. Needs a free core for each stage: the load is printed.
"""
import argparse
import json
import os
import re
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../peers"), os.path.join(HERE, "../../tests/cli")]
import peers  # noqa: E402
import training  # noqa: E402

LAYERS, STAGES, WARM_UP, WITHIN = 8, 2, 2, 1.05
COMMON = (f"--num-layers {LAYERS} --pipeline-model-parallel-size {STAGES} --swiglu --normalization RMSNorm --position-embedding-type rope "
          "--disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --micro-batch-size 1 --global-batch-size 8 --lr 1e-3 "
          "--lr-decay-style constant --eval-iters 0 --log-interval 1 --threads-per-rank 1").split()
MODELS = {
    "one layer without window": "--hidden-size 64 --num-attention-heads 4 --ffn-hidden-size 128 --seq-length 2048 --sliding-window 32 "
                                "--window-attn-skip-freq [0]+[1]*7".split(),
    "large vocabulary": "--hidden-size 256 --num-attention-heads 4 --ffn-hidden-size 1024 --seq-length 256 --vocab-size 8191 "
                        "--tokenizer-type NullTokenizer --untie-embeddings-and-output-weights".split(),
}


def run(place, model, flags, steps):
    """(milliseconds of each step behind the warm-up, the log)"""
    metrics = f"metrics{place.runs}.jsonl"
    ran = place.run("--train-iters", str(steps), "--metrics-path", metrics, *flags, ranks=STAGES, model=COMMON + MODELS[model], limit_s=600)
    if ran.exit != 0:
        sys.exit(str(ran))
    rows = [json.loads(line) for line in training.read(place.path(metrics)).splitlines()]
    return [row["elapsed time per iteration (ms)"] for row in rows][WARM_UP:], ran.stderr


def compare(place, model, given):
    splits = [f"{first},{LAYERS - first}" for first in range(LAYERS + 1)]
    times = {split: [] for split in splits + ["automated"]}
    chosen = set()
    for _ in range(given.rounds):
        for split in splits:
            times[split] += run(place, model, ["--num-layer-list", split], given.steps)[0]
        seen, log = run(place, model, ["--automated-pipeline"], given.steps)
        times["automated"] += seen
        chosen.add(re.search(r"automated pipeline: --num-layer-list ([\d,]+)", log)[1])
    medians = {split: statistics.median(seen) for split, seen in times.items()}
    best = min(splits, key=medians.get)
    ratio = medians["automated"] / medians[best]
    print(f"{model}: " + ", ".join(f"{split} {ms:.1f}" for split, ms in medians.items()) + " ms")
    print(f"{model}: automated took {' and '.join(sorted(chosen))}, fastest is {best}: {ratio:.3f} of its time (<= {WITHIN}), "
          f"slowest {max(medians.values()) / medians[best]:.2f}", flush=True)
    place.expect(ratio <= WITHIN, f"{model}: {ratio:.3f} of the fastest split's time")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    for name in ("mstrain", "msdata"):
        os.environ["MS_BIN"] = os.path.dirname(peers.binary(name))  # where training.py looks
    sys.argv = [sys.argv[0]]
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    with training.workplace() as place:
        place.make_data(200000)
        for model in MODELS:
            compare(place, model, given)


if __name__ == "__main__":
    main()
