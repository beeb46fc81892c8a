#!/usr/bin/env python3
"""Computes the loss of a Hugging Face folder with transformers, in fp32: the reference for `mstrain --skip-train`.

  hf_loss.py MODEL DATA.bin --seq-length 64 [--samples 8]   samples cut back to back from an indexed data set's .bin
  hf_loss.py MODEL TOKENS.json                              {"tokens": [[ids ...], ...]}, all rows of one length

Prints one JSON line: {"loss": mean next-token cross entropy, "tokens": number of targets}. Needs numpy, torch and
transformers (exit 77 without).
"""
import argparse
import json
import pathlib

import peers

peers.need("numpy", "torch", "transformers")

import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402


def read_tokens(path, seq_length, samples, token_type):
    if path.suffix == ".json":
        return torch.tensor(json.loads(path.read_text())["tokens"])
    ids = numpy.fromfile(path, dtype={"uint16": numpy.uint16, "int32": numpy.int32}[token_type])
    ids = ids[: samples * seq_length + 1].astype(numpy.int64)
    return torch.from_numpy(numpy.stack([ids[i * seq_length: (i + 1) * seq_length + 1] for i in range(samples)]))


def model_loss(folder, rows):
    """Mean next-token cross entropy over rows [samples, length]: fp32 logits, the sum in fp64."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(input_ids=rows[:, :-1]).logits.double()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokens", type=pathlib.Path)
    parser.add_argument("--seq-length", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--token-type", choices=["uint16", "int32"], default="uint16")
    arguments = parser.parse_args()
    transformers.logging.disable_progress_bar()
    rows = read_tokens(arguments.tokens, arguments.seq_length, arguments.samples, arguments.token_type)
    print(json.dumps({"loss": model_loss(arguments.model, rows), "tokens": rows[:, 1:].numel()}))


if __name__ == "__main__":
    main()
