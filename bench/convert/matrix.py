#!/usr/bin/env python3
"""Runs msckpt convert from each format to each, and compares it with cp and sync of the larger side: a table of ratios.

  matrix.py [--gib 2] [--rounds 3] [--pairs hf:mg42,dcp:hf] [--folder DIR] [--json]

Makes a Llama of that many GiB of bf16 as a Hugging Face folder, converts it to each of the formats below, and then converts each
of these to each: hf; mg1 and mg42, Megatron trees of TP 1 and of TP 4 PP 2; dist (torch_dist); dcp; ucp; ours (to itself by
reshard). Before each run the source's files are dropped from the page cache (posix_fadvise after fsync, no root needed). At the
end of each run all data is on the disk: msckpt syncs what it writes, cp is followed by sync -f. cp of the larger side and msckpt
take turns. The table has medians, and the highest VmHWM. The bars: 0.9 of cp's speed and 256 MiB. A pair below 0.9 runs as many
rounds again, and its medians are over all rounds: the speed of a shared disk can change by half within minutes. Exit 10 if a bar
is missed.

--pairs FROM:TO,.. selects pairs; three of them with --gib 8 are the long run. --folder chooses the disk, which needs space for
twelve times the model, three of them for the ucp checkpoint. MS_BIN is the folder of msckpt.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import convert_speed
import peers  # convert_speed has put its folder on the path

FORMATS = {
    "hf": ["--save-model-type", "hf"],
    "mg1": ["--save-model-type", "mg"],
    "mg42": ["--save-model-type", "mg", "--target-tensor-parallel-size", "4", "--target-pipeline-parallel-size", "2"],
    "dist": ["--save-model-type", "dist"],
    "dcp": ["--save-model-type", "dcp"],
    "ucp": ["--save-model-type", "ucp"],
    "ours": ["--save-model-type", "ms"],
}
SPEED_OF_CP, PEAK_MIB, ANSWER_IS_NO = 0.9, 256, 10


def config_of(gib):
    """TinyLlama's layers, or from 4 GiB on Llama 3's; as many as needed, in two stages."""
    hidden, ffn, heads, groups = (4096, 14336, 32, 8) if gib >= 4 else (2048, 5632, 32, 4)
    layer = 2 * hidden * (2 * hidden + 2 * hidden * groups // heads + 3 * ffn)
    layers = 2 * max(1, round((gib * (1 << 30) - 4 * convert_speed.VOCAB * hidden) / layer / 2))
    return {**convert_speed.config_of(gib), "hidden_size": hidden, "intermediate_size": ffn, "num_attention_heads": heads,
            "num_key_value_heads": groups, "num_hidden_layers": layers}


def files_of(folder):
    return [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]


def drop_caches(folder):
    for path in files_of(folder):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


class Matrix:
    def __init__(self, folder, gib, wanted):
        self.folder, self.target = folder, folder / "out"
        self.place("hf").mkdir()
        peers.in_child(convert_speed.make_model, self.place("hf"), config_of(gib))
        for name in FORMATS:
            if name != "hf" and (wanted is None or any(name in pair for pair in wanted)):
                ran = peers.measured(self.command("hf", name, self.place(name)))
                if ran.exit_code != 0:
                    sys.exit(f"hf to {name} failed")
        self.bytes = {name: sum(path.stat().st_size for path in files_of(self.place(name))) for name in FORMATS
                      if self.place(name).exists()}

    def place(self, name):
        return self.folder / f"from_{name}"

    def command(self, source, target, to):
        if source == target == "ours":
            return [peers.binary("msckpt"), "reshard", "--load-dir", self.place(source), "--save-dir", to]
        more = ["--hf-cfg-dir", self.place("hf")] if source in ("dcp", "ucp") else []
        drop = ["--drop-optimizer"] if source == "ucp" and target in ("hf", "dcp") else []
        return [peers.binary("msckpt"), "convert", "--load-dir", self.place(source), "--save-dir", to, *FORMATS[target], *more, *drop]

    def run(self, command, source):
        """Runs a command that writes self.target, and removes the result."""
        drop_caches(source)
        ran = peers.measured(command)
        shutil.rmtree(self.target, ignore_errors=True)
        if ran.exit_code != 0:
            sys.exit(f"{' '.join(map(str, command))} failed")
        return ran

    def take_turns(self, source, target, rounds):
        """(cp of the larger side, msckpt convert) for each round."""
        larger = self.larger(source, target)
        copy = ["sh", "-c", 'cp -r "$0" "$1" && sync -f "$1"', self.place(larger), self.target]
        return [(self.run(copy, self.place(larger)), self.run(self.command(source, target, self.target), self.place(source)))
                for _ in range(rounds)]

    def larger(self, source, target):
        return max(source, target, key=lambda name: self.bytes[name])

    def measure(self, source, target, rounds):
        runs = []
        while len(runs) < 2 * rounds:
            runs += self.take_turns(source, target, rounds)
            cp_s, ours_s = (statistics.median(pair[i].seconds for pair in runs) for i in (0, 1))
            if cp_s / ours_s >= SPEED_OF_CP:
                break
        return {"from": source, "to": target, "bytes": self.bytes[self.larger(source, target)], "cp_s": cp_s, "seconds": ours_s,
                "of_cp": cp_s / ours_s, "peak_MiB": max(ours.peak_mib for _, ours in runs),
                "cp_runs": [cp.seconds for cp, _ in runs], "runs": [ours.seconds for _, ours in runs]}


def pairs_of(text):
    pairs = [tuple(pair.split(":")) for pair in text.split(",")]
    for pair in pairs:
        if len(pair) != 2 or not set(pair) <= set(FORMATS):
            sys.exit(f"--pairs {':'.join(pair)}: expected FROM:TO of {', '.join(FORMATS)}")
    return pairs


def print_table(rows):
    names = [name for name in FORMATS if any(name in (row["from"], row["to"]) for row in rows)]
    cell = {(row["from"], row["to"]): row for row in rows}
    for title, text in (("speed of cp and sync of the larger side", lambda row: f"{row['of_cp']:.2f}"),
                        ("seconds (cp)", lambda row: f"{row['seconds']:.2f} ({row['cp_s']:.2f})"),
                        ("MiB resident at most", lambda row: f"{row['peak_MiB']:.0f}")):
        print(f"\n{title}\n{'from':8}" + "".join(f"{'to ' + name:>14}" for name in names))
        for source in names:
            print(f"{source:8}" + "".join(f"{text(cell[source, name]) if (source, name) in cell else '-':>14}" for name in names))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=pairs_of, help="FROM:TO,..; all unless given")
    parser.add_argument("--folder", help="where to make all of it, which is removed again")
    parser.add_argument("--json", action="store_true", help="instead of tables")
    asked = parser.parse_args()
    peers.binary("msckpt")  # a missing one ends the script here, not after the model is made
    with tempfile.TemporaryDirectory(dir=asked.folder) as temporary:
        matrix = Matrix(pathlib.Path(temporary), asked.gib, asked.pairs)
        rows = []
        for source, target in asked.pairs or [(source, target) for source in FORMATS for target in FORMATS]:
            rows.append(matrix.measure(source, target, asked.rounds))
            print(f"{source} -> {target}: {rows[-1]['of_cp']:.2f} of cp, {rows[-1]['peak_MiB']:.0f} MiB", file=sys.stderr, flush=True)
    missed = [row for row in rows if row["of_cp"] < SPEED_OF_CP or row["peak_MiB"] > PEAK_MIB]
    if asked.json:
        print(json.dumps({"rows": rows, "load": os.getloadavg()[0], "missed": [[row["from"], row["to"]] for row in missed]}, indent=2))
    else:
        print(f"{matrix.bytes['hf'] / 2**30:.2f} GiB of bf16, medians of {asked.rounds}, cold; load {os.getloadavg()[0]:.1f}")
        print_table(rows)
        print(f"\nbars: {SPEED_OF_CP} of cp's speed and {PEAK_MIB} MiB, " + ("all met" if not missed else "missed by " + ", ".join(
            f"{row['from']} to {row['to']}" for row in missed)))
    sys.exit(ANSWER_IS_NO if missed else 0)


if __name__ == "__main__":
    main()
