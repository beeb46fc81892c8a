#!/usr/bin/env python3
"""Learning rates and weight decays of Megatron's own OptimizerParamScheduler, as tests/data/param_scheduler.json.

  make_scheduler_golden.py            # compares the stored file with the installed megatron-core
  make_scheduler_golden.py --write    # writes it

Needs megatron-core and torch (exit 77 without).
"""
import json
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "peers"))
import peers  # noqa: E402

peers.need("torch", "megatron")
warnings.simplefilter("ignore")

from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "data" / "param_scheduler.json"
BATCH = 8
BASE = {"init_lr": 1e-5, "max_lr": 6e-4, "min_lr": 3e-5, "lr_warmup_steps": 10 * BATCH, "lr_decay_steps": 100 * BATCH,
        "lr_decay_style": "linear", "wsd_decay_steps": 0, "lr_wsd_decay_style": "exponential", "start_wd": 0.1, "end_wd": 0.1,
        "wd_incr_steps": 120 * BATCH, "wd_incr_style": "constant"}
CASES = [{"lr_decay_style": style} for style in ("constant", "linear", "cosine", "inverse-square-root")]
CASES += [{"lr_decay_style": "WSD", "wsd_decay_steps": 30 * BATCH, "lr_wsd_decay_style": style}
          for style in ("exponential", "linear", "cosine", "minus_sqrt")]
CASES += [{"lr_decay_style": "inverse-square-root", "lr_warmup_steps": 0}, {"lr_warmup_steps": 0.013 * 100 * BATCH},
          {"lr_decay_style": "cosine", "start_wd": 0.01, "end_wd": 0.2, "wd_incr_style": "linear"},
          {"start_wd": 0.01, "end_wd": 0.2, "wd_incr_style": "cosine"}]
POINTS = [BATCH * i for i in (0, 1, 5, 9, 10, 11, 37, 69, 70, 71, 85, 99, 100, 101, 119, 120, 121, 500)] + [13, 803]


class Optimizer:
    def __init__(self):
        self.param_groups = [{}]


def follow(case):
    schedule = {**BASE, **case}
    rows = []
    for point in POINTS:
        optimizer = Optimizer()
        scheduler = OptimizerParamScheduler(optimizer, **schedule)
        scheduler.step(point)
        rows.append([point, float(optimizer.param_groups[0]["lr"]), float(optimizer.param_groups[0]["weight_decay"])])
    return {"schedule": schedule, "points": rows}


def main():
    text = json.dumps([follow(case) for case in CASES]).replace('{"schedule"', '\n{"schedule"').replace("]}]", "]}\n]") + "\n"
    if "--write" in sys.argv:
        GOLDEN.write_text(text, encoding="utf-8")
        return 0
    same = json.loads(GOLDEN.read_text(encoding="utf-8")) == json.loads(text)
    print(f"{len(CASES)} schedules x {len(POINTS)} points: " + ("equal" if same else "the stored file differs"))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
