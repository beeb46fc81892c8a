#!/usr/bin/env python3
"""Plants each error of the table in mstrain, and requires that `msckpt diff --tensors` names its module first: a TP 2 x PP 2 step of the
mutated program against a step of the unmutated one on one rank. The unmutated program differs by rounding alone, in fp32 and bf16.

  name_modules.py [--only TEXT] [--jobs N] FOLDER     FOLDER: as of run.py, which it may share
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

import model
import run

MODEL = ("--num-layers 4 --hidden-size 32 --num-attention-heads 4 --ffn-hidden-size 64 --seq-length 32 --micro-batch-size 1 "
         "--global-batch-size 4 --train-iters 1 --lr 1e-3 --lr-decay-style constant --eval-iters 0 --peak-tflops 0.1 --threads-per-rank 1 "
         "--distributed-timeout-minutes 0.5 --data-path data_text_document --save-tensors 1 --init-method-std 0.1").split()
LAYOUT = ["--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"]
NOISE = {"fp32": [], "bf16": ["--bf16"]}
PERTURBATION = {"fp32": "1e-6", "bf16": "0.004"}


class Runs:
    def __init__(self, build, folder):
        self.bin, self.folder = os.path.join(build.build, "bin"), folder
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "text.jsonl"), "w", encoding="utf-8") as file:
            for i in range(400):
                file.write(json.dumps({"text": f"{i} is followed by {i + 1}"[: 8 + i % 20]}) + "\n")
        ran = self.call("msdata", "preprocess", "text.jsonl", "--output-prefix", "data", "--append-eod")
        assert ran.returncode == 0, ran.stderr

    def call(self, program, *arguments, ranks=1):
        command = [os.path.join(self.bin, program), *arguments]
        if ranks > 1:
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, errors="replace", timeout=run.LIMIT_S, check=False)

    def dump(self, to, flags, ranks):
        """Whether the run has ended well."""
        shutil.rmtree(os.path.join(self.folder, to), ignore_errors=True)
        return self.call("mstrain", *MODEL, "--save-tensors-dir", to, *flags, ranks=ranks).returncode == 0

    def cut(self, to, name, flags):
        """The run on 4 ranks: what it names first against one rank, "" if nothing; None: it fails."""
        shape = LAYOUT if name.startswith("tp") else [*LAYOUT, "--sequence-parallel"]
        if not self.dump(to, [*flags, *shape], ranks=4):
            return None
        diff = self.call("msckpt", "diff", "--tensors", "--json", f"one_{name}", to, "--noise", f"noise_{name}")
        return json.loads(diff.stdout)["first"] or ""


def flags_of(name):
    """The schedule is a matter of the layout: one rank has none."""
    words = model.RUNS[name].split()
    cut = words.index("--schedules-method") if "--schedules-method" in words else len(words)
    return words[:cut] + words[cut + 2:], words


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutants whose file or run contains this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("folder")
    options = parser.parse_args()
    build = run.Build(os.path.abspath(options.folder), options.jobs)
    build.make(["mstrain", "msckpt", "msdata"])
    runs = Runs(build, os.path.join(os.path.abspath(options.folder), "runs"))
    mutants = [m for m in model.MUTANTS if m[4] is not None and (options.only in m[0] or options.only == m[4])]
    failed = []
    for name in sorted({m[4] for m in mutants}):
        for dtype, more in list(NOISE.items())[::-1]:  # fp32 last: the mutants are compared with it
            alone, words = flags_of(name)
            fine = runs.dump(f"one_{name}", alone + more, 1) and \
                runs.dump(f"noise_{name}", [*alone, *more, "--save-tensors-perturbation", PERTURBATION[dtype]], 1)
            first = runs.cut("cut", name, words + more) if fine else None
            print(f"unmutated {name} in {dtype}: {'equal to rounding' if first == '' else first or 'fails'}", flush=True)
            failed += [f"{name} in {dtype}: names {first} without a mutant"] if first != "" else []
    for number, (file, old, new, _, name, expected) in enumerate(mutants):
        with build.planted(file, old, new):
            build.make(["mstrain"])
            first = runs.cut("cut", name, flags_of(name)[1])
        right = first is not None and first.endswith(expected)
        print(f"{number + 1:3} {'named' if right else 'WRONG'} {file}, {name}: {first or ('the run fails' if first is None else 'nothing')}"
              f"{'' if right else f', expected {expected}'}: {old.splitlines()[0].strip()[:70]}", flush=True)
        failed += [] if right else [f"{file}: {first}, expected {expected}"]
    build.make(["mstrain"])
    for line in failed:
        print(f"FAILED: {line}")
    print(f"{len(mutants)} mutants, {len(failed)} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
