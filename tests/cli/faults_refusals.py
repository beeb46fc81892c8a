#!/usr/bin/env python3
"""Errors of mstrain: one line that says what is wrong and where, the exit code of README.md on every rank, nothing lost.

Each case runs on one rank without MPI and on ranks under mpirun.
"""
import json
import os
import shutil
import sys

import training


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def data_offset(place, generation):
    """(file, a byte within the first moment of a weight)."""
    manifest = json.loads(training.read(place.path(generation, "manifest.json")))
    tensor = next(t for t in manifest["tensors"] if t["role"] == "exp_avg" and t["name"].endswith("linear_fc2.weight"))
    box = tensor["boxes"][-1]
    return manifest["files"][box["file"]]["name"], box["at"] + 5, tensor["name"]


def make_damage(place):
    place.run("--train-iters", "4", "--save", "good", "--save-interval", "2", "--tensor-model-parallel-size", "2", ranks=2)
    for what in ("cut", "flipped", "manifest"):
        place.copy("good", what)
    os.truncate(place.path("cut/iter_0000004/rank_00001.h5"), os.path.getsize(place.path("cut/iter_0000004/rank_00001.h5")) // 2)
    name, at, tensor = data_offset(place, "flipped/iter_0000004")
    flip(place.path("flipped/iter_0000004", name), at)
    manifest = place.path("manifest/iter_0000004/manifest.json")
    flip(manifest, os.path.getsize(manifest) // 2)
    for target, part, size in (("cutbin", "bin", 1000), ("cutidx", "idx", 50)):
        for suffix in ("bin", "idx"):
            shutil.copy(place.path(f"data_text_document.{suffix}"), place.path(f"{target}.{suffix}"))
        os.truncate(place.path(f"{target}.{part}"), size)
    return name, tensor


def main():
    with training.workplace() as place:
        place.make_data()
        name, tensor = make_damage(place)
        load = ["--train-iters", "6", "--exit-on-missing-checkpoint", "--load"]
        tp2 = ["--tensor-model-parallel-size", "2"]
        # (case, rank counts, exit code, words that the line must contain, flags[, data set])
        cases = [
            ("unknown flag", (1, 2), 2, ["--train-itres", "--train-iters"], ["--train-itres", "4"]),
            ("two warm-ups", (1, 2), 2, ["--lr-warmup-iters", "--lr-warmup-fraction"],
             ["--train-iters", "4", "--lr-warmup-iters", "1", "--lr-warmup-fraction", "0.1"]),
            ("world size", (1, 3), 2, ["world size", "--tensor-model-parallel-size 2"], ["--train-iters", "4", *tp2]),
            ("query groups", (2,), 2, ["--num-query-groups 3", "--tensor-model-parallel-size 2"],
             ["--train-iters", "4", *tp2, "--num-attention-heads", "6", "--kv-channels", "4", "--group-query-attention",
              "--num-query-groups", "3"]),
            ("missing data", (1, 2), 2, ["nowhere.idx"], ["--train-iters", "4"], "nowhere"),
            ("cut .bin", (1, 2), 3, ["cutbin.bin", "1000 bytes"], ["--train-iters", "4"], "cutbin"),
            ("cut .idx", (1, 2), 3, ["cutidx.idx", "50 bytes"], ["--train-iters", "4"], "cutidx"),
            ("missing checkpoint", (1, 2), 2, ["absent"], [*load, "absent"]),
            ("missing iteration", (1,), 2, ["iter_0000003"], [*load, "good", "--ckpt-step", "3"]),
            ("cut shard", (1, 2), 3, ["iter_0000004/rank_00001.h5", "bytes"], [*load, "cut", "--ckpt-step", "4"]),
            ("flipped bit in a shard", (1, 2), 3, [f"iter_0000004/{name}", tensor], [*load, "flipped"]),
            ("flipped bit in a manifest", (1, 2), 3, ["iter_0000004/manifest.json"], [*load, "manifest/iter_0000004"]),
        ]
        for what, rank_counts, code, words, flags, *data in cases:
            jobs = [place.start(*flags, ranks=ranks, wrap=training.NOTE_CODE, mpirun=training.RECOVER if ranks > 1 else (),
                                data=data[0] if data else "data_text_document") for ranks in rank_counts]
            for ranks, job in zip(rank_counts, jobs):
                ran = job.end()
                case = f"{what}, {ranks} ranks"
                place.expect(ran.codes == [code] * ranks, f"{case}: every exit code is {code}", ran)
                place.expect(len(ran.errors) == 1 and ran.stdout == "", f"{case}: one line, nothing on stdout", ran)
                place.expect(all(word in "".join(ran.errors) for word in words), f"{case}: the line says {words}", ran)

        ran = place.run("--train-iters", "4", "--pipeline-model-parallel-size", "3", ranks=2)
        place.expect(ran.exit == 2, "plain mpirun forwards the exit code", ran)

        # A visibly incomplete newest generation is skipped with a warning; an older one loads by its number from any root.
        for root, words in (("cut", "rank_00001.h5"), ("manifest", "manifest.json")):
            ran = place.run("--train-iters", "3", "--load", root, "--metrics-path", f"{root}.jsonl", "--exit-on-missing-checkpoint")
            place.expect(ran.exit == 0 and "loaded iteration 2" in ran.stderr, f"{root}: falls back to iteration 2", ran)
            place.expect(any(line.startswith("W ") and words in line for line in ran.stderr.splitlines()), f"{root}: warns", ran)
            place.expect(list(place.losses(f"{root}.jsonl")) == [3], f"{root}: continues", ran)
        ran = place.run("--train-iters", "3", "--load", "flipped", "--ckpt-step", "2", ranks=2)
        place.expect(ran.exit == 0 and "loaded iteration 2" in ran.stderr, "an older checkpoint still loads", ran)


if __name__ == "__main__":
    sys.exit(main())
