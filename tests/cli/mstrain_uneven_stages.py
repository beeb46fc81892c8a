#!/usr/bin/env python3
"""Checkpoints of uneven stages: mstrain saves, msckpt writes them for even stages and back, and mstrain continues each."""
import shutil
import sys

import training

STEPS = 4
MODEL = ["--num-layers", "6", "--global-batch-size", "4", "--save-interval", "2", "--deterministic"]
PIPELINE = ["--pipeline-model-parallel-size", "2"]
# (flags of mstrain, flags of msckpt reshard for the same layout)
LAYOUTS = [
    (["--num-layer-list", "1,5"], ["--num-layer-list", "1,5"]),
    (["--decoder-last-pipeline-num-layers", "1"], ["--decoder-last-pipeline-num-layers", "1"]),
    (["--pipeline-model-parallel-layout", "E|t*6L"], ["--num-layer-list", "0,6"]),
    (["--standalone-embedding-stage"], ["--num-layer-list", "0,6"]),
    (["--num-layers", "8", "--noop-layers", "0,7"], ["--num-layer-list", "3,3"]),
    (["--num-layers", "8", "--noop-layers", "1,2"], ["--num-layer-list", "2,4"]),
    (["--schedules-method", "zb-v", "--num-layer-list", "2,0,1,3"], ["--schedules-method", "zb-v", "--num-layer-list", "2,0,1,3"]),
    (["--schedules-method", "dualpipev", "--num-layers", "8", "--noop-layers", "0,7"],
     ["--schedules-method", "dualpipev", "--num-layer-list", "1,2,2,1"]),
]
TARGET = ["--target-pipeline-parallel-size", "2"]


def expect_round_trip(place, name, target):
    """The saved checkpoint to even stages, and from there to the layout again: the same tensors each time."""
    for source, to, flags in ((name, "even", []), ("even", "back", target)):
        shutil.rmtree(place.path(to), ignore_errors=True)
        ran = place.tool("msckpt", "reshard", "--load-dir", source, "--save-dir", to, *TARGET, *flags)
        place.expect(ran.exit == 0, f"{name}: reshard from {source} to {to}", ran)
        ran = place.tool("msckpt", "verify", to, "--against", name)
        place.expect(ran.exit == 0, f"{name}: {to} has the tensors of the saved checkpoint", ran)


def main():
    with training.workplace() as place:
        place.make_data()
        one = place.run(*MODEL, "--train-iters", str(STEPS), "--metrics-path", "one.jsonl")
        place.expect(one.exit == 0, "one rank", one)
        expected = place.losses("one.jsonl")
        for text in "7,-1", "-1,7":
            ran = place.run(*MODEL, *PIPELINE, "--num-layer-list", text, "--train-iters", "1", ranks=2)
            place.expect(ran.exit == 2 and "--num-layer-list: -1 layers in a stage: at least 0" in ran.stderr, f"{text} layers", ran)
        ran = place.run(*MODEL, *PIPELINE, "--train-iters", "1", ranks=2,
                        wrap='if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec "$@" --lr 0.5; fi; exec "$@"')
        place.expect(ran.exit == 2 and "configuration differs from rank 0's: --lr 0.5 and " in ran.stderr, "ranks with different flags", ran)
        for number, (flags, target) in enumerate(LAYOUTS):
            name = f"layout{number}"
            model = [word for word in MODEL if "--num-layers" not in flags or word not in ("--num-layers", "6")]
            ran = place.run(*model, *PIPELINE, *flags, "--train-iters", "2", "--save", name, "--metrics-path", f"{name}.jsonl", ranks=2)
            if not place.expect(ran.exit == 0, f"{flags}: two steps", ran):
                continue
            expect_round_trip(place, name, target)
            shown = place.tool("msckpt", "inspect", name)
            place.expect(("layers [" in shown.stdout) == (target[-1] != "3,3") and ("in a V" in shown.stdout) == ("--schedules-method" in flags),
                         f"{flags}: msckpt inspect shows the layers", shown)
            # On even stages, then on the uneven ones again.
            for first, where, how in ((2, name, []), (3, f"{name}_even", flags)):
                sizes = model if how else MODEL
                ran = place.run(*sizes, *PIPELINE, *how, "--train-iters", str(first + 1), "--load", where, "--save", f"{name}_even",
                                "--metrics-path", f"{name}_{first}.jsonl", ranks=2)
                place.expect(ran.exit == 0, f"{flags}: iteration {first + 1} from {where}", ran)
            seen = place.losses(f"{name}.jsonl") | place.losses(f"{name}_2.jsonl") | place.losses(f"{name}_3.jsonl")
            place.expect(seen == expected, f"{flags}: losses {seen}, of one rank {expected}")


if __name__ == "__main__":
    sys.exit(main())
