#!/usr/bin/env python3
"""Checkpoints of every format with a file replaced by a link out of the folder, a link to a device or to itself, a FIFO or
a folder. msckpt reports it in one line, exits with 2, 3 or 4, does not hang and does not follow the link. Links within a
folder, a folder that is a link itself, and the Hugging Face hub's cache are read."""
import os
import shutil
import subprocess
import sys

import training

HF = os.path.join(os.environ["MS_SOURCE"], "tests/data/hf_llama_tiny")
SECRET = "the secret"


def made(place, target, *flags):
    ran = place.tool("msckpt", "convert", "--load-dir", HF, "--save-dir", target, *flags)
    place.expect(ran.exit == 0, f"{target} is made", ran)
    return place.path(ran.stdout.strip())


def files_of(folder):
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            yield os.path.join(parent, name)


def ends_well(place, what, ran):
    errors = [line for line in ran.stderr.splitlines() if line.startswith("E ")]
    place.expect(ran.exit in (2, 3, 4), f"{what}: exit code 2, 3 or 4", ran)
    place.expect(len(errors) == 1 and len(errors[0]) < 1000 and "internal error" not in errors[0], f"{what}: one line", ran)
    place.expect(SECRET not in ran.stderr + ran.stdout, f"{what}: nothing of the other file is shown", ran)


def put_fifo(path):
    os.remove(path)
    os.mkfifo(path)


def put_link(target):
    def put(path):
        os.remove(path)
        os.symlink(target, path)
    return put


def put_loop(path):
    os.remove(path)
    os.symlink(path, path)


def put_folder(path):
    os.remove(path)
    os.mkdir(path)


def move_out(place):
    def put(path):
        os.makedirs(place.path("elsewhere"), exist_ok=True)
        there = place.path("elsewhere", "moved")
        shutil.move(path, there)
        os.symlink(there, path)
    return put


def hostile_files(place):
    """Replaces every data file of every format by each hostile kind."""
    formats = {"hf": HF, "ms": made(place, "ms"), "mg": made(place, "mg", "--save-model-type", "mg"),
               "dist": made(place, "dist", "--save-model-type", "dist"), "dcp": made(place, "dcp", "--save-model-type", "dcp"),
               "ucp": made(place, "ucp", "--save-model-type", "ucp")}
    kinds = {"fifo": put_fifo, "device": put_link("/dev/zero"), "loop": put_loop, "folder": put_folder,
             "link out": move_out(place)}
    optional = ("generation_config.json", "reference.json", "manifest.json", "latest", "latest_universal",
                "metadata.json")  # ignored if missing, or their absence makes it another format
    for name, source in formats.items():
        for kind, put in kinds.items():
            done = set()
            for path in files_of(source):
                inner = os.path.relpath(path, source)
                if os.path.basename(inner) in optional or os.path.splitext(inner)[1] in done:
                    continue
                done.add(os.path.splitext(inner)[1])  # one file per suffix
                shutil.rmtree(place.path("hostile"), ignore_errors=True)
                shutil.rmtree(place.path("elsewhere"), ignore_errors=True)
                shutil.copytree(source, place.path("hostile"))
                put(place.path("hostile", inner))
                ran = place.tool("msckpt", "verify", "hostile", "--against", HF)
                ends_well(place, f"{name}: {kind} as {inner}", ran)


def links_that_are_read(place):
    os.makedirs(place.path("hub/snapshots/abc"))
    os.makedirs(place.path("hub/blobs"))
    for name in ("config.json", "model.safetensors"):
        shutil.copy(os.path.join(HF, name), place.path("hub/blobs", name + ".0123"))
        os.symlink(f"../../blobs/{name}.0123", place.path("hub/snapshots/abc", name))
    os.symlink(HF, place.path("top"))
    shutil.copytree(HF, place.path("inner"))
    os.rename(place.path("inner/model.safetensors"), place.path("inner/weights"))
    os.symlink("weights", place.path("inner/model.safetensors"))
    for folder in ("hub/snapshots/abc", "top", "inner"):
        ran = place.tool("msckpt", "verify", folder, "--against", HF)
        place.expect(ran.exit == 0, f"{folder} is read", ran)


