#!/usr/bin/env python3
"""Long sequences on this machine: their memory beside the formula's, and the speed of packed documents.

  bench/train/long_sequences.py [--only memory layer packed] [--rounds 3] [--json FILE]

  memory  two steps of the Llama-style model of 124 M parameters (bench/shapes/llama_124m.json) at 32,768 tokens, bf16, on 4 ranks
          that share each sequence, with the distributed optimizer and a loss in chunks: what the arenas of a rank reached, as
          a multiple of what --print-plan says, and what all ranks' processes reached together. Takes minutes
  layer   the same of one layer of hidden 64 at 262,144 tokens on 8 ranks, whose attention is all the work. Takes minutes; the nightly
          test train.long_sequence
  packed  steps of 8,192 tokens of documents that do not see each other, of uniformly distributed lengths up to 4,095 (--mock-data),
          and of whole samples of 2,688 tokens, which need as many FLOPs a token: FLOP/s that the model needs, divided

Ratios are formed within a round; figures are medians over the rounds. Exit code 10 if a bar is missed.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "peers")]
import peers  # noqa: E402

KINDS, MISSED = ("memory", "layer", "packed"), 10
SHAPE = json.loads((HERE.parent / "shapes/llama_124m.json").read_text())
DATA = ("--mock-data --tokenizer-type NullTokenizer --micro-batch-size 1 --lr 1e-4 --lr-decay-style constant --eval-iters 0 "
        "--peak-tflops 1 --log-level error --bf16").split()
LLAMA = "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --hidden-dropout 0 --attention-dropout 0"
MODEL = (f"--num-layers 12 --hidden-size {SHAPE['hidden_size']} --ffn-hidden-size {SHAPE['ffn_hidden_size']} "
         f"--num-attention-heads {SHAPE['num_attention_heads']} --vocab-size 31999 {LLAMA}").split()
SMALL = f"--num-layers 4 --hidden-size 512 --ffn-hidden-size 1536 --num-attention-heads 8 --vocab-size 8191 {LLAMA}".split()
ONE_LAYER = f"--num-layers 1 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 1 --vocab-size 255 {LLAMA}".split()
LONG = ("--global-batch-size 1 --cp-comm-type p2p --use-distributed-optimizer --loss-chunk-size 1024 --train-iters 2 "
        "--threads-per-rank 1").split()
PACKED = "--seq-length 8192 --global-batch-size 1 --reset-attention-mask --reset-position-ids".split()
WHOLE = "--seq-length 2688 --global-batch-size 3".split()
WARM_UP, STEPS = 1, 4
MEMORY_BAR, SPEED_BAR = 1.1, 0.9


def run(command):
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {ran.returncode}\n{ran.stderr}")
    return ran.stdout


def records(command, folder):
    path = folder / "metrics.jsonl"
    path.unlink(missing_ok=True)
    run([*command, "--metrics-path", str(path), "--data-cache-path", str(folder)])
    return [json.loads(line) for line in path.read_text().splitlines()]


def long_run(name, mstrain, folder, model, seq, ranks):
    """Of rank 0: the arenas' peak in MiB and as a multiple of the plan's."""
    ours = [mstrain, *DATA, *model, *LONG, "--seq-length", str(seq), "--context-parallel-size", str(ranks)]
    plan = json.loads(run([*ours, "--print-plan", "--json", "--plan-world-size", str(ranks)]))["stages"][0]["memory_bytes"]
    steps = records(["mpirun", "--oversubscribe", "--quiet", "--bind-to", "none", "-n", str(ranks), *ours], folder)
    peak = max(step["peak memory bytes"]["total"] for step in steps)
    act = max(step["peak memory bytes"]["act"] for step in steps)
    planned = sum(size for tag, size in plan.items() if tag != "tier")
    seconds = steps[-1]["elapsed time per iteration (ms)"] * 1e-3
    whole = ranks * max(step.get("process peak bytes", 0) for step in steps) / 2**30
    print(f"{name:7} S {seq}, CP {ranks}: {peak / 2**20:.0f} MiB a rank, {whole:.1f} GiB of all processes, {seconds:.0f} s a step")
    return [("peak of all tags / plan", peak / planned, -MEMORY_BAR), ("peak of activations / plan", act / plan["act"], -MEMORY_BAR)]


def memory(mstrain, folder, _):
    return long_run("memory", mstrain, folder, MODEL, 32768, 4)


def layer(mstrain, folder, _):
    return long_run("layer", mstrain, folder, ONE_LAYER, 262144, 8)


def packed(mstrain, folder, rounds):
    ratios = []
    for _ in range(rounds):
        rates = []
        for flags in (PACKED, WHOLE):
            steps = records([mstrain, *DATA, *SMALL, *flags, "--train-iters", str(WARM_UP + STEPS)], folder)
            rates.append(statistics.median(step["throughput per rank (TFLOP/s)"] for step in steps[WARM_UP:]))
        print(f"packed  {1e3 * rates[0]:.1f} GFLOP/s of packed documents, {1e3 * rates[1]:.1f} of whole samples", flush=True)
        ratios.append(rates[0] / rates[1])
    return [("packed documents / whole samples", statistics.median(ratios), SPEED_BAR)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, help="keeps the table")
    given = parser.parse_args()
    mstrain, rows = str(peers.binary("mstrain")), []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            if kind not in given.only:
                continue
            for what, value, bar in globals()[kind](mstrain, pathlib.Path(folder), given.rounds):
                met = value >= bar if bar > 0 else value <= -bar
                print(f"{kind:7} {what:35} {value:6.3f}  {'>=' if bar > 0 else '<='} {abs(bar):g}  {'met' if met else 'MISSED'}", flush=True)
                rows.append({"kind": kind, "what": what, "value": value, "bar": bar, "met": met})
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(0 if all(row["met"] for row in rows) else MISSED)


main()
