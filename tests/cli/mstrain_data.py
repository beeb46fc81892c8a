#!/usr/bin/env python3
"""mstrain and its data: indices in a shared cache, documents whose loss is masked, and text through every tokenizer.

Guards against four failures of jobs on clusters: an index of other data is used; a start waits for a lock that no process
holds any more; many starts write one cache; a micro-batch with all tokens masked makes the gradient norm NaN.
"""
import json
import math
import os
import signal
import sys
import time

import training

STEPS = ["--train-iters", "3"]
TOKENIZER = ["--tokenizer-type", "NullTokenizer", "--vocab-size", "20"]  # 20 ends a document


def rows(place, path):
    return [json.loads(line) for line in training.read(place.path(path)).splitlines()]


def make_documents(place, count):
    words = "the quick brown fox jumps over a lazy dog and runs".split()
    with open(place.path("documents.jsonl"), "w", encoding="utf-8") as file:
        for i in range(count):
            file.write(json.dumps({"text": " ".join(words[(i * j) % 11] for j in range(i % 40 + 1))}) + "\n")
    made = place.tool("msdata", "preprocess", "documents.jsonl", "--output-prefix", "data")
    place.expect(made.exit == 0, "msdata", made)


class Runs:
    """Runs of mstrain with one cache folder, each with its own metrics."""

    def __init__(self, place):
        self.place, self.count = place, 0

    def start(self, *flags, cache="cache", **how):
        self.count += 1
        metrics = f"metrics{self.count}.jsonl"
        return metrics, self.place.start(*STEPS, "--data-cache-path", cache, "--metrics-path", metrics, *flags, **how)

    def losses(self, *flags, what, **how):
        metrics, job = self.start(*flags, **how)
        ran = job.end()
        self.place.expect(ran.exit == 0, f"{what}: ends well", ran)
        return self.place.losses(metrics)


def stale_indices(place, runs):
    """Changes what an index depends on while an old cache exists: the run must equal one without a cache."""
    base = runs.losses(what="first run")
    place.expect(runs.losses(what="second run") == base, "the cache changes nothing")
    written = set(os.listdir(place.path("cache")))
    for i, flags in enumerate((["--seq-length", "12"], ["--seed", "77"], ["--split", "50,50,0"], ["--train-iters", "7"])):
        what = " ".join(flags)
        fresh = runs.losses(*flags, what=what, cache=f"fresh{i}")
        place.expect(runs.losses(*flags, what=what) == fresh, f"{what}: the old index is not used")
        place.expect(fresh != base, f"{what} changes the losses")
    place.expect(written <= set(os.listdir(place.path("cache"))), "the first index is still there")
    for suffix in ("bin", "idx"):  # the same prefix, other documents
        os.rename(place.path(f"data_text_document.{suffix}"), place.path(f"old.{suffix}"))
    make_documents(place, 150)
    fresh = runs.losses(what="changed data set", cache="fresh")
    place.expect(fresh != base and runs.losses(what="changed data set") == fresh, "a changed data set: the old index is not used")


def starts_at_once(place, runs):
    """Many jobs start with one cache; some are killed or stopped meanwhile. None of the others may wait for them."""
    wanted = runs.losses(what="alone", cache="alone")
    for attempt in range(3):
        cache = f"shared{attempt}"
        victims = [runs.start(cache=cache)[1] for _ in range(2)]
        time.sleep(place.random.uniform(0, 0.25))
        victims[0].kill()
        os.kill(victims[1].process.pid, signal.SIGSTOP)
        jobs = [runs.start(cache=cache) for _ in range(2)] + [runs.start(cache=cache, ranks=2)]
        for metrics, job in jobs:
            ran = job.end(limit_s=30)
            place.expect(ran.exit == 0, "a start beside a dead and a stopped one", ran)
            if ran.command[0] != "mpirun":
                place.expect(place.losses(metrics) == wanted, "its losses are those of a run alone", ran)
        victims[1].kill()