def nothing_is_carried_out(place):
    """A tokenizer that is a link out of --hf-cfg-dir is not copied into the result."""
    shutil.copytree(HF, place.path("cfg"))
    with open(place.path("secret"), "w", encoding="utf-8") as file:
        file.write(SECRET)
    os.symlink(place.path("secret"), place.path("cfg/tokenizer.json"))
    ran = place.tool("msckpt", "convert", "--load-dir", "ms", "--save-dir", "out", "--hf-cfg-dir", "cfg", "--save-model-type", "hf")
    ends_well(place, "tokenizer.json leads out of --hf-cfg-dir", ran)
    place.expect(not os.path.exists(place.path("out/tokenizer.json")), "the secret is not copied", ran)
    shutil.rmtree(place.path("out"), ignore_errors=True)
    # The same for every format into which small files are copied, and for each of these files.
    for name, target, source in (("tokenizer.json", "hf-bin", HF), ("notes.txt", "hf-bin", HF), ("config.json", "hf-bin", HF),
                                 ("tokenizer.json", "gguf", "ms"), ("config.json", "dcp", "ms"), ("config.json", "ucp", "ms"),
                                 ("config.json", "hf", "ms")):
        shutil.rmtree(place.path("cfg"))
        shutil.copytree(HF, place.path("cfg"))
        if os.path.exists(place.path("cfg", name)):
            os.remove(place.path("cfg", name))
        os.symlink(place.path("secret"), place.path("cfg", name))
        ran = place.tool("msckpt", "convert", "--load-dir", source, "--save-dir", "out", "--hf-cfg-dir", "cfg", "--save-model-type", target)
        what = f"{name} leads out of --hf-cfg-dir of a {target} result"
        ends_well(place, what, ran)
        place.expect(not os.path.exists(place.path("out")), f"{what}: nothing is made", ran)


def targets_that_cannot_be_made(place):
    """A result below a file, and one in a folder without write permission: one clear line, exit 4."""
    msckpt, nobody = os.path.join(place.bin, "msckpt"), ["--reuid", "65534", "--regid", "65534", "--clear-groups"]
    with open(place.path("plain"), "w", encoding="utf-8") as file:
        file.write(SECRET)
    os.mkdir(place.path("closed"), 0o555)
    os.chmod(place.path(), 0o755)
    can_be_nobody = os.geteuid() == 0 and shutil.which("setpriv") and \
        subprocess.run(["setpriv", *nobody, "test", "-r", HF, "-a", "-x", msckpt], check=False).returncode == 0
    if os.geteuid() == 0 and not can_be_nobody:
        print("SKIPPED: a folder without permission: root passes, and nobody cannot reach the tests' data")
    for target, source in (("hf", "ms"), ("hf-bin", HF), ("mg", "ms"), ("dist", "ms"), ("dcp", "ms"), ("ucp", "ms"), ("gguf", "ms"), ("ms", HF)):
        words = ["convert", "--load-dir", source, "--save-model-type", target, "--save-dir"]
        runs = {"below a file": place.tool("msckpt", *words, "plain/out")}
        if os.geteuid() != 0:
            runs["without permission"] = place.tool("msckpt", *words, "closed/out")
        elif can_be_nobody:
            runs["without permission"] = place.tool(shutil.which("setpriv"), *nobody, msckpt, *words, "closed/out")
        for what, ran in runs.items():
            ends_well(place, f"{target} {what}", ran)
            place.expect(ran.exit == 4, f"{target} {what}: exit 4", ran)
            place.expect("cannot create directory" in ran.stderr, f"{target} {what}: the line says what cannot be done", ran)


def names_that_are_not_utf8(place):
    name, ours = os.fsdecode(b"model\xff"), os.fsdecode(b"ours\xff")
    shutil.copytree(HF, place.path(name))
    shutil.copytree(place.path("ms"), place.path(ours))
    for words in (["inspect", name], ["verify", ours], ["verify", name, "--against", HF]):
        for flags in ([], ["--json"]):
            ran = place.tool("msckpt", *words, *flags)
            place.expect(ran.exit == 0, f"{words[0]} {flags} of a name that is not UTF-8", ran)


def lock_is_no_way_out(place):
    """If the lock file of a root is a link, its target is not overwritten."""
    with open(place.path("precious"), "w", encoding="utf-8") as file:
        file.write(SECRET)
    shutil.copytree(place.path("ms"), place.path("root"))
    lock = next((n for n in os.listdir(place.path("root")) if "lock" in n), ".lock")
    if os.path.exists(place.path("root", lock)):
        os.remove(place.path("root", lock))
    os.symlink(place.path("precious"), place.path("root", lock))
    ran = place.tool("msckpt", "reshard", "--load-dir", "ms", "--save-dir", "root")
    ends_well(place, "the lock is a link", ran)
    with open(place.path("precious"), encoding="utf-8") as file:
        place.expect(file.read() == SECRET, "the target of the lock link is unchanged", ran)


def main():
    with training.workplace(needs_mpirun=False) as place:
        hostile_files(place)
        links_that_are_read(place)
        nothing_is_carried_out(place)
        targets_that_cannot_be_made(place)
        names_that_are_not_utf8(place)
        lock_is_no_way_out(place)


if __name__ == "__main__":
    sys.exit(main())
