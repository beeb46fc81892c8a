#!/usr/bin/env python3
"""One rank's operators and its whole training step, compared with the machine's roofline and with torch: the whole table.

  bench/train/single_rank.py [--json FILE] [--only gemm grouped attention fused bandwidth step mixture] [--rounds 3]

  gemm       linear layers, forward and both gradients (bench/shapes/gemm_cases.json), one thread: share of the fp32
             multiply-adds on registers, with the machine's instruction set and with AVX2; and bf16 compared with oneDNN's
             products with an operand packed in advance, with a bar where there is AMX
  grouped    products for 64 experts of 32 rows compared with a loop of products, ours and the library's
  attention  causal, forward and backward together, one head of 64, one thread: share of the same roofline, and torch's time
             divided by ours; the share with heads of other sizes
  fused      fused operators: the time of the operators they replace divided by theirs
  bandwidth  memory-bound kernels, on 64 MB and more, one and two threads: share of the bandwidth for the same mix of reads
             and writes, measured in turns
  step       whole steps of two models of 124 M parameters and their memory, compared with torch (bench/peers/torch_speed.py)
  mixture    of a model with 32 experts a layer: their products compared with one product of as many FLOPs; the norm of the
             gradients and AdamW with the time that the memory for them takes, with 563 tensors and with 12,288 small ones; whole
             steps compared with transformers (bench/peers/mixture_speed.py)

Each line states what was measured, its bar, and whether it is met. What needs torch is SKIPPED without it (MS_PEERS_PYTHON
names an interpreter that has it). --json stores everything. Figures are medians. With other work on the machine they mean
little: the load is printed, and memory-bound kernels and products for experts that miss their bar run twice more, for the
median of three. Exit code 10 if a bar is missed.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "peers")]
import google_benchmark  # noqa: E402
import peers  # noqa: E402

PROGRAMS = {"gemm": ["train.ops.linear", "kernels.gemm"], "grouped": ["train.ops.experts"], "attention": ["kernels.attention", "train.ops.attention_masks"],
            "fused": ["train.ops.fused"],
            "bandwidth": ["kernels.bandwidth", "train.ops.experts", "train.ops.rows", "train.ops.fused"], "step": [],
            "mixture": ["train.ops.experts", "train.optimizer"]}
KINDS = list(PROGRAMS)
MISSED = 10
# Memory-bound kernels; the other cases of bench.kernels.bandwidth are printed without a bar.
BOUND_BY_MEMORY = {"rms_norm", "rms_norm_backward", "layer_norm", "layer_norm_backward", "swiglu", "swiglu_backward", "rope",
                   "rope_neighbours", "adamw", "fp32_to_bf16", "bf16_to_fp32", "row_sum_exp", "cross_entropy_backward", "permute",
                   "permute_backward", "unpermute", "unpermute_backward"}


class Table:
    def __init__(self, path):
        self.path, self.rows = path, []

    def add(self, kind, what, value, bar=None, digits=2, **more):
        met = None if bar is None else value >= bar if bar > 0 else value <= -bar
        self.rows.append({"kind": kind, "what": what, "value": value, "bar": bar, "met": met, **more})
        told = {None: "", True: "met", False: "MISSED"}[met]
        if "runs" in more:
            told += f", median of {' '.join(f'{run:.{digits}f}' for run in more['runs'])}"
        limit = "" if bar is None else f"{'>=' if bar > 0 else '<='} {abs(bar):g}"
        print(f"{kind:10} {what:58} {value:8.{digits}f}  {limit:8} {told}", flush=True)
        self.keep()

    def skip(self, kind, why):
        self.rows.append({"kind": kind, "what": f"SKIPPED: {why}"})
        print(f"{kind:10} SKIPPED: {why}", flush=True)
        self.keep()

    def keep(self):
        if self.path:
            self.path.write_text(json.dumps({"load": os.getloadavg()[0], "rows": self.rows}, indent=1) + "\n")

    def missed(self):
        return [row for row in self.rows if row.get("met") is False]


def bench(name, pattern, isa=None):
    if isa:
        os.environ["MS_FORCE_ISA"] = isa
    try:
        return google_benchmark.iterations(peers.benchmark(f"bench.{name}"), f"--benchmark_filter={pattern}")
    finally:
        os.environ.pop("MS_FORCE_ISA", None)


def settled(program, row, figure, bar):
    """(figure(row), further columns): if it misses the bar, the median of three runs, since one may have been disturbed."""
    runs = [figure(row)]
    if bar is None or runs[0] >= bar:
        return runs[0], {}
    same = "^" + re.escape(re.sub("/iterations.*|/manual_time.*", "", row["name"])) + "/"
    runs += [figure(again) for _ in range(2) for again in bench(program, same)]
    return statistics.median(runs), {"runs": runs}


def gemm(table, _):
    cases = "|".join(layer["name"] for layer in json.loads((HERE.parent / "shapes/gemm_cases.json").read_text())["linear"])
    for isa, middle, least in ((None, 74, 60), ("avx2", 80, None)):
        rows = bench("train.ops.linear", f"/({cases})/threads:1/", isa)
        shares = {re.sub("^linear/|/threads.*", "", row["name"]): row["%peak"] for row in rows}
        worst = min(shares, key=shares.get)
        name = isa or "best instruction set"
        table.add("gemm", f"{name}: % of the roofline, median of {len(shares)}", statistics.median(shares.values()), middle, 1, cases=shares)
        table.add("gemm", f"{name}: % of the roofline, least ({worst})", shares[worst], least, 1)
    bf16_gemm(table, cases)


def bf16_gemm(table, cases):
    amx = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()
    if not amx:
        table.skip("gemm", "the bar for bf16 on AMX, the CPU has none; without a bar:")
    rows = [row for row in bench("kernels.gemm", f"gemm_bf16/.*/({cases})/") if "of onednn_prepacked" in row]
    if not rows:
        table.skip("gemm", "bf16 compared with oneDNN, which this build lacks")
        return
    for row_pass in ("fwd", "dgrad", "wgrad"):
        ratios = [row["of onednn_prepacked"] for row in rows if f"/{row_pass}/" in row["name"]]
        table.add("gemm", f"bf16 {row_pass}: x oneDNN's prepacked, median of {len(ratios)}", statistics.median(ratios), 1 if amx else None)


def grouped(table, _):
    for row in bench("train.ops.experts", "grouped.*groups:64/rows:32/"):
        what = re.sub("^experts/|/iterations.*", "", row["name"]).replace("grouped_matmul/", "")
        value, more = settled("train.ops.experts", row, lambda row: row["of library loop"], 1.3)
        table.add("grouped", f"{what}: x the library's loop", value, 1.3, **more)
        table.add("grouped", f"{what}: x a loop of our product", row["of loop"])


def share_of_roofline(rows):
    """Of a forward and a backward together, in %."""
    seconds = [row["real_time"] * 1e-3 for row in rows]
    peak = rows[0]["GFLOP/s"] / rows[0]["%peak"] * 100
    return 100 * sum(row["GFLOP/s"] * s for row, s in zip(rows, seconds)) / sum(seconds) / peak


def head_sizes(table):
    sizes = ["64", "80", "96", "128", "192/d_v:128", "256"]
    rows = bench("kernels.attention", f"seq:4096/d:({'|'.join(sizes)})/(forward|backward)")
    for size in sizes:
        both = [next(row for row in rows if f"/d:{size}/{way}" in row["name"]) for way in ("forward", "backward")]
        table.add("attention", f"T 4096, heads of {size.replace('/d_v:', ' and ')}: % of the roofline", share_of_roofline(both), 60, 1)


def attention(table, _):
    head_sizes(table)
    lengths = [4096, 16384, 32768]
    rows = bench("kernels.attention", f"seq:({'|'.join(map(str, lengths))})/d:64/")
    python = sys.executable if peers.installed("torch") else os.environ.get("MS_PEERS_PYTHON")
    told = python and subprocess.run([python, HERE.parent / "peers/torch_attention.py", "--seq-lengths", *map(str, lengths)],
                                     check=True, stdout=subprocess.PIPE, text=True).stdout
    for seq in lengths:
        forward, backward = (next(row for row in rows if f"seq:{seq}/d:64/{way}" in row["name"]) for way in ("forward", "backward"))
        seconds = [row["real_time"] * 1e-3 for row in (forward, backward)]
        table.add("attention", f"T {seq}: % of the roofline", share_of_roofline((forward, backward)), 45, 1)
        if told:
            theirs = json.loads(told)[str(seq)]
            table.add("attention", f"T {seq}: x torch's scaled_dot_product_attention", (theirs["forward"] + theirs["backward"]) / sum(seconds), 1)
    if not told:
        table.skip("attention", "torch's needs torch; set MS_PEERS_PYTHON to an interpreter that has it")
    for row in bench("train.ops.attention_masks", "/threads:1/"):
        mask = re.search(r"masks/(.+)/threads", row["name"]).group(1)
        what = f"T 8192, {mask.replace(':', ' of ')}: x causal, of {row['x scores']:.0f} x fewer scores"
        table.add("attention", what, row["x causal"], {"window:128": 10, "grid:drawn": 4}.get(mask, 5), 1)


def threads_of(count):
    return f"{count} thread{'s' if count != '1' else ''}"


def fused(table, _):
    for row in bench("train.ops.fused", ""):
        name, threads = re.search(r"fused/(.+)/threads:(\d+)", row["name"]).groups()
        if "of parts" in row:
            table.add("fused", f"{name.replace('/', ' ')}, {threads_of(threads)}: x its parts", row["of parts"])


def bandwidth(table, _):
    for program, pattern in (("kernels.bandwidth", ""), ("train.ops.experts", "permute"), ("train.ops.rows", ""),
                             ("train.ops.fused", "ring_attention")):
        for row in bench(program, pattern):
            kernel, kind, threads = re.search(r"/([a-z0-9_]+)((?:/(?:bf16|fp32|hidden:\d+))*)/threads:(\d+)", row["name"]).groups()
            bar = 80 if kernel in BOUND_BY_MEMORY else None
            value, more = settled(program, row, lambda row: row.get("%roofline", row.get("%copy")), bar)
            table.add("bandwidth", f"{kernel}{kind.replace('/', ' ')}, {threads_of(threads)}: % of the same mix", value, bar, 1, **more)


def peer_rows(table, kind, script, given):
    """What a script of bench/peers writes with --json; None without what it needs."""
    with tempfile.NamedTemporaryFile(suffix=".json") as kept:
        code = subprocess.run([sys.executable, HERE.parent / "peers" / script, "--json", kept.name, "--rounds", str(given.rounds)],
                              stdout=sys.stderr, check=False).returncode
        if code == 77:
            table.skip(kind, f"{script} needs more; set MS_PEERS_PYTHON to an interpreter that has it")
            return None
        if code != 0:
            sys.exit(f"{script}: exit {code}")
        return json.load(kept)


def step(table, given):
    for row in peer_rows(table, "step", "torch_speed.py", given) or []:
        case = f"{row['model']} {row['dtype']} B {row['batch']} T {row['length']}"
        faster = {64: 1.3, 1024: 1}.get(row["length"])
        table.add("step", f"{case}: x torch ({row['torch_kind']})", row["ratio"], faster, seconds=row["seconds"], torch_seconds=row["torch_seconds"])
        table.add("step", f"{case}: of its memory", row["memory_ratio"], {64: -1, 1024: -0.7, 4096: -0.6}[row["length"]],
                  mib=row["mib"], torch_mib=row["torch_mib"])
        if row["dtype"] == "fp32" and row["length"] == 1024:
            table.add("step", f"{case}: MFU, %", 100 * row["mfu"], 52, 1)


def mixture(table, given):
    products = {}
    for row in bench("train.ops.experts", "grouped.*groups:32/.*threads:2"):
        sizes = re.search("groups:32/(.*)/threads", row["name"]).group(1)
        products.setdefault(sizes, []).append(row)
    for sizes, rows in products.items():
        seconds = sum(row["real_time"] for row in rows)
        what = f"32 experts, {sizes.replace('/', ' ').replace(':', ' ')}: x one product"
        table.add("mixture", what, sum(row["real_time"] * row["of dense"] for row in rows) / seconds, 0.85,
                  each={re.search("matmul/([a-z]+)", row["name"]).group(1): row["of dense"] for row in rows})
    for row in bench("train.optimizer", ""):
        what = f"{row['tensors']:.0f} tensors, {row['parameters'] / 1e6:.0f} M: norm and AdamW x their bytes"
        table.add("mixture", what, row["x bytes"], -1.15, norm=row["norm"], adamw=row["adamw"])
    told = peer_rows(table, "mixture", "mixture_speed.py", given)
    if told:
        table.add("mixture", f"step: x transformers ({told['kind']})", told["ratio"], 2, ours=told["ours"], theirs=told["theirs"], rounds=told["rounds"])
        table.add("mixture", "step: x transformers, if all were the fp32 peak", told["most"])
        table.add("mixture", "step: MFU, %", 100 * told["mfu"], digits=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, help="keeps the table")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--rounds", type=int, default=3, help="of whole steps, in turns with torch's")
    given = parser.parse_args()
    for name in sorted({program for kind in given.only for program in PROGRAMS[kind]}):
        peers.benchmark(f"bench.{name}")  # a missing one ends the script here, not minutes later
    if {"step", "mixture"} & set(given.only):
        peers.binary("mstrain")
    table = Table(given.json)
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    for kind in KINDS:
        if kind in given.only:
            globals()[kind](table, given)
    for row in table.missed():
        print(f"missed: {row['kind']}: {row['what']}: {row['value']:.4g}")
    sys.exit(MISSED if table.missed() else 0)


main()
