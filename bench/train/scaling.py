#!/usr/bin/env python3
"""Throughput of several ranks on the cores of this machine, next to one rank that uses all of them.

  bench/train/scaling.py [--dtypes fp32 bf16] [--steps 8] [--plot FILE.svg] [--json FILE]

Model: 8 layers of hidden 512, sequence 512, vocabulary 8,192, micro-batch 1 (30 M parameters).

  strong    global batch 8: one rank with a thread for each of two cores, two ranks with one thread each, and four and eight ranks
            that share the cores. Column `of one`: tokens/s divided by those of one rank; `of two`: by those of two ranks in the
            same kind of layout.
  weak      four samples a replica: 1, 2, 4 and 8 replicas with one thread each. Column `of cores`: tokens/s divided by
            those of one replica times the cores in use.

Ranks are bound to the cores in turn. Runs that are compared share the machine in time slices (time_slices.py), so that a change of
its speed is common to them. Figures are medians over the iterations, ratios of equal ones, with their range; tokens/s are of a run's
own slices. What a pipeline's bubble allows is the time of a micro-batch on the busiest stage times m, plus the other stages once, by
the FLOPs of --print-plan. Exit code 10 if a bar is missed. Run it on a machine with nothing else to do.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "peers")]
import peers  # noqa: E402
from time_slices import paired_ratios, spread, step_seconds  # noqa: E402

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
MPIRUN = ["mpirun", "--oversubscribe", "--quiet", "--map-by", "core", "--bind-to", "core:overload-allowed"]


def command(program, ranks, threads, batch, flags, dtype):
    ours = [program, *MODEL, "--threads-per-rank", threads, "--global-batch-size", batch, *flags.split(),
            *(["--bf16"] if dtype == "bf16" else [])]
    return list(map(str, ours if ranks == 1 else [*MPIRUN, "-n", ranks, *ours]))


def allowed_by_bubble(program, flags, dtype):
    """Of the throughput of the same cores without idle time."""
    line = command(program, 1, 1, BATCH, flags, dtype) + ["--train-iters", "1", "--print-plan", "--json", "--plan-world-size", "2"]
    plan = json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True, text=True).stdout)
    stages = [stage["executed_flops"] / plan["num_microbatches"] for stage in plan["stages"]]
    busiest, microbatches = max(stages), plan["num_microbatches"]
    makespan = microbatches * busiest + sum(stages) - busiest
    return microbatches * sum(stages) / len(stages) / makespan


class Table:
    def __init__(self):
        self.rows, self.missed = [], 0

    def add(self, dtype, kind, name, ranks, tokens_per_s, ratios, bar=None, of="of one"):
        met = None if bar is None else statistics.median(ratios) >= bar
        self.missed += met is False
        self.rows.append({"dtype": dtype, "kind": kind, "name": name, "ranks": ranks, "tokens_per_s": tokens_per_s, of: ratios, "bar": bar,
                          "met": met})
        told = "" if met is None else f">= {bar:.2f} {'met' if met else 'MISSED'}"
        print(f"{dtype:5} {name:22} {tokens_per_s:9.0f} tokens/s  {of} {spread(ratios):24} {told}", flush=True)


def measure(program, dtype, steps, table):
    def strong(names):
        """{layout: the seconds of its iterations} of those that share the machine."""
        chosen = {name: STRONG[name] for name in names}
        return step_seconds({name: command(program, ranks, CORES if ranks == 1 else 1, BATCH, flags, dtype)
                             for name, (_, ranks, flags, _) in chosen.items()}, WARM_UP, steps)

    def add(name, seconds, than, **more):
        kind, ranks, _, _ = STRONG[name]
        table.add(dtype, kind, name, ranks, BATCH * SEQ / statistics.median(seconds[name]),
                  paired_ratios(seconds[than], seconds[name]), **more)

    few = strong(name for name, (_, ranks, _, _) in STRONG.items() if ranks <= CORES)
    for name in few:
        kind, _, flags, bar = STRONG[name]
        limit = allowed_by_bubble(program, flags, dtype) if kind == "pp" else 1
        add(name, few, "one rank, 2 threads", bar=bar and bar * limit)
    for kind in dict.fromkeys(kind for kind, ranks, _, _ in STRONG.values() if ranks > CORES):
        seconds = strong(name for name, of in STRONG.items() if of[0] == kind)
        two = min(seconds, key=lambda name: STRONG[name][1])
        for name in seconds:
            if name != two:
                add(name, seconds, two, bar=KEPT, of="of two")
    weak = step_seconds({ranks: command(program, ranks, 1, 4 * ranks, "", dtype) for ranks in WEAK}, WARM_UP, steps)
    for ranks, seconds in weak.items():
        ratios = [ratio * ranks / min(ranks, CORES) for ratio in paired_ratios(weak[1], seconds)]
        table.add(dtype, "weak", f"weak, dp {ranks}", ranks, 4 * ranks * SEQ / statistics.median(seconds), ratios, of="of cores")


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
    parser.add_argument("--steps", type=int, default=8, help="iterations that are measured")
    parser.add_argument("--plot", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    program = peers.binary("mstrain")
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    table = Table()
    for dtype in given.dtypes:
        measure(program, dtype, given.steps, table)
    if given.plot:
        plot(table, given.plot)
    if given.json:
        given.json.write_text(json.dumps(table.rows, indent=1) + "\n")
    sys.exit(MISSED if table.missed else 0)


if __name__ == "__main__":
    main()