def masked_documents(place, runs):
    """Tokens that are all the end of a document, in all micro-batches or in every other one."""
    documents = {"masked": "20 " * 400, "half": ("20 " * 16 + "1 7 3 9 2 6 4 8 " * 2) * 60}
    for name, ids in documents.items():
        with open(place.path(f"{name}.txt"), "w", encoding="utf-8") as file:
            file.write(ids)
        made = place.tool("msdata", "preprocess", f"{name}.txt", "--output-prefix", name, *TOKENIZER)
        place.expect(made.exit == 0, "msdata", made)
        for flags in ([], ["--calculate-per-token-loss"]):
            for ranks in (1, 2):
                metrics, job = runs.start(*TOKENIZER, "--eod-mask-loss", *flags, "--split", "1,0,0", "--global-batch-size", "4",
                                          "--train-iters", "6", data=f"{name}_text_document", ranks=ranks)
                ran = job.end()
                what = f"{name}, {ranks} ranks {flags}"
                place.expect(ran.exit == 0, what, ran)
                seen = rows(place, metrics)
                place.expect(len(seen) == 6, f"{what}: six steps", ran)
                for row in seen:
                    good = math.isfinite(row["lm loss"]) and math.isfinite(row["grad norm"])
                    if name == "masked":
                        good = good and row["lm loss"] == 0 and row["grad norm"] == 0
                    place.expect(good, f"{what}: loss {row['lm loss']}, gradient norm {row['grad norm']}", ran)
                if name == "half":
                    place.expect(all(row["grad norm"] > 0 for row in seen), f"{what}: what is not masked still counts", ran)


def write_tokenizers(place):
    """Writes a tokenizer of each kind, from the goldens of tests/train/data, and returns its flags."""
    goldens = os.path.join(os.environ["MS_SOURCE"], "tests/data/train")
    flags = {"ByteLevelTokenizer": []}
    for kind in ("SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"):
        flags[kind] = ["--tokenizer-model", os.path.join(goldens, "sentencepiece/bpe.model")]
    for golden in json.loads(training.read(os.path.join(goldens, "tokenizer_goldens.json")))["goldens"]:
        if golden["name"] not in ("qwen2", "llama2"):
            continue
        folder = place.path(golden["name"])
        os.mkdir(folder)
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(golden["tokenizer"], file)
        if golden["name"] == "llama2":
            flags["HuggingFaceTokenizer"] = ["--tokenizer-model", folder]
        else:
            model = golden["tokenizer"]["model"]
            with open(place.path("vocab.json"), "w", encoding="utf-8") as file:
                json.dump(model["vocab"], file)
            with open(place.path("merges.txt"), "w", encoding="utf-8") as file:
                file.write("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in model["merges"]))
            flags["GPT2BPETokenizer"] = ["--vocab-file", "vocab.json", "--merge-file", "merges.txt"]
            flags["PretrainedFromHF"] = ["--tokenizer-name-or-path", folder]
    return flags


def tokenizers(place):
    """The same flags work for msdata, for training, and for generated text, which begins with the prompt."""
    for kind, files in write_tokenizers(place).items():
        flags = ["--tokenizer-type", kind, *files]
        made = place.tool("msdata", "preprocess", "documents.jsonl", "--output-prefix", kind, "--append-eod", *flags)
        place.expect(made.exit == 0, f"{kind}: msdata", made)
        ran = place.run(*STEPS, *flags, "--split", "1,0,0", "--eod-mask-loss", "--save", f"{kind}_saved", data=f"{kind}_text_document")
        place.expect(ran.exit == 0, f"{kind}: trains", ran)
        prompt = "the brown fox 12"
        ran = place.run(*flags, "--load", f"{kind}_saved", "--generate", prompt, "--num-tokens-to-generate", "5", data=None)
        place.expect(ran.exit == 0 and prompt in ran.stdout, f"{kind}: continues its prompt", ran)


def main():
    with training.workplace() as place:
        make_documents(place, 200)
        runs = Runs(place)
        stale_indices(place, runs)
        starts_at_once(place, runs)
        masked_documents(place, runs)
        tokenizers(place)


if __name__ == "__main__":
    sys.exit(main())
