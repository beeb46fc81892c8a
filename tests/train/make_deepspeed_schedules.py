#!/usr/bin/env python3
"""Learning rates that DeepSpeed's own schedulers give, step by step, as tests/data/deepspeed_schedules.json.

  make_deepspeed_schedules.py            # compares the stored file with the installed deepspeed
  make_deepspeed_schedules.py --write    # writes it

Needs deepspeed and torch (exit 77 without).
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import peers  # noqa: E402

peers.need("torch", "deepspeed")

import torch  # noqa: E402
from deepspeed.runtime import lr_schedules  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "data" / "deepspeed_schedules.json"
LR, STEPS = 0.25, 50
CASES = [
    ("WarmupLR", {"warmup_type": "linear", "warmup_min_lr": 0.01, "warmup_max_lr": 0.5, "warmup_num_steps": 10}),
    ("WarmupLR", {"warmup_type": "linear", "warmup_num_steps": 100}),
    ("WarmupLR", {"warmup_type": "linear", "warmup_max_lr": 0.5, "warmup_num_steps": 0}),
    ("WarmupLR", {"warmup_max_lr": 0.5, "warmup_num_steps": 0}),
    ("WarmupDecayLR", {"warmup_type": "linear", "warmup_min_lr": 0.01, "warmup_max_lr": 0.5, "warmup_num_steps": 7,
                       "total_num_steps": 40}),
    ("WarmupDecayLR", {"warmup_type": "linear", "warmup_max_lr": 0.5, "warmup_num_steps": 0, "total_num_steps": 30}),
    ("WarmupCosineLR", {"warmup_type": "linear", "warmup_min_ratio": 0.2, "warmup_num_steps": 7, "total_num_steps": 50,
                        "cos_min_ratio": 0.1}),
    ("WarmupCosineLR", {"warmup_type": "linear", "warmup_num_steps": 10, "total_num_steps": 60}),
]


def follow(name, params):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler = getattr(lr_schedules, name)(optimizer, **params)
    rates = []
    for _ in range(STEPS):  # as deepspeed/runtime/engine.py: the optimizer's step, then the scheduler's
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    config = {"optimizer": {"type": "AdamW", "params": {"lr": LR}}, "scheduler": {"type": name, "params": params}}
    return {"config": config, "rates": rates}


def main():
    text = json.dumps([follow(*case) for case in CASES]).replace('{"config"', '\n{"config"').replace("]}]", "]}\n]") + "\n"
    if "--write" in sys.argv:
        GOLDEN.write_text(text, encoding="utf-8")
        return 0
    same = json.loads(GOLDEN.read_text(encoding="utf-8")) == json.loads(text)
    print(f"{len(CASES)} schedules x {STEPS} steps: " + ("equal" if same else "the stored file differs"))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
