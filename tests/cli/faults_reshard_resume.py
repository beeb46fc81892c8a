#!/usr/bin/env python3
"""msckpt reshard --resume: files that were finished before a kill are not written again, the result equals that of an
undisturbed run, and other plans do not reuse them. Several processes under mpirun write the same files, killed or not, and
report the same findings of verify."""
import json
import os
import re
import shutil
import subprocess
import sys
import time

import training

MANY = ["--target-tensor-parallel-size", "2", "--target-pipeline-parallel-size", "2", "--target-data-parallel-size", "10",
        "--target-zero-stage", "1", "--threads", "1"]
FILES = 40  # one per rank; without --resume 16 are written at the same time


def contents(folder):
    return {name: training.read_bytes(os.path.join(folder, name)) for name in os.listdir(folder)}


def unfinished(place, root):
    return sorted(n for n in os.listdir(place.path(root)) if ".tmp-" in n)


def reshard(place, source, target, *flags, ranks=0, kill_when=None):
    return run(place, ["reshard", "--load-dir", source, "--save-dir", target, *flags], ranks, kill_when)


def run(place, arguments, ranks=0, kill_when=None):
    """kill_when(): polled until it is true; then all processes are killed."""
    command = [os.path.join(place.bin, "msckpt"), *arguments]
    if ranks:
        command = [*training.MPIRUN, "-n", str(ranks), *command]
    environment = dict(os.environ, NOTES=place.folder)
    job = training.Job(place, command, 0, environment)
    place.jobs.append(job)
    if kill_when is not None:
        until = time.monotonic() + training.LIMIT_S
        while job.process.poll() is None and not kill_when() and time.monotonic() < until:
            time.sleep(0.0005)
        job.kill()
    return job.end()


