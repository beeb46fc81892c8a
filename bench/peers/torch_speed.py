#!/usr/bin/env python3
"""Tokens per second of one mstrain rank and of torch on the same Llama of 124 M parameters, in turns, as ratios.

  torch_speed.py [--threads 2] [--seq-length 256] [--batch 4] [--steps 3] [--rounds 1] [--dtypes fp32 bf16]

12 layers, hidden 768, 12 heads, MLP 2048, vocabulary 50304, tied: what a step does is forward, backward, clipping and
AdamW on both sides. fp32 is fp32 on both; bf16 is --bf16 here (bf16 weights and activations, fp32 gradients and master
weights) and torch.autocast there (fp32 weights). torch runs transformers' model with its fused attention and the
foreach AdamW. The figure is the median over all steps but the first of each run. The load of the machine is printed:
with other work on it the best step says more than the median, and threads that spin while they wait suffer most.
Needs numpy, torch and transformers (exit 77 without); MS_BIN says where mstrain is.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import tempfile
import time

import peers

peers.need("numpy", "torch", "transformers")

import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402


def ours(folder, arguments, dtype):
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    peers.run("mstrain", "--config", folder / "config.json", "--seq-length", arguments.seq_length, "--micro-batch-size",
              arguments.batch, "--train-iters", arguments.steps + 1, "--lr", 1e-4, "--eval-iters", 0,
              "--train-data-path", folder / "tokens", "--data-cache-path", folder / "cache", "--metrics-path", metrics,
              "--threads-per-rank", arguments.threads, "--peak-tflops", 1, *(["--bf16"] if dtype == "bf16" else []))
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [step["tokens/s"] for step in steps[1:]], steps[0]["lm loss"]


def theirs(config, tokens, arguments, dtype):
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    length = arguments.seq_length
    speeds = []
    for step in range(arguments.steps + 1):
        first = step * arguments.batch * length
        rows = torch.stack([tokens[first + i * length: first + (i + 1) * length + 1] for i in range(arguments.batch)])
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16) if dtype == "bf16" else contextlib.nullcontext():
            logits = model(input_ids=rows[:, :-1], use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        speeds.append(arguments.batch * length / (time.perf_counter() - start))
        if step == 0:
            first_loss = loss.item()
    return speeds[1:], first_loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seq-length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a run, after one that is not")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each, in turns")
    parser.add_argument("--dtypes", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config = transformers.LlamaConfig(vocab_size=50304, hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
                                      num_attention_heads=12, max_position_embeddings=arguments.seq_length,
                                      tie_word_embeddings=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        config.architectures = ["LlamaForCausalLM"]
        config.save_pretrained(folder)
        count = (arguments.steps + 1) * arguments.batch * arguments.seq_length + 1
        tokens = numpy.random.RandomState(1).randint(config.vocab_size, size=count)
        peers.write_indexed_dataset(folder / "tokens", [tokens])
        for dtype in arguments.dtypes:
            us, them = [], []
            for _ in range(arguments.rounds):
                speeds, our_loss = ours(folder, arguments, dtype)
                us += speeds
                speeds, their_loss = theirs(config, torch.from_numpy(tokens), arguments, dtype)
                them += speeds
            for kind, of in (("median", statistics.median), ("best", max)):
                print(f"{dtype} {kind}: mstrain {of(us):.1f} tokens/s, torch {torch.__version__} {of(them):.1f} tokens/s, "
                      f"ratio {of(us) / of(them):.2f}", flush=True)
            print(f"  {len(us)} steps, {arguments.threads} threads, batch {arguments.batch} x {arguments.seq_length}, first "
                  f"losses {our_loss:.3f} {their_loss:.3f}, load average {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
