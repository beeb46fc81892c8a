#!/usr/bin/env python3
"""Writes routing traces of two ranks with Megatron's own tracer, and how many tokens each expert had: for msprof experts.

  make_routing.py MEGATRON_LM        a checkout of NVIDIA/Megatron-LM (d98e8a6 made the stored files); needs torch

Two iterations of two micro-batches through two layers of the decoder and a module of multi-token prediction, 8 experts, top-2, the
routers' outputs at random but skewed. megatron/router_trace_rank*.jsonl is what --moe-routing-trace-path writes; tokens.json
has the counts by layer, step and rank, taken from the routing maps.
"""
import importlib.util
import json
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS = ["decoder.layers.0.mlp.router", "decoder.layers.1.mlp.router", "mtp.layers.0.mtp_model_layer.layers.0.mlp.router"]
EXPERTS, TOPK, TOKENS = 8, 2, 12


class Router:
    topk = TOPK


def main():
    path = os.path.join(sys.argv[1], "megatron/core/transformer/moe/router_trace.py")
    spec = importlib.util.spec_from_file_location("router_trace", path)
    router_trace = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(router_trace)
    out = os.path.join(HERE, "megatron")
    tokens = {}
    for rank in range(2):
        tracer = router_trace.RouterTracer(out, max_steps=10, rank=rank, training_mode=True)
        for iteration in range(5, 7):
            for microbatch in range(2):
                for i, name in enumerate(LAYERS):
                    generator = torch.Generator().manual_seed(1000 * rank + 100 * iteration + 10 * microbatch + i)
                    scores = torch.rand(TOKENS, EXPERTS, generator=generator) + torch.linspace(0.6, 0, EXPERTS) * (i == 0)
                    chosen = torch.zeros(TOKENS, EXPERTS, dtype=torch.bool).scatter(1, scores.topk(TOPK).indices, True)
                    tracer._record(Router(), (), (scores * chosen, chosen), router_trace._parse_router_module_name(name))
                    counts = tokens.setdefault(name, {}).setdefault(str(iteration), {}).setdefault(str(rank), [0] * EXPERTS)
                    for expert, count in enumerate(chosen.sum(0).tolist()):
                        counts[expert] += count
            tracer.advance_step(iteration)
        tracer.flush()
    with open(os.path.join(HERE, "tokens.json"), "w", encoding="utf-8") as file:
        json.dump(tokens, file, indent=1)
        file.write("\n")


main()
