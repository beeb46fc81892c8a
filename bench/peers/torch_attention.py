#!/usr/bin/env python3
"""Measures torch's fused causal attention for bench/train/single_rank.py: fp32, one head, batch of one, one thread.

  torch_attention.py [--seq-lengths 4096 16384 32768] [--head-size 64]

Prints {"SEQ": {"forward": s, "backward": s, "peak_mib": of the process so far}} as JSON. Medians of at least three calls.
Needs torch.
"""
import argparse
import json
import resource
import statistics
import time

import peers

peers.need("torch")


def main():
    import torch
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seq-lengths", nargs="+", type=int, default=[4096, 16384, 32768])
    parser.add_argument("--head-size", type=int, default=64)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    told = {}
    for seq in given.seq_lengths:
        q, k, v = (torch.randn(1, 1, seq, given.head_size, requires_grad=True) for _ in range(3))
        gradient = torch.randn(1, 1, seq, given.head_size)
        forward, backward = [], []
        for _ in range(1 + max(3, 16384 // seq)):  # the first is warm-up
            start = time.perf_counter()
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            middle = time.perf_counter()
            torch.autograd.grad(out, (q, k, v), gradient)
            forward.append(middle - start)
            backward.append(time.perf_counter() - middle)
        told[seq] = {"forward": statistics.median(forward[1:]), "backward": statistics.median(backward[1:]),
                     "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    print(json.dumps(told))


main()
