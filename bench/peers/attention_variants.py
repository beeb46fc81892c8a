#!/usr/bin/env python3
"""Attention with a sink in each head's softmax, by transformers' gpt_oss, with the slopes of ALiBi, by its MPT, and with a prefix, by
torch, in float64 with autograd's gradients, as tests/data/train/attention_variants.json (tests/train/ops/attention_variants_test.cpp).

  attention_variants.py            # compares the stored file with transformers
  attention_variants.py --write    # writes it

Cases: sinks that are parameters, sinks of 0 (Megatron's --softmax-type off-by-one), and ALiBi of 6 heads, each with a window of 3 keys
as well; the first 4 positions see each other. Inputs follow from their place (`value`). Needs torch and transformers (exit 77 without).
"""
import json
import math
import pathlib
import sys
import types

import peers

peers.need("torch")
peers.need("transformers")

import torch  # noqa: E402
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward  # noqa: E402
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "train" / "attention_variants.json"
SEQ, BATCH, GROUPS, SIZE = 7, 2, 2, 4
HEADS = {"learnable": 4, "off-by-one": 4, "alibi": 6, "prefix": 4}
PREFIX = 4
NAMES = ("q", "k", "v", "sinks")


def value(shape, number):
    """In the order of the elements; between -2 and 2."""
    i = torch.arange(math.prod(shape), dtype=torch.float64)
    return 2 * torch.sin(0.37 * (i + 1) * (i + 2) + number).reshape(shape)


def case(kind, window):
    """Tensors are [seq, batch, heads, size], as in Megatron; transformers' are [batch, heads, seq, size]."""
    heads = HEADS[kind]
    q, k, v = (value((SEQ, BATCH, count, SIZE), number) for number, count in enumerate((heads, GROUPS, GROUPS)))
    sinks = value((heads,), 3) if kind == "learnable" else torch.zeros(heads, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (q, k, v, sinks)]
    position = torch.arange(SEQ)
    distance = position[:, None] - position[None, :]
    seen = (distance >= 0) & (distance < (window or SEQ))
    if kind == "prefix":
        seen |= position[None, :] < PREFIX
    mask = torch.zeros(1, 1, SEQ, SEQ, dtype=torch.float64).masked_fill(~seen, -math.inf)
    theirs = [x.permute(1, 2, 0, 3) for x in (q, k, v)]
    if kind == "alibi":
        k, v = (x.repeat_interleave(heads // GROUPS, dim=1) for x in theirs[1:])
        scores = theirs[0] @ k.transpose(-1, -2) * SIZE ** -0.5 + build_mpt_alibi_tensor(heads, SEQ).double() + mask
        out = (scores.softmax(-1) @ v).transpose(1, 2) + 0 * sinks.sum()
    elif kind == "prefix":
        k, v = (x.repeat_interleave(heads // GROUPS, dim=1) for x in theirs[1:])
        out = torch.nn.functional.scaled_dot_product_attention(theirs[0], k, v, attn_mask=seen).transpose(1, 2) + 0 * sinks.sum()
    else:
        module = types.SimpleNamespace(num_key_value_groups=heads // GROUPS, sinks=sinks, training=False)
        out, _ = eager_attention_forward(module, *theirs, mask, scaling=SIZE ** -0.5)
    out = out.transpose(0, 1)  # [batch, seq, heads, size] -> [seq, batch, heads, size]
    gradients = torch.autograd.grad(out, inputs, value(out.shape, 4))
    told = {"out": out} | {f"d{name}": gradient for name, gradient in zip(NAMES, gradients)}
    return {"kind": kind, "window": window} | {name: [round(y, 9) for y in x.flatten().tolist()] for name, x in told.items()}


def main():
    cases = [case(kind, window) for window in (0, 3) for kind in HEADS if kind != "prefix" or window == 0]
    if sys.argv[1:] == ["--write"]:
        GOLDEN.write_text(json.dumps(cases) + "\n")
        return
    for stored, seen in zip(json.loads(GOLDEN.read_text()), cases, strict=True):
        for name in ("out", "dq", "dk", "dv", "dsinks"):
            distance = max(abs(a - b) for a, b in zip(stored[name], seen[name], strict=True))
            assert distance < 2e-9, f"{name} is {distance} from the stored one"
    print(f"{len(cases)} cases agree")


main()
