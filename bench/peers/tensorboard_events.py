#!/usr/bin/env python3
"""The genuine TensorBoard reads the files of mstrain --tensorboard-dir: its EventAccumulator finds every tag, and each step's
loss equals the one in the metrics file. Needs tensorboard (exit 77 without); MS_BIN is the folder of our programs."""
import json
import pathlib
import sys
import tempfile

import peers

peers.need("tensorboard", "numpy", programs=("mstrain",))

from tensorboard.backend.event_processing import event_accumulator  # noqa: E402
import numpy  # noqa: E402

STEPS, BATCH = 6, 4
TAGS = {"lm loss", "grad-norm", "learning-rate", "loss-scale", "batch-size", "world-size"}
PLAIN = {"iteration-time", "throughput", "mem-allocated-bytes", "mem-max-allocated-bytes"}


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        peers.write_indexed_dataset(folder / "data", [list(range(1, 200)) for _ in range(20)])
        peers.run("mstrain", "--num-layers", 2, "--hidden-size", 32, "--num-attention-heads", 4, "--swiglu", "--normalization",
                  "RMSNorm", "--position-embedding-type", "rope", "--disable-bias-linear", "--vocab-size", 257, "--seq-length", 16,
                  "--global-batch-size", BATCH, "--train-iters", STEPS, "--lr", 1e-3, "--eval-iters", 0, "--peak-tflops", 1,
                  "--data-path", folder / "data", "--split", "100,0,0", "--metrics-path", folder / "metrics.jsonl",
                  "--tensorboard-dir", folder / "events", "--log-throughput", "--log-batch-size-to-tensorboard",
                  "--log-world-size-to-tensorboard", "--log-timers-to-tensorboard", "--log-memory-to-tensorboard")
        metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        events = event_accumulator.EventAccumulator(str(folder / "events"), size_guidance={event_accumulator.SCALARS: 0})
        events.Reload()
        expected = TAGS | {f"{tag} vs samples" for tag in TAGS} | PLAIN
        seen = set(events.Tags()["scalars"])
        assert seen == expected, f"tags {sorted(seen ^ expected)} are on one side only"
        for tag, key in (("lm loss", "lm loss"), ("grad-norm", "grad norm"), ("learning-rate", "learning rate")):
            scalars = events.Scalars(tag)
            assert [s.step for s in scalars] == list(range(1, STEPS + 1)), f"{tag}: steps {[s.step for s in scalars]}"
            for scalar, row in zip(scalars, metrics):
                assert numpy.float32(scalar.value) == numpy.float32(row[key]), f"{tag} at {scalar.step}"
        assert [s.step for s in events.Scalars("lm loss vs samples")] == [BATCH * i for i in range(1, STEPS + 1)]
        print(f"{len(seen)} tags of {STEPS} steps, read by tensorboard: equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
