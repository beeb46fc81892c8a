#!/usr/bin/env python3
"""Every flag for saving changes what is written, kept, logged or allocated, as train/README.md describes."""
import glob
import json
import os
import re

import training

COMMON = ["--train-iters", "6", "--save-interval", "2", "--save", "root"]


def manifests(place, root="root"):
    found = {}
    for path in glob.glob(place.path(root, "iter_*", "manifest.json")):
        if ".tmp-" not in path:
            with open(path, encoding="utf-8") as file:
                found[os.path.basename(os.path.dirname(path))] = json.load(file)
    return found


def files(manifest, linked=False):
    return sorted(f["name"] for f in manifest["files"] if f.get("linked", False) == linked)


def wide(*flags):
    """The small model with tensors above 64 KiB, which get datasets of their own."""
    model = [*training.MODEL]
    model[model.index("--hidden-size") + 1] = "128"
    return {"model": model}, list(flags)


def gathers(place, run):
    """--ckpt-gather under mpirun, with and without MPI_THREAD_MULTIPLE: one file, which does not depend on the slice size."""
    zero = ["--use-distributed-optimizer"]
    parallel, _ = run(*zero, root="zero", ranks=2)
    place.expect("ckpt.gather]" not in parallel.stderr, "no gather unless asked for", parallel)
    contents = set()
    for i, (flags, said) in enumerate(((["--disable-gloo-group", "--hccl-slice-size", "999"],
                                        "slices of 3996 bytes, moved by the writer's own thread"),
                                       (["--ckpt-gather", "--ckpt-gather-progress", "main"],
                                        "slices of 41943040 bytes, moved by the trainer's thread"))):
        ran, found = run(*zero, *flags, root=f"gather{i}", ranks=2)
        place.expect(f"1 of 2 ranks write, shards travel in {said}" in ran.stderr, f"{' '.join(flags)}: said", ran)
        place.expect(files(found["iter_0000006"]) == ["rank_00000.h5"], "one writes", ran)
        with open(place.path(f"gather{i}", "iter_0000006", "rank_00000.h5"), "rb") as file:
            contents.add(file.read())
        differ = place.tool("msckpt", "diff", "zero", f"gather{i}")
        place.expect(differ.exit == 0, f"{' '.join(flags)}: the values of a parallel save", differ)
    place.expect(len(contents) == 1, "the file does not depend on the slice", parallel)


def families(place):
    """A run from scratch stores no family: msckpt finds it from the shape."""
    llama = training.MODEL
    gpt2 = [flag for flag in llama if flag not in ("--swiglu", "--disable-bias-linear")]
    gpt2[gpt2.index("RMSNorm")], gpt2[gpt2.index("rope")] = "LayerNorm", "learned_absolute"
    for family, model in (("llama", llama), ("gpt2", gpt2)):
        ran = place.run("--train-iters", "1", "--save", family, model=model)
        made = place.tool("msckpt", "convert", "--load-dir", family, "--save-dir", family + "-hf", "--to", "hf", "--drop-optimizer")
        place.expect(ran.exit == 0 and made.exit == 0, f"a {family} from scratch is saved and converted", made)
        with open(place.path(family + "-hf", "config.json"), encoding="utf-8") as file:
            seen = json.load(file)["model_type"]
        place.expect(seen == family, f"and is no {seen}", made)


