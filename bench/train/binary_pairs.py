#!/usr/bin/env python3
"""Compares two builds of mstrain: time and peak memory of whole training steps of one rank, on the models of
bench/peers/torch_speed.py, in alternated pairs.

  bench/train/binary_pairs.py OLD NEW [--pairs 9] [--cases gpt2/fp32/64 llama/bf16/64 gpt2/fp32/1024] [--steps 4]

OLD, NEW: folders with a mstrain each. The first two steps of each run are not counted. Of each case the median over the pairs of
the time of NEW divided by that of OLD, its range, and the same of the peak memory. The last line has the median of the cases:
exit code 10 if it is above 1.03, or if a case needs more than 1.01 of the memory. Run it on a machine with nothing else to do.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "peers")]
import peers  # noqa: E402

FLAGS = ("--num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50303 --tokenizer-type NullTokenizer "
         "--make-vocab-size-divisible-by 128 --hidden-dropout 0 --attention-dropout 0 --lr 1e-4 --eval-iters 0 --mock-data --peak-tflops 1 "
         "--log-level error").split()
MODELS = {"gpt2": [], "llama": "--swiglu --ffn-hidden-size 2048 --normalization RMSNorm --position-embedding-type rope --disable-bias-linear".split()}
BATCH = {64: 4, 1024: 1}
WARM_UP, SLOWER, LARGER, MISSED = 2, 1.03, 1.01, 10


def step(folder, program, case, steps):
    """(seconds of a step, MiB)"""
    model, dtype, length = case.split("/")
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    command = [program, *FLAGS, *MODELS[model], *(["--bf16"] if dtype == "bf16" else []), "--seq-length", length, "--micro-batch-size",
               BATCH[int(length)], "--train-iters", WARM_UP + steps, "--metrics-path", metrics, "--data-cache-path", folder]
    run = peers.measured(command)
    if run.exit_code != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {run.exit_code}")
    seconds = [json.loads(line)["elapsed time per iteration (ms)"] * 1e-3 for line in metrics.read_text().splitlines()]
    return statistics.median(seconds[WARM_UP:]), run.peak_mib


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--cases", nargs="+", default=["gpt2/fp32/64", "llama/bf16/64", "gpt2/fp32/1024"])
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    medians, memory = [], []
    with tempfile.TemporaryDirectory() as name:
        for case in given.cases:
            times, sizes = [], []
            for pair in range(given.pairs):
                order = [given.old, given.new][:: 1 if pair % 2 == 0 else -1]
                seen = {folder: step(pathlib.Path(name), folder / "mstrain", case, given.steps) for folder in order}
                times.append(seen[given.new][0] / seen[given.old][0])
                sizes.append(seen[given.new][1] / seen[given.old][1])
            medians.append(statistics.median(times))
            memory.append(statistics.median(sizes))
            print(f"{case:16} time {medians[-1]:.3f} ({min(times):.3f} to {max(times):.3f}), memory {memory[-1]:.3f}", flush=True)
    print(f"median {statistics.median(medians):.3f} of the old build's time (<= {SLOWER}), memory at most {max(memory):.3f} (<= {LARGER})")
    return MISSED if statistics.median(medians) > SLOWER or max(memory) > LARGER else 0


if __name__ == "__main__":
    sys.exit(main())
