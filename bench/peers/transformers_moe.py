#!/usr/bin/env python3
"""Measures whole training steps of transformers on a mixture of experts, for mixture_speed.py.

  transformers_moe.py --shape '{"num_hidden_layers": 8, ...}' --steps 3 [--compile] [--experts eager|batched_mm|grouped_mm] [--foreach]
                      [--bf16]

Mixtral as transformers writes it (shape: fields of MixtralConfig), in fp32 or with autocast to bf16, of one sample of max_position_embeddings tokens, with
scaled_dot_product_attention and each implementation of the experts that it has. A step is forward, backward, clipping to 1 and
AdamW, fused or foreach. Prints a JSON line: seconds of every step, the first loss, and the number of parameters.
"""
import argparse
import json
import time

import torch
import transformers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=json.loads, required=True)
    parser.add_argument("--steps", type=int, required=True, help="all of them: the first is slow")
    parser.add_argument("--experts", choices=["eager", "batched_mm", "grouped_mm"], default="grouped_mm")
    parser.add_argument("--foreach", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    config = transformers.MixtralConfig(**arguments.shape)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa",
                                                          experts_implementation=arguments.experts, dtype=torch.float32)
    kind = {"foreach": True} if arguments.foreach else {"fused": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, **kind)
    forward = torch.compile(model) if arguments.compile else model
    seconds, first_loss = [], None
    for _ in range(arguments.steps):
        tokens = torch.randint(config.vocab_size, (1, config.max_position_embeddings + 1))
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bf16):
            logits = forward(input_ids=tokens[:, :-1], use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        first_loss = first_loss or loss.item()
    print(json.dumps({"seconds": seconds, "first_loss": first_loss, "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
