#!/usr/bin/env python3
"""Writes tests/data/train/megatron: data sets written by Megatron's own builder, and the samples that its own data sets draw.

Uses the classes IndexedDatasetBuilder, GPTDataset and BlendedDataset of the megatron-core package. Exit 77 and
SKIPPED without the package; MS_PEERS_PYTHON names an interpreter that has it.
  make_megatron_goldens.py TESTS_DATA_TRAIN_MEGATRON
"""
import json
import logging
import os
import shutil
import sys
import tempfile
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench/peers"))
import peers  # noqa: E402

peers.need("numpy", "torch", "megatron.core")
import numpy as np  # noqa: E402
import torch  # noqa: E402
from megatron.core.datasets import helpers_cpp  # noqa: E402
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder  # noqa: E402
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: E402
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder  # noqa: E402
from megatron.core.datasets.utils import get_blend_from_list  # noqa: E402

EOD = 5


def write(prefix, documents, dtype, multimodal=False):
    """documents: lists of sequences, which are lists of ids."""
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=dtype, multimodal=multimodal)
    for sequences in documents:
        for sequence in sequences:
            builder.add_item(torch.tensor(sequence, dtype=torch.int64))
        builder.end_document()
    builder.finalize(prefix + ".idx")


def corpus(base, documents):
    """Documents of 0 to 18 ids from base on, each ended by EOD; every seventh has two sequences."""
    out = []
    for d in range(documents):
        ids = [base + (d * 31 + t * t) % 90 for t in range(d * 5 % 19)]
        out.append([ids, [base, EOD]] if d % 7 == 3 else [[*ids, EOD]])
    return out


def draw(folder, case):
    config = dict(random_seed=case["seed"], sequence_length=case["seq_length"], reset_position_ids=False,
                  reset_attention_mask=False, eod_mask_loss=True, create_attention_mask=False, mmap_bin_files=True,
                  path_to_cache=None, tokenizer=types.SimpleNamespace(
                      eod=EOD, pad=-1, vocab_size=1 << 20, unique_identifiers={"class": "golden"}))
    full = lambda values: [os.path.join(folder, v) if os.path.exists(os.path.join(folder, v + ".idx")) else v for v in values]
    if "data_path" in case:
        config.update(blend=get_blend_from_list(full(case["data_path"])), split=case["split"])
    else:
        config.update(blend_per_split=[get_blend_from_list(full(values)) if values else None for values in case["per_split"]])
    sets = BlendedMegatronDatasetBuilder(GPTDataset, case["sizes"], lambda: True, GPTDatasetConfig(**config)).build()
    drawn = []
    for dataset, size in zip(sets, case["sizes"]):
        rows = [dataset[i] for i in range(size)] if dataset is not None and size else []
        drawn.append({"samples": [[*row["tokens"].tolist(), int(row["labels"][-1])] for row in rows],
                      "loss_mask": [[int(x) for x in row["loss_mask"]] for row in rows]})
    return drawn


def blend(weights, size):
    """The indices that megatron/core/datasets/helpers.cpp computes."""
    weights = np.array(weights, dtype=np.float64)
    weights /= weights.sum()
    dataset, sample = np.zeros(size, dtype=np.int16), np.zeros(size, dtype=np.int64)
    helpers_cpp.build_blending_indices(dataset, sample, weights, len(weights), size, False)
    return {"weights": weights.tolist(), "dataset": dataset.tolist(), "sample": sample.tolist()}


def main():
    logging.disable(logging.WARNING)
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    goldens = {"eod": EOD, "sets": [], "refused": ["float32", "float64", "multimodal"], "cases": [
        {"data_path": ["uint16"], "split": "80,15,5", "seq_length": 11, "seed": 1234, "sizes": [60, 12, 3]},
        {"data_path": ["int32"], "split": "1,0,0", "seq_length": 7, "seed": 7, "sizes": [150, 0, 0]},
        {"data_path": ["0.3", "uint16", "0.7", "int32"], "split": "90,10,0", "seq_length": 9, "seed": 1, "sizes": [80, 10, 0]},
        {"data_path": ["5", "uint8", "1", "int16", "1", "int64", "3", "uint16"], "split": "100,0,0", "seq_length": 13,
         "seed": 99, "sizes": [70, 0, 0]},
        {"data_path": ["int8", "int64", "int16"], "split": "70,30,0", "seq_length": 8, "seed": 3, "sizes": [40, 10, 0]},
        {"per_split": [["1", "uint16", "1", "int32"], ["int16"], None], "seq_length": 10, "seed": 5, "sizes": [30, 20, 0]}]}
    for i, (name, documents) in enumerate((("uint8", 40), ("int8", 30), ("int16", 45), ("int32", 50), ("int64", 35), ("uint16", 60))):
        base = {"uint8": 160, "int8": 20, "int16": 30000, "uint16": 60000}.get(name, 100000)
        write(os.path.join(folder, name), corpus(base, documents), getattr(np, name))
        goldens["sets"].append({"name": name, "documents": corpus(base, documents)})
    for name in ("float32", "float64"):
        write(os.path.join(folder, name), corpus(10, 3), getattr(np, name))
    write(os.path.join(folder, "multimodal"), corpus(10, 3), np.int32, multimodal=True)
    assert {d.name for d in DType} == {s["name"] for s in goldens["sets"]} | {"float32", "float64"}
    with tempfile.TemporaryDirectory() as work:
        for file in os.listdir(folder):
            shutil.copy(os.path.join(folder, file), work)
        for case in goldens["cases"]:
            case["drawn"] = draw(work, case)
    goldens["blends"] = [blend([1, 1], 20), blend([(i * i) % 97 + 0.5 for i in range(300)], 1500)]
    with open(os.path.join(folder, "goldens.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(goldens, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
