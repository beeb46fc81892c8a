#!/usr/bin/env python3
"""--optimization-level and each --no-use-* flag change which operators run, and not what they compute."""
import json
import os
import sys

import training

RECORD = ["--train-iters", "3", "--profile", "--profile-step-start", "1", "--profile-step-end", "2", "--profile-format", "json",
          "--profile-save-path", "traces", "--metrics-path", "metrics.jsonl"]
# flag -> the fused operator that it replaces, and operators that run instead
PLAIN = {
    "--no-use-fused-rmsnorm": ("rms_norm", {"row_means", "rsqrt", "column_sums"}),
    "--no-use-fused-swiglu": ("swiglu", {"silu", "silu_backward"}),
    "--no-use-fused-rotary-pos-emb": ("rope", {"rotate_pairs", "rotate"}),
    "--no-use-flash-attn": ("causal_attention", {"unfused_attention", "unfused_attention_backward"}),
}
CASES = [([flag], {flag}) for flag in PLAIN] + [
    ([], set()),
    (["--optimization-level", "0"], set(PLAIN)),
    (["--optimization-level", "1"], set()),
    (["--optimization-level", "1", "--no-use-flash-attn"], {"--no-use-flash-attn"}),
]


def operators(place):
    with open(place.path("traces", "rank_00000.json"), encoding="utf-8") as file:
        return {e["name"] for e in json.load(file)["traceEvents"] if e.get("cat") == "kernel"}


def main():
    with training.workplace(needs_mpirun=False) as place:
        place.make_data()
        expected = None
        for flags, plain in CASES:
            ran = place.run(*RECORD, *flags)
            if not place.expect(ran.exit == 0, f"{flags}: the run succeeds", ran):
                continue
            seen = operators(place)
            for flag, (fused, instead) in PLAIN.items():
                used = {name for name in seen if name in (fused, f"{fused}_backward")}
                place.expect(bool(used) == (flag not in plain), f"{flags}: fused {fused}: {used}", seen)
                place.expect(instead <= seen if flag in plain else not instead & seen, f"{flags}: instead of {fused}", seen)
            losses = [float(loss) for loss in place.losses("metrics.jsonl").values()]
            expected = expected or losses
            place.expect(len(losses) == 3 and all(abs(a / b - 1) < 1e-5 for a, b in zip(losses, expected)),
                         f"{flags}: losses {losses}, first {expected}")
            os.remove(place.path("metrics.jsonl"))
        ran = place.run("--train-iters", "1", "--optimization-level", "1", "--recompute-norm")
        place.expect(ran.exit == 2 and "--recompute-norm" in ran.stderr and "--optimization-level 2" in ran.stderr, "a conflict names both", ran)


if __name__ == "__main__":
    sys.exit(main())
