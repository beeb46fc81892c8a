#!/usr/bin/env python3
"""Compares time and peak memory of whole training steps: one mstrain rank and torch at its best, on the same two models.

  torch_speed.py [--models gpt2 llama] [--dtypes fp32 bf16] [--shapes 4x64 4x1024 1x4096] [--rounds 3] [--json FILE]

124 M parameters: 12 layers, hidden 768, 12 heads, vocabulary 50304, tied; GPT-2's block (LayerNorm, biases, GELU, learned
positions) and Llama's (RMSNorm, SwiGLU of 2048, RoPE). A step is forward, backward, clipping and AdamW; bf16 is --bf16
here and torch.autocast there. Torch's best is the faster of eager and compiled (torch_gpt.py; both with fused attention
and fused AdamW), chosen in a separate round; then runs of both alternate. With bf16 mstrain's weights are one half of its
master weights; from 1024 tokens on it computes logits in chunks and recomputes norms, activations and some layers, as many
as the memory bars require (memory_flags). Every run is a separate process; the first two steps of each are not counted. A
round's ratio is between medians. The table has the median ratio and its range, seconds per step, the peak memory of the
process, and MFU: model FLOPs (causal attention, no recomputation) over the fp32 multiply-adds that `mstrain --benchmark`
reaches on registers in the same round. Other load on the machine slows spinning threads most, so the load is printed.
Needs numpy and torch (exit 77 without); MS_BIN is the folder of mstrain.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

import peers

peers.need("numpy", "torch", programs=("mstrain",))

LAYERS, HIDDEN, HEADS, VOCABULARY = 12, 768, 12, 50304
DROPPED = 2  # steps at the start of a run
FLAGS = ["--num-layers", LAYERS, "--hidden-size", HIDDEN, "--num-attention-heads", HEADS, "--vocab-size", VOCABULARY - 1,
         "--tokenizer-type", "NullTokenizer", "--make-vocab-size-divisible-by", 128, "--hidden-dropout", 0,
         "--attention-dropout", 0]
CHUNK_ROWS = 128  # of logits
LAYERS_RUN_TWICE = {1024: {"fp32": 1, "bf16": 2}, 4096: {"fp32": 6, "bf16": 9}}
LLAMA = ["--swiglu", "--ffn-hidden-size", 2048, "--normalization", "RMSNorm", "--position-embedding-type", "rope",
         "--disable-bias-linear"]


def model_flops(batch, length):
    """FLOPs of a step; both models have the same number of weights in matrices."""
    matrices = 12 * LAYERS * HIDDEN ** 2 + VOCABULARY * HIDDEN
    return batch * length * (6 * matrices + 6 * LAYERS * HIDDEN * length)


def memory_flags(case):
    shared = ["--reuse-fp32-param"] if case["dtype"] == "bf16" else []
    if case["length"] < 1024:
        return shared
    return [*shared, "--loss-chunk-size", CHUNK_ROWS // case["batch"], "--recompute-norm", "--recompute-activation-function",
            "--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers",
            LAYERS_RUN_TWICE[4096 if case["length"] >= 4096 else 1024][case["dtype"]]]


def flags(case, arguments):
    return [*FLAGS, *(LLAMA if case["model"] == "llama" else []), "--seq-length", case["length"], "--micro-batch-size",
            case["batch"], "--threads-per-rank", arguments.threads, *(["--bf16"] if case["dtype"] == "bf16" else []),
            *memory_flags(case), *arguments.mstrain.split()]


def checked(command):
    finished = peers.measured(command)
    if finished.exit_code != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {finished.exit_code}")
    return finished


def ours(folder, case, steps, arguments):
    """Seconds per step, MiB, the first loss."""
    import numpy
    metrics, tokens = folder / "metrics.jsonl", folder / "tokens"
    metrics.unlink(missing_ok=True)
    count = (steps + DROPPED) * case["batch"] * case["length"] + 1
    peers.in_child(lambda: peers.write_indexed_dataset(tokens, [numpy.random.RandomState(1).randint(VOCABULARY - 1, size=count)]))
    run = checked([peers.binary("mstrain"), *flags(case, arguments), "--train-iters", steps + DROPPED, "--lr", 1e-4,
                   "--eval-iters", 0, "--train-data-path", tokens, "--data-cache-path", folder / "cache",
                   "--metrics-path", metrics, "--peak-tflops", 1, "--log-level", "error"])
    told = [json.loads(line) for line in metrics.read_text().splitlines()]
    seconds = [step["elapsed time per iteration (ms)"] * 1e-3 for step in told]
    return statistics.median(seconds[DROPPED:]), run.peak_mib, told[0]["lm loss"]


def theirs(case, steps, compiled, arguments):
    script = pathlib.Path(__file__).with_name("torch_gpt.py")
    run = checked([sys.executable, script, "--model", case["model"], "--dtype", case["dtype"], "--batch", case["batch"],
                   "--seq-length", case["length"], "--steps", steps + DROPPED, "--threads", arguments.threads,
                   *(["--compile"] if compiled else [])])
    told = json.loads(run.out)
    return statistics.median(told["seconds"][DROPPED:]), run.peak_mib, told["first_loss"]


def ceiling(arguments):
    """GFLOP/s of fp32 multiply-adds at this moment."""
    told = peers.run("mstrain", "--benchmark", "--json", "--num-layers", 1, "--hidden-size", 64, "--num-attention-heads", 1,
                     "--vocab-size", 127, "--tokenizer-type", "NullTokenizer", "--seq-length", 64, "--micro-batch-size", 1,
                     "--threads-per-rank", arguments.threads)
    return json.loads(told)["ceiling_gflops"]


def compare(folder, case, arguments):
    kinds = {"eager": False, "compiled": True}
    if len(arguments.torch) < 2:
        best = arguments.torch[0]
    else:
        best = min(kinds, key=lambda kind: theirs(case, 1, kinds[kind], arguments)[0])
    rounds = []
    for _ in range(arguments.rounds):
        peak = ceiling(arguments)
        us, our_mib, our_loss = ours(folder, case, arguments.steps, arguments)
        them, their_mib, their_loss = theirs(case, arguments.steps, kinds[best], arguments)
        rounds.append({"seconds": us, "torch_seconds": them, "mib": our_mib, "torch_mib": their_mib, "gflops": peak,
                       "loss": our_loss, "torch_loss": their_loss})
    ratios = [one["torch_seconds"] / one["seconds"] for one in rounds]

    def middle(key):
        return statistics.median(one[key] for one in rounds)

    flops = model_flops(case["batch"], case["length"])
    return {**case, "torch_kind": best, "rounds": rounds, "ratio": statistics.median(ratios), "worst": min(ratios),
            "most": max(ratios), "seconds": middle("seconds"), "torch_seconds": middle("torch_seconds"),
            "mfu": statistics.median(flops / one["seconds"] / one["gflops"] * 1e-9 for one in rounds),
            "mib": middle("mib"), "torch_mib": middle("torch_mib"), "memory_ratio": middle("mib") / middle("torch_mib")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", nargs="+", choices=["gpt2", "llama"], default=["gpt2", "llama"])
    parser.add_argument("--dtypes", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--shapes", nargs="+", default=["4x64", "4x1024", "1x4096"], help="batch x sequence")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, in turns")
    parser.add_argument("--steps", type=int, default=2, help="timed steps of a run")
    parser.add_argument("--torch", nargs="+", choices=["eager", "compiled"], default=["eager", "compiled"])
    parser.add_argument("--mstrain", default="", help="more flags for mstrain, in one word")
    parser.add_argument("--json", type=pathlib.Path, help="keeps the table, with every round")
    arguments = parser.parse_args()
    print(f"{'model':6} {'dtype':5} {'shape':7} {'ratio':>5} {'range':>11} {'mstrain':>9} {'torch':>9}  {'kind':8} {'MFU':>5} "
          f"{'MiB':>6} {'torch':>6} {'ratio':>5}  load", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for shape in arguments.shapes:
            batch, length = map(int, shape.split("x"))
            for model in arguments.models:
                for dtype in arguments.dtypes:
                    case = {"model": model, "dtype": dtype, "batch": batch, "length": length}
                    row = compare(pathlib.Path(temporary), case, arguments)
                    rows.append({**row, "load": os.getloadavg()[0]})
                    span = f"{row['worst']:.2f}-{row['most']:.2f}"
                    print(f"{model:6} {dtype:5} {shape:7} {row['ratio']:5.2f} {span:>11} {row['seconds']:7.3f} s "
                          f"{row['torch_seconds']:7.3f} s  {row['torch_kind']:8} {100 * row['mfu']:4.0f}% {row['mib']:6.0f} "
                          f"{row['torch_mib']:6.0f} {row['memory_ratio']:5.2f}  {rows[-1]['load']:.1f}", flush=True)
                    if arguments.json:
                        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
