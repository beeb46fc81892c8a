#!/usr/bin/env python3
"""Throughput of several ranks on the cores of this machine, next to one rank that uses all of them.

  bench/train/scaling.py [--dtypes fp32 bf16] [--rounds 3] [--steps 3] [--plot FILE.svg] [--json FILE]

Model: 8 layers of hidden 512, sequence 512, vocabulary 8,192, micro-batch 1 (30 M parameters).

  strong    global batch 8: one rank with a thread for each of two cores, two ranks with one thread each, and four and eight ranks
            that share the cores. Column `of one`: tokens/s divided by those of one rank; `of two`: by those of two ranks in the
            same kind of layout.
  weak      four samples a replica: 1, 2, 4 and 8 replicas with one thread each. Column `of cores`: tokens/s divided by
            those of one replica times the cores in use.

The runs of a round follow one another, and ratios are formed within a round; figures are medians over the rounds, with their range.
What a pipeline's bubble allows is the time of a micro-batch on the busiest stage times m, plus the other stages once, by the FLOPs
of --print-plan. Exit code 10 if a bar is missed. Run it on a machine with nothing else to do.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "peers")]
import peers  # noqa: E402

MODEL = ("--num-layers 8 --hidden-size 512 --num-attention-heads 8 --ffn-hidden-size 1536 --swiglu --normalization RMSNorm "
         "--position-embedding-type rope --disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --seq-length 512 "
         "--micro-batch-size 1 --vocab-size 8191 --tokenizer-type NullTokenizer --make-vocab-size-divisible-by 128 --lr 1e-4 "
         "--lr-decay-style constant --eval-iters 0 --mock-data --peak-tflops 1 --log-level error").split()
SEQ, BATCH, CORES, WARM_UP, MISSED = 512, 8, 2, 1, 10
ZERO3 = "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"
# name: (kind, ranks, flags, bar on `of one`); the bar of kind pp is a share of what its bubble allows.
STRONG = {
    "one rank, 2 threads": ("one", 1, "", None),
    "dp 2": ("dp", 2, "", 0.97),
    "dp 2 zero-1": ("zero1", 2, "--use-distributed-optimizer", 0.97),
    "dp 2 zero-3": ("zero3", 2, ZERO3, 0.9),
    "tp 2": ("tp", 2, "--tensor-model-parallel-size 2", 0.92),
    "tp 2 sp": ("tpsp", 2, "--tensor-model-parallel-size 2 --sequence-parallel", 0.92),
    "pp 2": ("pp", 2, "--pipeline-model-parallel-size 2", 0.95),
    "dp 4": ("dp", 4, "", None),
    "dp 8": ("dp", 8, "", None),
    "dp 4 zero-1": ("zero1", 4, "--use-distributed-optimizer", None),
    "tp 4": ("tp", 4, "--tensor-model-parallel-size 4", None),
    "tp 8": ("tp", 8, "--tensor-model-parallel-size 8", None),
    "tp 4 sp": ("tpsp", 4, "--tensor-model-parallel-size 4 --sequence-parallel", None),
    "tp 8 sp": ("tpsp", 8, "--tensor-model-parallel-size 8 --sequence-parallel", None),
}
KEPT = 0.85  # of the throughput of two ranks, by four and eight that share the cores
WEAK = (1, 2, 4, 8)
MPIRUN = ["mpirun", "--oversubscribe", "--quiet"]


def command(program, ranks, threads, batch, flags, dtype):
    ours = [program, *MODEL, "--threads-per-rank", threads, "--global-batch-size", batch, *flags.split(),
            *(["--bf16"] if dtype == "bf16" else [])]
    binding = ["--bind-to", "core"] if ranks == CORES else ["--bind-to", "none"]
    return list(map(str, ours if ranks == 1 else [*MPIRUN, *binding, "-n", ranks, *ours]))


def tokens_per_s(folder, line, batch, steps):
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    line = [*line, "--train-iters", str(WARM_UP + steps), "--metrics-path", str(metrics), "--data-cache-path", str(folder)]
    ran = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(line)}: exit {ran.returncode}\n{ran.stdout}")
    milliseconds = [json.loads(row)["elapsed time per iteration (ms)"] for row in metrics.read_text().splitlines()]
    return batch * SEQ / (statistics.median(milliseconds[WARM_UP:]) * 1e-3)


def allowed_by_bubble(program, flags, dtype):
    """Of the throughput of the same cores without idle time."""
    line = command(program, 1, 1, BATCH, flags, dtype) + ["--train-iters", "1", "--print-plan", "--json", "--plan-world-size", "2"]
    plan = json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True, text=True).stdout)
    stages = [stage["executed_flops"] / plan["num_microbatches"] for stage in plan["stages"]]
    busiest, microbatches = max(stages), plan["num_microbatches"]
    makespan = microbatches * busiest + sum(stages) - busiest
    return microbatches * sum(stages) / len(stages) / makespan


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


class Table:
    def __init__(self):
        self.rows, self.missed = [], 0

    def add(self, dtype, kind, name, ranks, tokens, ratios, bar=None, of="of one"):
        met = None if bar is None else statistics.median(ratios) >= bar
        self.missed += met is False
        self.rows.append({"dtype": dtype, "kind": kind, "name": name, "ranks": ranks, "tokens_per_s": statistics.median(tokens), of: ratios,
                          "bar": bar, "met": met})
        told = "" if met is None else f">= {bar:.2f} {'met' if met else 'MISSED'}"
        print(f"{dtype:5} {name:22} {statistics.median(tokens):9.0f} tokens/s  {of} {spread(ratios):24} {told}", flush=True)


def measure(program, folder, dtype, given, table):
    strong = {name: [] for name in STRONG}
    weak = {ranks: [] for ranks in WEAK}
    for number in range(given.rounds):
        for name in list(STRONG) if number % 2 == 0 else list(STRONG)[::-1]:
            _, ranks, flags, _ = STRONG[name]
            line = command(program, ranks, CORES if ranks == 1 else 1, BATCH, flags, dtype)
            strong[name].append(tokens_per_s(folder, line, BATCH, given.steps))
        for ranks in WEAK:
            line = command(program, ranks, 1, 4 * ranks, "", dtype)
            weak[ranks].append(tokens_per_s(folder, line, 4 * ranks, given.steps))
    one = strong["one rank, 2 threads"]
    two = {kind: strong[name] for name, (kind, ranks, _, _) in STRONG.items() if ranks == CORES}
    for name, (kind, ranks, flags, bar) in STRONG.items():
        if ranks > CORES:
            table.add(dtype, kind, name, ranks, strong[name], [a / b for a, b in zip(strong[name], two[kind])], KEPT, "of two")
        else:
            limit = allowed_by_bubble(program, flags, dtype) if kind == "pp" else 1
            table.add(dtype, kind, name, ranks, strong[name], [a / b for a, b in zip(strong[name], one)], bar and bar * limit)
    for ranks in WEAK:
        busy = min(ranks, CORES)
        ratios = [several / (alone * busy) for several, alone in zip(weak[ranks], weak[1])]
        table.add(dtype, "weak", f"weak, dp {ranks}", ranks, weak[ranks], ratios, None, "of cores")


def plot(table, path):
    """Tokens/s by ranks, a line for each kind of layout."""
    width, height, left, bottom = 640, 400, 70, 50
    colours = {"dp": "#1b6ac9", "zero1": "#1d8a4a", "tp": "#c2451e", "weak": "#7a3fb0"}
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>']
    most = 1.1 * max(row["tokens_per_s"] for row in table.rows)
    x = {ranks: left + i * (width - left - 150) / 3 for i, ranks in enumerate((1, 2, 4, 8))}
    for ranks, at in x.items():
        parts.append(f'<text x="{at:.0f}" y="{height - bottom + 20}" text-anchor="middle">{ranks}</text>')
    for i in range(5):
        y = height - bottom - i * (height - bottom - 20) / 4
        parts.append(f'<line x1="{left}" x2="{width - 140}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>'
                     f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{most * i / 4:.0f}</text>')
    parts.append(f'<text x="{(width - 140 + left) / 2}" y="{height - 8}" text-anchor="middle">ranks on {CORES} cores</text>'
                 f'<text x="8" y="14">tokens/s</text>')
    label = 30
    for dtype in dict.fromkeys(row["dtype"] for row in table.rows):
        for kind, colour in colours.items():
            kinds = [kind] if kind == "weak" else ["one", kind]
            rows = [row for row in table.rows if row["dtype"] == dtype and row["kind"] in kinds]
            heights = [row["tokens_per_s"] / most * (height - bottom - 20) for row in rows]
            points = " ".join(f'{x[row["ranks"]]:.0f},{height - bottom - up:.0f}' for row, up in zip(rows, heights))
            dash = ' stroke-dasharray="5 3"' if dtype == "bf16" else ""
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2"{dash} points="{points}"/>')
            parts.append(f'<text x="{width - 130}" y="{label}" fill="{colour}">{dtype} {kind}</text>')
            label += 18
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--plot", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    program = peers.binary("mstrain")
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    table = Table()
    with tempfile.TemporaryDirectory() as name:
        for dtype in given.dtypes:
            measure(program, pathlib.Path(name), dtype, given, table)
    if given.plot:
        plot(table, given.plot)
    if given.json:
        given.json.write_text(json.dumps(table.rows, indent=1) + "\n")
    sys.exit(MISSED if table.missed else 0)


if __name__ == "__main__":
    main()