def main():
    with training.workplace() as place:
        place.make_data()

        def run(*flags, root="root", **how):
            ran = place.run(*COMMON[:-1], root, *flags, **how)
            place.expect(ran.exit == 0, f"{' '.join(flags)}: exit 0", ran)
            found = manifests(place, root)
            for name in found:
                checked = place.tool("msckpt", "verify", place.path(root, name))
                place.expect(checked.exit == 0, f"{' '.join(flags)}: {name} verifies", checked)
            return ran, found

        plain, found = run(root="plain")
        place.expect(sorted(found) == ["iter_0000002", "iter_0000004", "iter_0000006"], "a save every second step", plain)
        place.expect(re.search(r"ckpt.write\] writing by (io_uring|direct|buffered)", plain.stderr), "the way is said", plain)
        last = found["iter_0000006"]
        logical = {(t["name"], t["role"]): t["logical_xxh3"] for t in last["tensors"]}

        def same(manifest):
            return {(t["name"], t["role"]): t["logical_xxh3"] for t in manifest["tensors"]} == logical

        for interval, held in ("4", True), ("0", False):
            ran = place.run("--train-iters", "1", "--save", f"held{interval}", "--save-interval", interval,
                            "--metrics-path", f"held{interval}.jsonl")
            with open(place.path(f"held{interval}.jsonl"), encoding="utf-8") as lines:
                first = json.loads(lines.readline())
            place.expect((first["peak memory bytes"]["ckpt"] > 0) == held,
                         f"--save-interval {interval}: memory for snapshots {'is' if held else 'is not'} there from the start", ran)

        for flags in (["--no-async-save"], ["--ckpt-lazy-snapshot"], ["--ckpt-staging-buffers", "2"], ["--ckpt-writer", "process"],
                      ["--ckpt-write-path", "buffered"], ["--ckpt-write-path", "direct"], ["--ckpt-writer-nice", "5"],
                      ["--ckpt-writer-cpus", "0"], ["--ckpt-io-limit", "500"], ["--ckpt-timeout", "1"]):
            root = "_".join(flags).replace("-", "")
            ran, found = run(*flags, root=root)
            place.expect(same(found["iter_0000006"]), f"{' '.join(flags)}: the same values", ran)
            if "--ckpt-write-path" in flags:
                place.expect(f"writing by {flags[1]}" in ran.stderr, f"{flags[1]} is said", ran)

        ran, found = run("--save-keep-last", "1", root="keep")
        place.expect(list(found) == ["iter_0000006"], "--save-keep-last 1 keeps one", ran)
        ran, found = run("--save-retain-interval", "4", root="retain")
        place.expect(sorted(found) == ["iter_0000004", "iter_0000006"], "--save-retain-interval 4", ran)

        how, flags = wide("--ckpt-compress")
        ran, found = run(*flags, root="compress", **how)
        filters = {b.get("filter") for t in found["iter_0000006"]["tensors"] for b in t["boxes"]}
        place.expect("shuffle-zstd" in filters, "--ckpt-compress: boxes say so", ran)
        ran, threads = run(*flags, "--ckpt-compress-threads", "3", root="compress_threads", **how)
        place.expect(threads["iter_0000006"]["files"] == found["iter_0000006"]["files"],
                     "--ckpt-compress-threads 3: the same files", ran)

        # A learning rate of almost 0 changes no weight: moments are written, weights linked.
        ran, found = run("--ckpt-full-every", "3", "--lr", "1e-30", "--weight-decay", "0", root="incremental")
        place.expect(files(found["iter_0000004"], linked=True) != [], "--ckpt-full-every 3: the second save links", ran)
        place.expect(files(found["iter_0000002"], linked=True) == [], "the first does not", ran)

        # 1 KB/s: the first save takes longer than the run, and the second is skipped.
        ran = place.run(*COMMON[:-1], "skip", "--ckpt-io-limit", "0.05", "--ckpt-overlap", "skip")
        place.expect("iteration 4 is not saved: the save before is not finished (--ckpt-overlap skip)" in ran.stderr,
                     "--ckpt-overlap skip leaves a save out", ran)
        place.expect(ran.exit == 0 and "iter_0000002" in manifests(place, "skip"), "and the first is committed", ran)

        parallel, found = run(root="parallel", ranks=2)
        place.expect(len(files(found["iter_0000006"])) == 2, "both data-parallel ranks write", parallel)
        alone, found = run("--no-ckpt-fully-parallel-save", root="alone", ranks=2)
        place.expect(len(files(found["iter_0000006"])) == 1, "--no-ckpt-fully-parallel-save: one writes", alone)
        differ = place.tool("msckpt", "diff", "parallel", "alone")
        place.expect(differ.exit == 0, "and the values are the same", differ)

        gathers(place, run)
        families(place)

        # Impossible requests are refused before anything is done.
        for flags, text in ((["--ckpt-writer", "fork"], "--ckpt-writer fork: expected thread or process"),
                            (["--ckpt-staging-buffers", "3"], "--ckpt-staging-buffers 3: 1 or 2"),
                            (["--ckpt-write-path", "mmap"], "unknown write path \"mmap\""),
                            (["--ckpt-lazy-snapshot", "--no-async-save"], "--no-async-save takes no snapshot"),
                            (["--ckpt-gather", "--ckpt-writer", "process"], "--ckpt-gather excludes --ckpt-writer process"),
                            (["--ckpt-gather", "--ckpt-slice-size", "0"], "--ckpt-slice-size 0: 1 to"),
                            (["--ckpt-gather-progress", "fork"], "--ckpt-gather-progress fork: expected auto, thread or main")):
            ran = place.run(*COMMON[:-1], "refused", *flags)
            place.expect(ran.exit == 2 and text in ran.stderr and not os.path.exists(place.path("refused")),
                         f"{' '.join(flags)} is refused", ran)


if __name__ == "__main__":
    main()
