#!/usr/bin/env python3
"""Measures whole training steps of torch on one of two models of 124 M parameters, for torch_speed.py.

  torch_gpt.py --model gpt2|llama --dtype fp32|bf16 --batch 4 --seq-length 1024 --steps 2 [--compile] [--threads 2]

The models are written for torch's fast paths: scaled_dot_product_attention, layer_norm, rms_norm and tanh GELU as one
operator each, one tied matrix for embedding and logits. A step is forward, backward, clipping to 1 and the fused AdamW;
bf16 is torch.autocast (fp32 weights). Prints a JSON line: seconds of every step, and the first loss.
"""
import argparse
import contextlib
import json
import time

import numpy
import torch
from torch import nn
from torch.nn import functional

LAYERS, HIDDEN, HEADS, VOCABULARY = 12, 768, 12, 50304
FFN = {"gpt2": 4 * HIDDEN, "llama": 2048}


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Layer(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.llama = model == "llama"
        norm = (lambda: nn.RMSNorm(HIDDEN, eps=1e-5)) if self.llama else (lambda: nn.LayerNorm(HIDDEN))
        self.attention_norm, self.mlp_norm = norm(), norm()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=not self.llama)
        self.projection = nn.Linear(HIDDEN, HIDDEN, bias=not self.llama)
        self.fc1 = nn.Linear(HIDDEN, FFN[model] * (2 if self.llama else 1), bias=not self.llama)
        self.fc2 = nn.Linear(FFN[model], HIDDEN, bias=not self.llama)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2)
                   for part in self.qkv(self.attention_norm(x)).split(HIDDEN, dim=2))
        if self.llama:
            q, k = rotated(q, cos, sin).to(v.dtype), rotated(k, cos, sin).to(v.dtype)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(out.transpose(1, 2).reshape(batch, length, HIDDEN))
        inner = self.fc1(self.mlp_norm(x))
        if self.llama:
            gate, up = inner.chunk(2, dim=-1)
            return x + self.fc2(functional.silu(gate) * up)
        return x + self.fc2(functional.gelu(inner, approximate="tanh"))


class Model(nn.Module):
    def __init__(self, model, length):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(length, HIDDEN) if model == "gpt2" else None
        self.layers = nn.ModuleList(Layer(model) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-5) if model == "llama" else nn.LayerNorm(HIDDEN)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        half = HIDDEN // HEADS // 2
        angle = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, ids, labels):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.view(-1, VOCABULARY), labels.reshape(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(FFN), required=True)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seq-length", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="all of them: the first is slow")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model = Model(arguments.model, arguments.seq_length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    loss_of = torch.compile(model) if arguments.compile else model
    random = numpy.random.RandomState(1)
    seconds, first_loss = [], None
    for _ in range(arguments.steps):
        rows = torch.from_numpy(random.randint(VOCABULARY, size=(arguments.batch, arguments.seq_length + 1)))
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16) if arguments.dtype == "bf16" else contextlib.nullcontext():
            loss = loss_of(rows[:, :-1], rows[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        first_loss = first_loss or loss.item()
    print(json.dumps({"seconds": seconds, "first_loss": first_loss}))


if __name__ == "__main__":
    main()
