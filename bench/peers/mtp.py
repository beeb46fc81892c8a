#!/usr/bin/env python3
"""Two layers of multi-token prediction in float64 with autograd's gradients, as tests/data/train/mtp.json
(tests/train/model/multi_token_prediction_test.cpp).

  mtp.py            # compares the stored file with torch
  mtp.py --write    # writes it

The layers are written from DeepSeek-AI 2024 (arXiv 2412.19437, section 2.2), with a layer as Llama has it inside; scales are
those of megatron/core/transformer/multi_token_prediction.py. Weights and inputs follow from their place (`value`), so that
the file has results only: of each gradient its norm, and its product with a direction that follows from the place, too.
Needs torch (exit 77 without).
"""
import json
import math
import pathlib
import sys

import peers

peers.need("torch")

import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "train" / "mtp.json"
LAYERS, SEQ, BATCH, HIDDEN, HEADS, GROUPS, SIZE, FFN, VOCABULARY, EPS = 2, 12, 2, 32, 8, 4, 8, 64, 257, 1e-5
FACTOR = 0.3
DIRECTION = 100  # of number n: value(.., n + DIRECTION)


def value(shape, number):
    """In the order of the elements; between -1 and 1."""
    i = torch.arange(math.prod(shape), dtype=torch.float64)
    return torch.sin(0.37 * (i + 1) * (i + 2) + number).reshape(shape)


def shapes():
    """In Megatron's order; a head group's rows of linear_qkv are its queries, its key, its value."""
    yield "embedding.word_embeddings.weight", (VOCABULARY, HIDDEN)
    yield "output_layer.weight", (VOCABULARY, HIDDEN)
    for k in range(LAYERS):
        own, layer = f"mtp.layers.{k}.", f"mtp.layers.{k}.transformer_layer."
        yield own + "enorm.weight", (HIDDEN,)
        yield own + "hnorm.weight", (HIDDEN,)
        yield own + "eh_proj.weight", (HIDDEN, 2 * HIDDEN)
        yield layer + "self_attention.linear_qkv.layer_norm_weight", (HIDDEN,)
        yield layer + "self_attention.linear_qkv.weight", ((HEADS + 2 * GROUPS) * SIZE, HIDDEN)
        yield layer + "self_attention.linear_proj.weight", (HIDDEN, HEADS * SIZE)
        yield layer + "mlp.linear_fc1.layer_norm_weight", (HIDDEN,)
        yield layer + "mlp.linear_fc1.weight", (2 * FFN, HIDDEN)
        yield layer + "mlp.linear_fc2.weight", (HIDDEN, FFN)
        yield own + "final_layernorm.weight", (HIDDEN,)


def norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def rotated(x):  # [batch, heads, seq, size]
    half = SIZE // 2
    angle = torch.outer(torch.arange(SEQ, dtype=torch.float64), 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half))
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], dim=-1)


def transformer_layer(x, weights, place):  # [batch, seq, hidden]
    of = {name.removeprefix(place): weight for name, weight in weights.items() if name.startswith(place)}
    qkv = functional.linear(norm(x, of["self_attention.linear_qkv.layer_norm_weight"]), of["self_attention.linear_qkv.weight"])
    qkv = qkv.view(BATCH, SEQ, GROUPS, HEADS // GROUPS + 2, SIZE)
    q, k, v = qkv[..., :-2, :].flatten(2, 3), qkv[..., -2, :], qkv[..., -1, :]
    q, k = rotated(q.transpose(1, 2)), rotated(k.transpose(1, 2))
    k, v = (one.repeat_interleave(HEADS // GROUPS, dim=1) for one in (k, v.transpose(1, 2)))
    scores = q @ k.transpose(2, 3) / SIZE**0.5
    seen = torch.ones(SEQ, SEQ, dtype=torch.bool).tril()
    context = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1) @ v
    x = x + functional.linear(context.transpose(1, 2).flatten(2), of["self_attention.linear_proj.weight"])
    gate, up = functional.linear(norm(x, of["mlp.linear_fc1.layer_norm_weight"]), of["mlp.linear_fc1.weight"]).chunk(2, dim=-1)
    return x + functional.linear(functional.silu(gate) * up, of["mlp.linear_fc2.weight"])


def further(rows, k):
    """Of position i what is at position i + k; nothing at the end."""
    return functional.pad(rows[:, k:], (0, k))


def reference():
    weights = {}
    for number, (name, shape) in enumerate(shapes()):
        is_norm = name.endswith("norm.weight") or name.endswith("norm_weight")
        weights[name] = ((1 if is_norm else 0) + 0.2 * value(shape, number)).float().double().requires_grad_()
    # [seq, batch, hidden], as the model's output layer reads it.
    hidden = value((SEQ, BATCH, HIDDEN), 50).float().double().requires_grad_()
    place = torch.arange(SEQ * BATCH).view(SEQ, BATCH).T
    tokens, labels, mask = place * 53 % VOCABULARY, place * 37 % VOCABULARY, (place % 5 != 3).double()
    h, losses, total = hidden.transpose(0, 1), [], 0
    for k in range(1, LAYERS + 1):
        own = f"mtp.layers.{k - 1}."
        embedded = weights["embedding.word_embeddings.weight"][further(tokens, k)]
        pair = torch.cat([norm(embedded, weights[own + "enorm.weight"]), norm(h, weights[own + "hnorm.weight"])], dim=-1)
        x = transformer_layer(functional.linear(pair, weights[own + "eh_proj.weight"]), weights, own + "transformer_layer.")
        h = norm(x, weights[own + "final_layernorm.weight"])
        logits = functional.linear(h, weights["output_layer.weight"])
        each = functional.cross_entropy(logits.transpose(1, 2), further(labels, k), reduction="none")
        loss = (each * further(mask, k)).sum() / further(mask, k).sum()
        losses.append(loss.item())
        total = total + FACTOR / LAYERS * loss
    total.backward()
    gradients = {}
    for number, (name, tensor) in enumerate([*weights.items(), ("hidden", hidden)]):
        g = tensor.grad
        gradients[name] = [g.norm().item(), (g * value(g.shape, number + DIRECTION)).sum().item()]
    return {"losses": losses, "gradients": gradients}


def main():
    result = reference()
    if "--write" in sys.argv[1:]:
        GOLDEN.write_text(json.dumps(result, indent=1) + "\n")
        return
    stored = json.loads(GOLDEN.read_text())
    assert stored["gradients"].keys() == result["gradients"].keys()
    pairs = [*zip(stored["losses"], result["losses"], strict=True)]
    for name, numbers in result["gradients"].items():
        pairs += zip(stored["gradients"][name], numbers, strict=True)
    worst = max(abs(a - b) / max(abs(a), 1e-9) for a, b in pairs)
    print(f"{len(pairs)} numbers, largest relative difference {worst:.1e}")
    sys.exit(0 if worst < 1e-9 else 1)


if __name__ == "__main__":
    main()