def main():
    with training.workplace(needs_mpirun=False, in_memory=True) as place:
        make = os.path.join(place.bin, "..", "tests", "make_checkpoint")
        for root, width in (("from", "256"), ("other", "224")):
            subprocess.run([make, root, "2", "1", "2", "1", "100", width], cwd=place.folder, check=True, stdout=subprocess.PIPE)
        plain = reshard(place, "from", "plain", *MANY)
        place.expect(plain.exit == 0, "a plain reshard", plain)
        expected = contents(place.path("plain/iter_0000100"))
        place.expect(len([n for n in expected if n.startswith("rank_")]) == FILES, f"{FILES} files: {sorted(expected)}")

        def notes(root):
            folders = [n for n in (os.listdir(place.path(root)) if os.path.isdir(place.path(root)) else []) if n.endswith("-notes")]
            return len([n for n in os.listdir(place.path(root, folders[0])) if n.endswith(".done")]) if folders else 0

        def killed_after(root, count, *flags, ranks=0):
            ran = reshard(place, "from", root, *MANY, *flags, ranks=ranks, kill_when=lambda: notes(root) >= count)
            place.expect(ran.exit not in (0, 2, 3, 4), f"killed after {count} files", ran)
            return notes(root)

        # Killed twice, once without --resume; then it finishes.
        finished = killed_after("to", 10)
        finished = max(finished, killed_after("to", finished + 3, "--resume"))
        resumed = reshard(place, "from", "to", *MANY, "--resume")
        said = re.search(rf"(\d+) of {FILES} files were finished before", resumed.stderr)
        place.expect(resumed.exit == 0 and said and int(said[1]) >= finished >= 10, f"{finished} were there", resumed)
        place.expect(contents(place.path("to/iter_0000100")) == expected, "byte for byte as if it had not been killed")
        place.expect(not unfinished(place, "to"), f"nothing is left: {os.listdir(place.path('to'))}")

        # The note of an incomplete or missing file is ignored; so are files without a note.
        finished = killed_after("torn", 4)
        folder = place.path("torn", next(n for n in unfinished(place, "torn") if not n.endswith("-notes")))
        done = sorted(os.listdir(folder + "-notes"))
        done = [name[:10] + ".h5" for name in done if name.endswith(".done")]
        os.truncate(os.path.join(folder, done[0]), 100)
        os.unlink(os.path.join(folder, done[1]))
        with open(os.path.join(folder, "rubbish"), "w", encoding="utf-8") as file:
            file.write("rubbish")
        note = os.path.join(folder + "-notes", done[2][:10] + ".done")
        data = bytearray(training.read_bytes(note))
        data[len(data) // 2] ^= 1
        with open(note, "wb") as file:
            file.write(data)
        resumed = reshard(place, "from", "torn", *MANY, "--resume")
        place.expect(resumed.exit == 0 and f"{len(done) - 3} of {FILES} files were finished before" in resumed.stderr,
                     f"{len(done)} were there, 3 of them damaged", resumed)
        place.expect(contents(place.path("torn/iter_0000100")) == expected, "damaged ones are written again")

        # Rows split within 64 elements: their pieces are in separate files, needed and checked like the notes.
        subprocess.run([make, "wide", "1", "1", "1", "0", "100", "4096"], cwd=place.folder, check=True, stdout=subprocess.PIPE)
        cut = ["--target-tensor-parallel-size", "2", "--target-pipeline-parallel-size", "2", "--threads", "1"]
        wanted = reshard(place, "wide", "plain_wide", *cut)
        place.expect(wanted.exit == 0 and not [n for n in contents(place.path("plain_wide/iter_0000100")) if n.endswith(".cells")],
                     "pieces are removed before the commit", wanted)
        for damaged in (False, True):
            root = f"cut{damaged}"
            reshard(place, "wide", root, *cut, "--resume", kill_when=lambda root=root: notes(root) >= 1)
            folder = place.path(root, next(n for n in unfinished(place, root) if not n.endswith("-notes")))
            done = [n[:10] for n in os.listdir(folder + "-notes") if n.endswith(".done")]
            for cells in (os.path.join(folder, name + ".cells") for name in done if damaged):
                data = bytearray(training.read_bytes(cells))
                data[-1] ^= 1
                with open(cells, "wb") as file:
                    file.write(data)
            resumed = reshard(place, "wide", root, *cut, "--resume")
            said = f"{len(done)} of 4 files were finished before" in resumed.stderr
            place.expect(resumed.exit == 0 and said == (not damaged), f"cut cells, damaged: {damaged}", resumed)
            same = contents(place.path(root, "iter_0000100")) == contents(place.path("plain_wide/iter_0000100"))
            place.expect(same, f"cut cells, damaged: {damaged}: the same files")

        # Another plan, another source, and a command without --resume start from the beginning.
        for flags, source in ((["--drop-optimizer", "--resume"], "from"), (["--resume"], "other"), ([], "from")):
            shutil.rmtree(place.path("anew"), ignore_errors=True)
            killed_after("anew", 3)
            ran = reshard(place, source, "anew", *MANY, *flags)
            place.expect(ran.exit == 0 and "finished before" not in ran.stderr, f"{flags} of {source} starts again", ran)
            if not flags:
                place.expect(contents(place.path("anew/iter_0000100")) == expected, "the same files again")

        # Stopped by a signal: unfinished files are kept only with --resume.
        for flags in ([], ["--resume"]):
            shutil.rmtree(place.path("stopped"), ignore_errors=True)
            process = subprocess.Popen([os.path.join(place.bin, "msckpt"), "reshard", "--load-dir", "from", "--save-dir", "stopped",
                                        *MANY, *flags], cwd=place.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while process.poll() is None and notes("stopped") < 3:
                time.sleep(0.0005)
            process.send_signal(2)
            out, err = process.communicate(timeout=training.LIMIT_S)
            place.expect(process.returncode == 130 and not out, f"interrupted: exit {process.returncode}\n{err}")
            place.expect(len(unfinished(place, "stopped")) == (2 if flags else 0), f"{flags}: {os.listdir(place.path('stopped'))}")

        if shutil.which("mpirun"):
            together = reshard(place, "from", "together", *MANY, ranks=3)
            place.expect(together.exit == 0 and together.stdout.strip() == "together/iter_0000100", "three processes", together)
            place.expect(contents(place.path("together/iter_0000100")) == expected, "three processes make the same files")
            killed_after("team", 3, ranks=3)
            resumed = reshard(place, "from", "team", *MANY, "--resume", ranks=2)
            place.expect(resumed.exit == 0 and "finished before" in resumed.stderr, "two processes continue after three were killed", resumed)
            place.expect(contents(place.path("team/iter_0000100")) == expected, "the same files again")
            refused = reshard(place, "nowhere", "team", *MANY, ranks=3)
            place.expect(refused.exit == 2 and len(refused.errors) == 1, "one line, exit 2", refused)
            data = bytearray(training.read_bytes(place.path("team/iter_0000100/rank_00007.h5")))
            for at in (len(data) // 3, len(data) // 2):
                data[at] ^= 4
            with open(place.path("team/iter_0000100/rank_00007.h5"), "wb") as file:
                file.write(data)
            verify = ["verify", "team", "together", "--json"]
            alone = place.tool("msckpt", *verify)
            place.expect(alone.exit == 3 and '"ok":false' in alone.stdout, "two flipped bits are found", alone)
            for ranks in (2, 5):
                shared = run(place, verify, ranks)
                place.expect((shared.exit, shared.stdout) == (3, alone.stdout) and len(shared.errors) == len(alone.errors),
                             f"{ranks} processes find what one finds", shared)
            script = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then "$0" verify together && "$0" inspect together; fi; true'
            below = subprocess.run([*training.MPIRUN, "-n", "2", "sh", "-c", script, os.path.join(place.bin, "msckpt")], cwd=place.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=training.LIMIT_S, check=False)
            place.expect(below.returncode == 0 and re.match(r"together/iter_0000100\ntogether\n +iteration +100\n", below.stdout),
                         f"a rank's script calls it without the others: {below}")
            shown = reshard(place, "from", "team", *MANY, "--dry-run", "--json", ranks=2)
            place.expect(shown.exit == 0 and json.loads(shown.stdout)["dry_run"], "one of them prints", shown)


if __name__ == "__main__":
    sys.exit(main())
