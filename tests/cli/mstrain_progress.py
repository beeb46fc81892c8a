#!/usr/bin/env python3
"""--comm-progress and --high-priority-stream-groups: what the log says, and losses that are equal to the last bit."""
import sys

import training

STEPS = "6"
LAYOUTS = {
    "dp2": ["--overlap-grad-reduce", "--use-distributed-optimizer", "--overlap-param-gather", "--ddp-num-buckets", "3"],
    "tp2 sp": ["--tensor-model-parallel-size", "2", "--sequence-parallel", "--tp-comm-overlap"],
    "pp2": ["--pipeline-model-parallel-size", "2"],
}
HOW = {
    "thread": ["--comm-progress", "thread"],
    "auto": [],
    "priority": ["--comm-progress", "polling", "--high-priority-stream-groups", "tp", "pp", "ep"],
    "thread and priority": ["--comm-progress", "thread", "--high-priority-stream-groups", "dp_cp"],
}


def main():
    with training.workplace() as place:
        place.make_data()
        for layout, flags in LAYOUTS.items():
            expected = None
            for number, (name, how) in enumerate({"polling": ["--comm-progress", "polling"], **HOW}.items()):
                metrics = f"{layout} {number}.jsonl".replace(" ", "_")
                ran = place.run("--train-iters", STEPS, "--metrics-path", metrics, *flags, *how, ranks=2)
                losses = place.losses(metrics)
                place.expect(ran.exit == 0 and len(losses) == int(STEPS), f"{layout}, {name}: a run", ran)
                expected = expected or losses
                place.expect(losses == expected, f"{layout}, {name}: losses {losses}, by polling {expected}", ran)
                says = "a thread of each rank" in ran.stderr
                place.expect(says == ("thread" in name) or name == "auto", f"{layout}, {name}: what the log says", ran)
                if name == "auto":
                    place.expect(says or "communication advances between panels of products: no core is free" in ran.stderr,
                                 f"{layout}: auto says why", ran)
        alone = place.run("--train-iters", "1", "--comm-progress", "thread")
        place.expect(alone.exit == 0 and "a thread of each rank" not in alone.stderr, "one rank alone has nothing to advance", alone)
        for flags, words in ((["--comm-progress", "always"], "--comm-progress always"),
                             (["--high-priority-stream-groups", "tpp"], "--high-priority-stream-groups tpp")):
            bad = place.run("--train-iters", "1", *flags)
            place.expect(bad.exit == 2 and words in bad.stderr, f"{flags} is an error", bad)


if __name__ == "__main__":
    sys.exit(main())
