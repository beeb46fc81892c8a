#!/usr/bin/env python3
"""msdata against the data sets of the megatron-core package: each reads what the other wrote, for every type of token.

Exit 77 and SKIPPED without the package; MS_PEERS_PYTHON names an interpreter that has it.
  compare_megatron.py MSDATA
"""
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_megatron_goldens as megatron  # noqa: E402  (exits 77 where the package is missing)
import numpy as np  # noqa: E402
import torch  # noqa: E402
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder  # noqa: E402

SEED = int(os.environ.get("MS_TEST_SEED", random.SystemRandom().randrange(1 << 31)))
LARGEST = {"uint8": 255, "int8": 127, "int16": 32767, "int32": 2**31 - 2, "int64": 2**31 - 2, "uint16": 65535}


def msdata(*arguments, code=0):
    ran = subprocess.run([sys.argv[1], *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == code, (arguments, ran.returncode, ran.stderr)
    return ran.stdout if code == 0 else ran.stderr


def read_by_megatron(prefix, mmap):
    dataset = IndexedDataset(prefix, mmap=mmap)
    bounds = dataset.document_indices
    return [[dataset[s].tolist() for s in range(a, b)] for a, b in zip(bounds[:-1], bounds[1:])]


def read_by_msdata(prefix):
    ids = ["--tokenizer-type", "NullTokenizer", "--vocab-size", str(2**31 - 2)]
    seen = json.loads(msdata("inspect", prefix, *ids, "--json", "--show", "1000000", "--show-tokens", "1000000"))["sets"][0]
    return seen, [[int(word) for word in text.split()] for text in seen["text"]]


def ours_read_by_megatron(folder, rng):
    """msdata writes documents of ids in both of its types; Megatron reads them."""
    for vocab, dtype in ((60000, np.uint16), (200000, np.int32)):
        documents = [[rng.randrange(vocab) for _ in range(rng.choice((0, 1, 5, 300)))] for _ in range(400)]
        source = os.path.join(folder, "ids.jsonl")
        with open(source, "w", encoding="utf-8") as file:
            for document in documents:
                file.write(json.dumps({"text": " ".join(map(str, document))}) + "\n")
        prefix = msdata("preprocess", source, "--output-prefix", os.path.join(folder, f"ours{vocab}"), "--tokenizer-type",
                        "NullTokenizer", "--vocab-size", str(vocab), "--append-eod").strip()
        wanted = [[[*document, vocab]] if document else [] for document in documents]
        for mmap in (True, False):
            assert read_by_megatron(prefix, mmap) == wanted, (vocab, mmap)
        assert IndexedDataset(prefix).index.dtype == dtype
        print(f"{np.dtype(dtype).name}: Megatron reads what msdata wrote, {len(documents)} documents", flush=True)


def theirs_read_by_ours(folder, rng):
    for name, largest in LARGEST.items():
        prefix = os.path.join(folder, name)
        documents = [[[rng.randint(0, largest) for _ in range(rng.choice((1, 2, 40)))] for _ in range(rng.randrange(3))]
                     for _ in range(200)]
        megatron.write(prefix, documents, getattr(np, name))
        # The builder's other two methods: a whole document at once, and appending another data set.
        builder = IndexedDatasetBuilder(prefix + "2.bin", dtype=getattr(np, name))
        for sequences in documents:
            builder.add_document(torch.tensor(sum(sequences, []), dtype=torch.int64), [len(s) for s in sequences])
        builder.add_index(prefix)
        builder.finalize(prefix + "2.idx")
        for path, wanted in ((prefix, documents), (prefix + "2", documents + documents)):
            seen, texts = read_by_msdata(path)
            assert texts == [sum(sequences, []) for sequences in wanted], path
            assert (seen["dtype"], seen["documents"], seen["sequences"], seen["tokens"]) == (
                name, len(wanted), sum(map(len, wanted)), sum(map(len, texts))), seen
        print(f"{name}: msdata reads what Megatron wrote, {len(documents)} documents", flush=True)
    for name, multimodal in (("float32", False), ("float64", False), ("int32", True)):
        prefix = os.path.join(folder, f"refused_{name}")
        megatron.write(prefix, [[[1, 2]]], getattr(np, name), multimodal=multimodal)
        says = msdata("inspect", prefix, code=2)
        assert says.count("\n") == 1 and ("multimodal" if multimodal else "floating-point") in says, says
    print("sets of floating-point values and multimodal ones are refused")


def main():
    print(f"MS_TEST_SEED={SEED}", flush=True)
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        ours_read_by_megatron(folder, rng)
        theirs_read_by_ours(folder, rng)


if __name__ == "__main__":
    main()
