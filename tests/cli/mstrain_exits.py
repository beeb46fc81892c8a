#!/usr/bin/env python3
"""How a run ends early: by signals between steps, in an evaluation and during generation, with and without a save, and during
a long wait."""
import os
import re
import shutil
import signal
import sys
import time

import training

UNSUPPORTED = 2
ENDLESS = ["--train-iters", "1000000", "--log-interval", "1"]


def saved(place, name):
    folder = place.path(name)
    return sorted(entry for entry in (os.listdir(folder) if os.path.isdir(folder) else []) if entry.startswith("iter_"))


def signalled(place, number, *flags, **how):
    job = place.start(*ENDLESS, *flags, **how)
    job.wait_for_line("iteration 3/")
    os.kill(job.process.pid, number)
    return job.end()


def folders_that_cannot_be_made(place):
    """One line with the flag and no prefix twice, and exit code 4."""
    with open(place.path("a_file"), "w", encoding="utf-8") as file:
        file.write("no folder")
    for flag, more in (("--save", []), ("--tensorboard-dir", []), ("--metrics-path", []), ("--profile-save-path", ["--profile",
                       "--profile-step-start", "0", "--profile-step-end", "1"]), ("--save-tensors-dir", ["--save-tensors", "1"]),
                       ("--non-persistent-local-ckpt-dir", ["--non-persistent-ckpt-type", "local", "--non-persistent-save-interval", "1"]),
                       ("--flight-recorder-dump-path", [])):
        for ranks in 1, 2:
            ran = place.run("--train-iters", "1", *more, flag, "a_file/below", ranks=ranks)
            parts = ran.errors[0].split("] ", 1)[1].split(": ") if len(ran.errors) == 1 else []
            place.expect(ran.exit == 4 and parts and flag in ran.errors[0] and "a_file/below" in ran.errors[0] and len(set(parts)) == len(parts),
                         f"{flag} below a file, {ranks} ranks", ran)


def library_of_another_build(place):
    """A library for MPI whose interface has another name is not called: one line, exit code 2."""
    library = "lib/msuite/libmsuite_mpi.so"
    for folder in ("bin", "lib/msuite"):
        os.makedirs(place.path("mixed/" + folder))
    shutil.copy(os.path.join(place.bin, "mstrain"), place.path("mixed/bin"))
    with open(os.path.join(place.bin, "..", library), "rb") as file:
        code, names = re.subn(rb"interface-[0-9a-f]{12}", b"interface-anotherbuild", file.read())
    with open(place.path("mixed/" + library), "wb") as file:
        file.write(code)
    own, place.bin = place.bin, place.path("mixed/bin")
    ran = place.run("--train-iters", "1", ranks=2)
    place.bin = own
    place.expect(names == 1 and ran.exit == UNSUPPORTED and all("is of another version of msuite" in line for line in ran.errors),
                 "a library of another build", ran)


