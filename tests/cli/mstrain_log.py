#!/usr/bin/env python3
"""The log of a run: lines of intervals, times of the parts of a step, the roofline, flags without effect."""
import json
import re
import sys

import training


def lines(ran, where, kind="I"):
    return [line.split("] ", 1)[1] for line in ran.stderr.splitlines() if line.startswith(kind + " ") and f" {where}] " in line]


def main():
    with training.workplace() as place:
        place.make_data()
        ran = place.run("--train-iters", "4", "--log-interval", "2", "--metrics-path", "metrics.jsonl", "--log-params-norm",
                        "--log-num-zeros-in-grad")
        steps = lines(ran, "train.step")
        rows = [json.loads(line) for line in training.read(place.path("metrics.jsonl")).splitlines()]
        place.expect(ran.exit == 0 and len(steps) == 2 and len(rows) == 4, "a line for every other step", ran)
        for i, line in enumerate(steps):
            pair = rows[2 * i:2 * i + 2]
            mean = sum(row["lm loss"] for row in pair) / 2
            place.expect(f"lm loss: {mean:.5f} " in line, f"the mean loss of its steps, {mean:.5f}: {line}")
            elapsed = sum(row["elapsed time per iteration (ms)"] for row in pair) / 2
            place.expect(f"elapsed time per iteration (ms): {elapsed:.1f} " in line, f"their mean time, {elapsed:.1f}: {line}")
            place.expect(f"grad norm: {pair[1]['grad norm']:.3f} " in line, f"the last one's gradient norm: {line}")
            place.expect(f"num zeros: {pair[1]['num zeros']:.0f} " in line and f"params norm: {pair[1]['params norm']:.3f} " in line,
                         f"zeros and norm, where asked for: {line}")

        for level, names in (("0", []), ("1", ["forward-backward", "all-grads-sync", "optimizer"]),
                             ("2", ["forward-backward", "all-grads-sync", "optimizer", "batch-generator", "forward-compute",
                                    "backward-compute"])):
            ran = place.run("--train-iters", "4", "--log-interval", "2", "--timing-log-level", level, ranks=2)
            times = [line for line in lines(ran, "train.step") if line.startswith("times of a step")]
            place.expect(len(times) == (2 if names else 0), f"--timing-log-level {level}: a line for each log line", ran)
            for line in times:
                found = re.findall(r"([a-z-]+): \(([\d.]+), ([\d.]+)\)", line)
                place.expect([name for name, _, _ in found] == names and all(0 <= float(least) <= float(most) for _, least, most in found)
                             and float(found[0][1]) > 0,
                             f"level {level} has {names}: {line}")
                if level == "2":
                    most = {name: float(value) for name, _, value in found}
                    place.expect(most["forward-compute"] + most["backward-compute"] <= 1.5 * most["forward-backward"] + 0.1,
                                 f"parts are no longer than the whole: {line}")

        without = [flag for flag in training.MODEL if flag not in ("--peak-tflops", "0.1")]
        ran = place.run("--train-iters", "2", "--bf16", model=without)
        place.expect(len(lines(ran, "train.roofline")) == 1 and "bf16 GEMM" in lines(ran, "train.roofline")[0],
                     "the roofline is measured in the run's dtype and told", ran)
        for ranks in (1, 2):
            ran = place.run("--train-iters", "5", "--log-level", "debug", model=without, ranks=ranks)
            again = [line for line in lines(ran, "train.roofline", "D") if "measured again" in line]
            place.expect(ran.exit == 0 and len(again) == 3, f"{ranks} ranks: measured again after lines 1, 2 and 4", ran)
        ran = place.run("--train-iters", "3", "--peak-tflops", "1e-9")
        told = lines(ran, "train.roofline", "W")
        place.expect(len(told) == 1 and "--peak-tflops 1e-09" in told[0], "MFU above 100 % is told, once", ran)

        ran = place.run("--train-iters", "1", "--bf16", "--no-gradient-accumulation-fusion")
        told = lines(ran, "train.config")
        place.expect(ran.exit == 0 and len(told) == 1 and "rounded to bf16" in told[0], "what unfused gradients cost is told", ran)

        # Megatron's default of --recompute-modules is core_attn, of which nothing is kept here anyway.
        for flags, saves in ((["--recompute-granularity", "selective"], False), (["--recompute-activations"], False),
                             (["--recompute-granularity", "selective", "--recompute-modules", "core_attn"], False),
                             (["--recompute-granularity", "selective", "--recompute-modules", "core_attn", "mlp"], True)):
            ran = place.run("--train-iters", "1", *flags)
            told = lines(ran, "train.config", "W")
            place.expect(ran.exit == 0 and len(told) == (0 if saves else 1) and all(
                "has no effect with --recompute-modules core_attn" in line and "Add mlp or layernorm" in line for line in told),
                         f"{' '.join(flags)}: {'saves memory' if saves else 'has no effect, and the log says why'}", ran)

        # Flags without effect, and values that are taken as others.
        for flags, text in ((["--ddp-bucket-size", "9"], "--ddp-bucket-size and --ddp-num-buckets have no effect without --overlap-grad-reduce"),
                            (["--ddp-num-buckets", "9"], "--ddp-bucket-size and --ddp-num-buckets have no effect without --overlap-grad-reduce"),
                            (["--sgd-momentum", "0.5"], "--sgd-momentum has no effect with --optimizer adam"),
                            (["--optimizer", "sgd", "--adam-eps", "1e-6"], "--adam-eps have no effect with --optimizer sgd"),
                            (["--position-embedding-type", "alibi", "--rotary-base", "500"], "--rotary-base has no effect with --position-embedding-type alibi"),
                            (["--position-embedding-type", "none", "--rotary-percent", "0.5"], "--rotary-percent has no effect with --position-embedding-type none"),
                            (["--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers", "3"],
                             "--recompute-num-layers 3: no stage has more than 2 layers: taken as 2, as Megatron does"),
                            (["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "9223372036854775807"],
                             "no stage has more than 2 layers"),
                            (["--optimizer", "sgd", "--sgd-momentum", "0.5", "--recompute-norm", "--recompute-norm-num-layers", "2"], "")):
            ran = place.run("--train-iters", "1", *flags)
            told = lines(ran, "train.config", "W")
            place.expect(ran.exit == 0 and len(told) == (1 if text else 0) and all(text in line for line in told), f"{flags}: {text}", ran)
        for flags, text in ((["--freeze-parameters", ""], "--freeze-parameters is empty: give a regular expression, or leave the flag out"),
                            (["--save-tensors-filter", ""], "--save-tensors-filter is empty: "),
                            (["--swap-attention", "--swap-modules", ",,"], '--swap-modules ",," has an empty name: expected self_attention'),
                            (["--swap-attention", "--swap-modules", ""], '--swap-modules "" has an empty name: expected self_attention'),
                            (["--optimizer", ""], '--optimizer "": expected adam or sgd'),
                            (["--context-parallel-algo", ""], '--context-parallel-algo "": expected ulysses_cp_algo, '),
                            (["--context-parallel-kv-cache-policy", ""], '--context-parallel-kv-cache-policy "": expected full or half'),
                            (["--recompute-granularity", ""], '--recompute-granularity "": expected full or selective'),
                            (["--checkpoint-activations", "--recompute-method", ""], '--recompute-method "": expected uniform or block'),
                            (["--parallel-mode", ""], '--parallel-mode "": expected stand_alone or data_parallel'),
                            (["--outer-dp-sharding-strategy", ""], '--outer-dp-sharding-strategy "": expected no_shard or optim'),
                            (["--non-persistent-ckpt-type", ""], '--non-persistent-ckpt-type "": '),
                            (["--freeze-parameters", "*norm"], '--freeze-parameters: "*norm": not a regular expression')):
            ran = place.run("--train-iters", "1", *flags)
            place.expect(ran.exit == 2 and len(ran.errors) == 1 and text in ran.errors[0], f"{flags}: one line: {text}", ran)


if __name__ == "__main__":
    sys.exit(main())
