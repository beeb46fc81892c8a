#!/usr/bin/env python3
"""Compares time and peak memory of whole training steps of a mixture of experts: one mstrain rank and transformers at its best.

  mixture_speed.py [--kinds eager compiled] [--rounds 3] [--steps 2] [--threads 2] [--bf16] [--json FILE]

Mixtral's block with hidden 512, 8 layers, 32 experts of 256 of which 4 get each token, vocabulary 8,192, one sample of 2,048
tokens, in fp32, or bf16 with --bf16 (transformers': autocast). A step is forward, backward, clipping and AdamW. The best of
transformers is the fastest of its implementations of experts, eager and compiled, with the fused or the foreach AdamW, chosen in a
separate round; then runs of both alternate. Every run is a separate process; the first two steps of each are not counted. A
round's ratio is between medians.

`most` is the ratio with an mstrain that did nothing but the model's FLOPs at the fp32 multiply-adds that `mstrain --benchmark`
reaches on registers in the same round. Needs numpy, torch and transformers (exit 77 without); MS_BIN is the folder of mstrain.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

import peers

peers.need("numpy", "torch", "transformers", programs=("mstrain",))

LAYERS, HIDDEN, HEADS, VOCABULARY, EXPERTS, WIDTH, TOPK, LENGTH = 8, 512, 8, 8192, 32, 256, 4, 2048
DROPPED = 2  # steps at the start of a run
SHAPE = {"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
         "vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "num_local_experts": EXPERTS, "num_experts_per_tok": TOPK,
         "intermediate_size": WIDTH, "sliding_window": None}
FLAGS = ["--num-layers", LAYERS, "--hidden-size", HIDDEN, "--num-attention-heads", HEADS, "--vocab-size", VOCABULARY - 1,
         "--make-vocab-size-divisible-by", 128, "--tokenizer-type", "NullTokenizer", "--num-experts", EXPERTS, "--moe-router-topk", TOPK,
         "--moe-ffn-hidden-size", WIDTH, "--swiglu", "--normalization", "RMSNorm", "--position-embedding-type", "rope",
         "--disable-bias-linear", "--untie-embeddings-and-output-weights", "--hidden-dropout", 0, "--attention-dropout", 0,
         "--seq-length", LENGTH, "--micro-batch-size", 1]
KINDS = {"eager": [["--experts", "grouped_mm"], ["--experts", "eager"]], "compiled": [["--experts", "grouped_mm", "--compile"]]}


def model_flops():
    """Of a step; attention is causal."""
    matrices = LAYERS * (4 * HIDDEN ** 2 + EXPERTS * HIDDEN + TOPK * 3 * HIDDEN * WIDTH) + VOCABULARY * HIDDEN
    return LENGTH * (6 * matrices + 6 * LAYERS * HIDDEN * LENGTH)


def checked(command):
    finished = peers.measured(command)
    if finished.exit_code != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {finished.exit_code}")
    return finished


def ours(folder, given):
    """Seconds per step, MiB, the first loss."""
    import numpy
    metrics, tokens = folder / "metrics.jsonl", folder / "tokens"
    metrics.unlink(missing_ok=True)
    steps = given.steps + DROPPED
    peers.in_child(lambda: peers.write_indexed_dataset(tokens, [numpy.random.RandomState(1).randint(VOCABULARY - 1, size=steps * LENGTH + 1)]))
    run = checked([peers.binary("mstrain"), *FLAGS, "--threads-per-rank", given.threads, "--train-iters", steps, "--lr", 1e-4,
                   "--eval-iters", 0, "--train-data-path", tokens, "--data-cache-path", folder / "cache", "--metrics-path", metrics,
                   "--peak-tflops", 1, "--log-level", "error", *(["--bf16"] if given.bf16 else [])])
    told = [json.loads(line) for line in metrics.read_text().splitlines()]
    seconds = [step["elapsed time per iteration (ms)"] * 1e-3 for step in told]
    return {"seconds": statistics.median(seconds[DROPPED:]), "mib": run.peak_mib, "loss": told[0]["lm loss"]}


def theirs(words, steps, given):
    script = pathlib.Path(__file__).with_name("transformers_moe.py")
    run = checked([sys.executable, script, "--shape", json.dumps(SHAPE), "--steps", steps + DROPPED, "--threads", given.threads, *words,
                   *(["--bf16"] if given.bf16 else [])])
    told = json.loads(run.out)
    return {"seconds": statistics.median(told["seconds"][DROPPED:]), "mib": run.peak_mib, "loss": told["first_loss"]}


def best_of_theirs(given):
    """Its words: first the implementation, then the optimizer."""
    tried = [words for kind in given.kinds for words in KINDS[kind]]
    if len(tried) > 1:
        tried = [min(tried, key=lambda words: theirs(words, 1, given)["seconds"])]
    return min((tried[0], [*tried[0], "--foreach"]), key=lambda words: theirs(words, 1, given)["seconds"])


def ceiling(given):
    """FLOP/s of fp32 multiply-adds at this moment."""
    told = peers.run("mstrain", "--benchmark", "--json", "--num-layers", 1, "--hidden-size", 64, "--num-attention-heads", 1,
                     "--vocab-size", 127, "--tokenizer-type", "NullTokenizer", "--seq-length", 64, "--micro-batch-size", 1,
                     "--threads-per-rank", given.threads)
    return json.loads(told)["ceiling_gflops"] * 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=sorted(KINDS))
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, in turns")
    parser.add_argument("--steps", type=int, default=2, help="timed steps of a run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, help="keeps every round")
    given = parser.parse_args()
    best = best_of_theirs(given)
    rounds = []
    with tempfile.TemporaryDirectory() as temporary:
        for _ in range(given.rounds):
            rounds.append({"flops": ceiling(given), "ours": ours(pathlib.Path(temporary), given), "theirs": theirs(best, given.steps, given)})
    told = {"kind": " ".join(word.removeprefix("--") for word in best), "rounds": rounds, "load": os.getloadavg()[0],
            "ratio": statistics.median(one["theirs"]["seconds"] / one["ours"]["seconds"] for one in rounds),
            "most": statistics.median(one["theirs"]["seconds"] * one["flops"] / model_flops() for one in rounds),
            "mfu": statistics.median(model_flops() / one["ours"]["seconds"] / one["flops"] for one in rounds)}
    for side in ("ours", "theirs"):
        told[side] = {key: statistics.median(one[side][key] for one in rounds) for key in ("seconds", "mib", "loss")}
    if abs(told["ours"]["loss"] / told["theirs"]["loss"] - 1) > 0.05:
        sys.exit(f"an untrained loss of {told['ours']['loss']}, theirs {told['theirs']['loss']}: not the same model")
    print(f"{told['ratio']:.2f} x transformers ({told['kind']}), {told['ours']['seconds']:.3f} s and {told['theirs']['seconds']:.3f} s, "
          f"{100 * told['mfu']:.0f} % of the multiply-adds, with all of them {told['most']:.2f} x; {told['ours']['mib']:.0f} MiB and "
          f"{told['theirs']['mib']:.0f} MiB; load {told['load']:.1f}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
