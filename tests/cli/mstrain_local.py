#!/usr/bin/env python3
"""Local checkpoints under mpirun, each rank with a folder of its own: killed jobs and lost nodes resume exactly."""
import os
import re
import shutil

import training

STEPS = 60
# Starts each rank in its own folder, which contains its local checkpoints.
ON_NODES = 'mkdir -p "node$OMPI_COMM_WORLD_RANK" && cd "node$OMPI_COMM_WORLD_RANK" && exec "$@"'
LOCAL = ["--non-persistent-ckpt-type", "local", "--non-persistent-local-ckpt-dir", "local"]
REPLICATION = ["--replication", "--replication-jump", "1"]
ZERO = ["--bf16", "--use-distributed-optimizer"]


def main():
    with training.workplace(in_memory=True) as place:
        place.make_data()

        def start(*flags, metrics):
            return place.start(*flags, "--load", place.path("root"), "--metrics-path", place.path(metrics), ranks=2, wrap=ON_NODES,
                               data=place.path("data_text_document"))

        def run(*flags, metrics):
            ran = start(*flags, metrics=metrics).end()
            place.expect(ran.exit == 0, f"{' '.join(flags)}: exit 0", ran)
            return ran

        def goes_on(ran, metrics, expected, source):
            """The run has loaded from `source`, and its losses equal those of the undisturbed run."""
            loaded = re.search(r"loaded iteration (\d+) from (.*), with", ran.stderr)
            if not place.expect(loaded is not None and re.search(source, loaded[2]), f"loads from {source}", ran):
                return 0
            losses = place.losses(metrics)
            place.expect(losses and losses == {i: loss for i, loss in expected.items() if i in losses} and
                         min(losses) == int(loaded[1]) + 1, f"{metrics}: the losses of an undisturbed run", ran)
            return int(loaded[1])

        # Killed at any moment after the first complete one; then a node is lost.
        run(*ZERO, "--train-iters", str(STEPS), metrics="whole")
        whole = place.losses("whole")
        for progress, lost in (("main", "0"), ("auto", "1")):
            flags = [*ZERO, *LOCAL, *REPLICATION, "--ckpt-gather-progress", progress, "--train-iters", str(STEPS)]
            job = start(*flags, "--non-persistent-save-interval", "10", metrics="killed")
            job.wait_for_line("local iteration 10 is whole on all ranks")
            job.kill()
            ran = job.end()
            place.expect("replicas of each part: 1 | rank 0 sent: " in ran.stderr, "replication is said", ran)
            shutil.rmtree(place.path(f"node{lost}"))
            resumed = run(*flags, metrics=f"resumed_{progress}")
            found = goes_on(resumed, f"resumed_{progress}", whole, r"local \(local: 1 of 2 parts from other ranks\)")
            place.expect(found >= 10 and found % 10 == 0, "a local checkpoint", resumed)
            for rank in range(2):
                shutil.rmtree(place.path(f"node{rank}"))

        # The newer of the two kinds is loaded; without replicas, a lost node costs the steps since the persistent one.
        flags = [*LOCAL, "--train-iters", "12"]
        run(*flags, "--non-persistent-save-interval", "5", "--save", place.path("root"), "--save-interval", "8", metrics="both")
        both = place.losses("both")
        shutil.rmtree(place.path("root", "iter_0000012"))
        checked = place.tool("msckpt", "verify", place.path("node1", "local", "rank_00001"))
        place.expect(checked.exit == 0, "msckpt verify reads a part", checked)
        ran = run(*flags, metrics="newer")
        place.expect(goes_on(ran, "newer", both, r"local \(local: 0 of 2 parts") == 10, "the local one is newer", ran)
        ran = run(*flags, "--tensor-model-parallel-size", "2", metrics="other")
        place.expect("loaded iteration 8 from " + place.path("root") in ran.stderr and
                     "local iteration 10 is passed over: it was saved with another layout of the ranks" in ran.stderr,
                     "another layout takes the persistent one", ran)
        shutil.rmtree(place.path("node1"))
        ran = run(*flags, metrics="older")
        place.expect(goes_on(ran, "older", both, "root$") == 8, "the persistent one", ran)
        place.expect("local iteration 10 is passed over: no rank has the part of rank 1" in ran.stderr, "and why", ran)

        # Impossible requests are refused before anything is done.
        for flags, text in ((["--non-persistent-ckpt-type", "global"], "--non-persistent-ckpt-type global: expected local"),
                            (LOCAL[:2], "--non-persistent-ckpt-type local and --non-persistent-local-ckpt-dir go together"),
                            (["--non-persistent-save-interval", "5"], "needs --non-persistent-ckpt-type local"),
                            (REPLICATION, "--replication needs --non-persistent-ckpt-type local"),
                            ([*LOCAL, "--replication"], "--replication needs --replication-jump"),
                            ([*LOCAL, *REPLICATION], "--replication-jump 1 x --replication-factor 2 must divide the 1 ranks"),
                            ([*LOCAL, "--no-save-optim"], "--no-save-optim: a local checkpoint")):
            ran = place.run("--train-iters", "1", *flags)
            place.expect(ran.exit == 2 and text in ran.stderr and not os.path.exists(place.path("local")),
                         f"{' '.join(flags)} is refused", ran)


if __name__ == "__main__":
    main()
