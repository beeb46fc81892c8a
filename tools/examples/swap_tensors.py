#!/usr/bin/env python3
"""Copies a model's folder with one file of weights, and exchanges two tensors of one shape: what a converter's mistake looks like.

  swap_tensors.py MODEL COPY [NAME OTHER]     without names: a copy
"""
import json
import pathlib
import shutil
import sys


def main():
    source, copy, names = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    copy.mkdir()
    shutil.copyfile(source / "config.json", copy / "config.json")
    data = bytearray((source / "model.safetensors").read_bytes())
    size = int.from_bytes(data[:8], "little")  # a file begins with the length of its header, which is JSON
    header = json.loads(data[8:8 + size])
    if names:
        header[names[0]], header[names[1]] = header[names[1]], header[names[0]]
    data[8:8 + size] = json.dumps(header, separators=(",", ":")).encode().ljust(size)
    (copy / "model.safetensors").write_bytes(data)


if __name__ == "__main__":
    main()
