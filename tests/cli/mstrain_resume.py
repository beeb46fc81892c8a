#!/usr/bin/env python3
"""What a run takes from a checkpoint that was made with other flags: another optimizer, other frozen parameters, other dropouts."""
import json
import sys

import training

STEPS = ["--train-iters", "2"]
MORE = ["--train-iters", "3"]
NORMS = ["--freeze-parameters", "norm"]


def model(**values):
    flags = list(training.MODEL)
    for name, value in values.items():
        flags[flags.index("--" + name.replace("_", "-")) + 1] = value
    return flags


def optimizers(place):
    for name, flags in ("adam", []), ("sgd", ["--optimizer", "sgd"]), ("plain", ["--optimizer", "sgd", "--sgd-momentum", "0"]):
        ran = place.run(*STEPS, "--save", name, *flags)
        place.expect(ran.exit == 0, f"{name} saves", ran)
    plain = ["--optimizer", "sgd", "--sgd-momentum", "0"]
    for load, flags, text in (("sgd", [], "the checkpoint's optimizer state is momentum_buffer, but --optimizer adam continues from exp_avg. "
                               "Use --no-load-optim"),
                              ("adam", ["--optimizer", "sgd"], "the checkpoint's optimizer state is exp_avg and exp_avg_sq, but --optimizer "
                               "sgd continues from momentum_buffer. Use --no-load-optim"),
                              ("plain", [], "the checkpoint has no optimizer state. Use --no-load-optim")):
        ran = place.run(*MORE, "--load", load, *flags)
        place.expect(ran.exit == 2 and len(ran.errors) == 1 and text in ran.errors[0], f"{load}, {flags}: refused", ran)
        ran = place.run(*MORE, "--load", load, *flags, "--no-load-optim")
        place.expect(ran.exit == 0 and "dropped" not in ran.stderr, f"{load}, {flags}: the cure helps", ran)
    for load, what in ("adam", "exp_avg and exp_avg_sq"), ("sgd", "momentum_buffer"):
        ran = place.run(*MORE, "--load", load, *plain)
        place.expect(ran.exit == 0 and ran.stderr.count(f"the checkpoint's {what} are dropped: --optimizer sgd with --sgd-momentum 0 keeps "
                                                        "no state") == 1, f"{load}: what is dropped is said, once", ran)
    ran = place.run(*MORE, "--load", "plain", *plain, ranks=2)
    place.expect(ran.exit == 0 and "dropped" not in ran.stderr, "nothing is dropped", ran)

    for name, flags in ("plain_too", plain), ("half", ["--optimizer", "sgd", "--sgd-momentum", "0.5"]):
        place.expect(place.run(*STEPS, "--save", name, *flags).exit == 0, f"{name} saves")
    ran = place.tool("msckpt", "diff", "--resume", "plain", "plain_too")
    place.expect(ran.exit == 0 and ran.stdout.endswith("\ncontinues exactly\n") and
                 "moments: in neither: SGD without momentum keeps none\n" in ran.stdout, "no momentum is no fresh optimizer", ran)
    for resume in ["--resume"], []:
        ran = place.tool("msckpt", "diff", *resume, "sgd", "half")
        place.expect(ran.exit == 10 and "momentum 0.9 and 0.5 (" in ran.stdout, "another momentum is seen", ran)


def frozen(place):
    ran = place.run(*STEPS, "--save", "frozen", *NORMS)
    place.expect(ran.exit == 0 and "frozen by --freeze-parameters: 5 of 14 tensors, 80 parameters" in ran.stderr, "the start says what is frozen",
                 ran)
    for flags, ranks in ([], 1), (["--pipeline-model-parallel-size", "2"], 2), (["--freeze-parameters", "final_layernorm"], 1):
        ran = place.run(*MORE, "--load", "frozen", *flags, ranks=ranks)
        place.expect(ran.exit == 2 and len(ran.errors) == 1 and
                     "the checkpoint has no optimizer state of decoder.layers.0." in ran.errors[0] and
                     "layer_norm_weight" in ran.errors[0] and "--freeze-parameters norm, and here they train" in ran.errors[0] and
                     "--no-load-optim" in ran.errors[0], f"{flags}: fewer frozen parameters are named, with both flags", ran)
    for flags in ["--no-load-optim"], NORMS, ["--freeze-parameters", "norm|embedding"]:
        ran = place.run(*MORE, "--load", "frozen", *flags)
        place.expect(ran.exit == 0, f"{flags}: the run goes on", ran)


def dropouts(place):
    ran = place.run(*STEPS, "--save", "drops", model=model(hidden_dropout="0.25"))
    place.expect(ran.exit == 0, "a run with dropout saves", ran)
    replaced = "--use-checkpoint-args: --hidden-dropout 0.25 of the checkpoint replaces 0, as in Megatron"
    for flags in training.MODEL, ["--micro-batch-size", "1"]:  # the first gives --hidden-dropout 0
        ran = place.tool("mstrain", *flags, "--load", "drops", "--use-checkpoint-args", "--print-config")
        used = json.loads(ran.stdout)["model"] if ran.exit == 0 else {}
        place.expect(used.get("hidden_dropout") == 0.25 and used.get("attention_dropout") == 0, f"{flags}: the checkpoint's dropouts", ran)
        place.expect((replaced in ran.stderr) == (flags is training.MODEL), "which is said where a flag gives others", ran)


def main():
    with training.workplace() as place:
        place.make_data()
        optimizers(place)
        frozen(place)
        dropouts(place)


if __name__ == "__main__":
    sys.exit(main())
