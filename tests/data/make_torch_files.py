#!/usr/bin/env python3
"""Makes the small files of tests/data/torch with torch.save, and pickles with Python: values are counted up from 0. And
hf_llama_tiny_bin: the model of hf_llama_tiny in two files as transformers wrote them before safetensors.

  make_torch_files.py [FOLDER]     default: the folder of this script
"""
import argparse
import collections
import json
import pathlib
import pickle
import shutil
import sys

import safetensors.torch
import torch


def counted(shape, dtype):
    size = 1
    for length in shape:
        size *= length
    return torch.arange(size, dtype=torch.float64).to(dtype).reshape(shape)


def save_model(source, folder):
    folder.mkdir(exist_ok=True)
    shutil.copyfile(source / "config.json", folder / "config.json")
    tensors = safetensors.torch.load_file(source / "model.safetensors")
    names = sorted(tensors)
    weight_map, total = {}, 0
    for part, chosen in enumerate((names[:5], names[5:]), 1):
        file = f"pytorch_model-{part:05d}-of-00002.bin"
        torch.save(collections.OrderedDict((name, tensors[name]) for name in chosen), folder / file)
        weight_map.update({name: file for name in chosen})
        total += sum(tensors[name].nbytes for name in chosen)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def main():
    here = pathlib.Path(__file__).resolve().parent
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    save_model(here / "hf_llama_tiny", root / "hf_llama_tiny_bin")
    folder = root / "torch"
    folder.mkdir(exist_ok=True)
    base = counted((4, 6), torch.float32)
    tensors = collections.OrderedDict()
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16,
                  torch.int8, torch.uint8, torch.bool):
        tensors[str(dtype).split(".")[1]] = counted((2, 3), dtype)
    tensors["base"], tensors["tied"] = base, base  # one storage
    tensors["rows"], tensors["columns"] = base[1:3], base[:, 2:5]
    tensors["turned"] = base.t()
    tensors["repeated"] = counted((1, 3), torch.float32).expand(2, 3)
    tensors["scalar"] = torch.tensor(7.0)
    tensors["empty"] = torch.zeros(0, 5)
    tensors["parameter"] = torch.nn.Parameter(counted((3,), torch.float32))
    torch.save(tensors, folder / "state_dict.pt")
    torch.save(tensors, folder / "protocol4.pt", pickle_protocol=4)
    few = counted((2, 3), torch.float32)
    torch.save({"a": few, "b": few[1], "c": counted((5,), torch.bfloat16)}, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    # As Megatron's model_optim_rng.pt: a dictionary of everything.
    torch.save({"args": argparse.Namespace(num_layers=2, lr=1e-3, name="tiny", params_dtype=torch.bfloat16), "iteration": 100,
                "model": tensors, "flags": {True, False} - {False}, "big": 1 << 80, "negative": -5, "none": None,
                "bytes": b"\x00\xff"}, folder / "nested.pt")
    shared = ["x"]
    looped = {"list": shared, "same": shared}
    looped["self"] = looped
    for protocol in (2, 3, 4, 5):
        with open(folder / f"values{protocol}.pkl", "wb") as file:
            pickle.dump({"tuple": (1, 2, 3, 4), "floats": [1.5, -0.0], "ints": [0, 255, 256, 65536, -1, -129, 1 << 40, 1 << 70, -(1 << 63)],
                         "text": "h\u00e9llo", "long": "x" * 300, "set": {"a"}, "frozen": frozenset(["b"]), "empty": ((), [], {}),
                         "ordered": collections.OrderedDict(k=1), "looped": looped, "many": list(range(1500))}, file, protocol)


main()