def main():
    with training.workplace() as place:
        place.make_data()
        folders_that_cannot_be_made(place)
        library_of_another_build(place)
        ran = signalled(place, signal.SIGTERM, "--save", "plain")
        place.expect(ran.exit == 128 + signal.SIGTERM and not saved(place, "plain"), "SIGTERM ends a run without a save", ran)
        ran = signalled(place, signal.SIGTERM, "--save", "handled", "--exit-signal-handler")
        place.expect(ran.exit == 128 + signal.SIGTERM and len(saved(place, "handled")) == 1, "--exit-signal-handler saves", ran)
        ran = signalled(place, signal.SIGUSR1, "--save", "usr1", "--exit-signal-handler", "--exit-signal", "SIGUSR1")
        place.expect(ran.exit == 128 + signal.SIGUSR1 and len(saved(place, "usr1")) == 1, "--exit-signal SIGUSR1 saves", ran)
        place.expect(place.tool("msckpt", "verify", "usr1").exit == 0, "and what it saved is whole", ran)
        ran = signalled(place, signal.SIGTERM, "--save", "other", "--exit-signal-handler", "--exit-signal", "SIGUSR1")
        place.expect(ran.exit == 128 + signal.SIGTERM and not saved(place, "other"), "another signal does not save", ran)
        ran = place.run("--train-iters", "9", "--save", "interval", "--exit-interval", "4", ranks=2)
        place.expect(ran.exit == 0 and saved(place, "interval") == ["iter_0000004"], "--exit-interval saves, exit 0", ran)

        # Before the first step: an index of millions of samples is not built further, here and on the rank that waits for it.
        job = place.start("--train-iters", "12000000", "--data-cache-path", "cache", "--save", "early", ranks=2,
                          wrap=training.NOTE_CODE, mpirun=training.RECOVER)
        job.wait_for_line("train.model] parameters")
        os.kill(job.pid(1), signal.SIGTERM)
        os.kill(job.pid(0), signal.SIGTERM)
        training.wait_for(lambda: job.code(0) is not None and job.code(1) is not None, "both ranks to end")
        ran = job.end()
        place.expect(ran.codes == [128 + signal.SIGTERM] * 2 and not ran.errors and "iteration 1/" not in ran.stderr
                     and not os.path.exists(place.path("cache")) and not saved(place, "early"),
                     "SIGTERM while the index is built ends the run before it has begun", ran)

        # Outside of steps: in an evaluation before or between them, and during generation.
        prefix = "data_text_document"
        evaluates = ("--eval-iters", "200000", "--train-data-path", prefix, "--valid-data-path", prefix)
        for what, ranks, flags in (("an evaluation", 1, ("--skip-train", *evaluates)),
                                   ("an evaluation on two ranks", 2, ("--skip-train", *evaluates)),
                                   ("a text", 1, ("--generate", "the", "--num-tokens-to-generate", "10000000", "--temperature", "0"))):
            job = place.start(*flags, data="", ranks=ranks, wrap=training.NOTE_CODE, mpirun=training.RECOVER)
            job.wait_for_line("train.model] parameters")
            time.sleep(1)
            os.kill(job.pid(ranks - 1), signal.SIGTERM)
            training.wait_for(lambda: None not in [job.code(rank) for rank in range(job.ranks)], f"{what} to end")
            ran = job.end()
            place.expect(ran.codes == [128 + signal.SIGTERM] * ranks and not ran.errors, f"SIGTERM ends {what}", ran)
        job = place.start("--train-iters", "9", "--eval-interval", "3", *evaluates, "--save", "eval", "--exit-signal-handler",
                          data="")
        job.wait_for_line("iteration 3/")
        time.sleep(0.5)
        os.kill(job.process.pid, signal.SIGTERM)
        ran = job.end()
        place.expect(ran.exit == 128 + signal.SIGTERM and saved(place, "eval") == ["iter_0000003"],
                     "a save does not wait for an evaluation", ran)

        # A slow rank is not a dead one: the others' wait is not ended by the signal, and all end at the end of the step.
        job = place.start(*ENDLESS, "--pipeline-model-parallel-size", "2", "--save", "slow", "--exit-signal-handler", ranks=2,
                          wrap=training.NOTE_CODE, mpirun=training.RECOVER)
        job.wait_for_line("iteration 3/")
        os.kill(job.pid(1), signal.SIGSTOP)
        os.kill(job.pid(0), signal.SIGTERM)
        time.sleep(2.5)
        place.expect(job.code(0) is None, "the wait outlasts the signal")
        os.kill(job.pid(1), signal.SIGCONT)
        training.wait_for(lambda: job.code(0) is not None and job.code(1) is not None, "both ranks to end")
        ran = job.end()
        place.expect(ran.codes == [128 + signal.SIGTERM] * 2 and len(saved(place, "slow")) == 1 and not ran.errors,
                     "a slow rank does not look like a dead one", ran)


if __name__ == "__main__":
    sys.exit(main())
