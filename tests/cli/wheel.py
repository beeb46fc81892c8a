#!/usr/bin/env python3
"""The wheel and the tarball: built, installed into an empty environment, and run in a root folder that contains nothing else.

SKIPPED without Debian's source packages or PyPI. Takes a quarter of an hour: label nightly.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = pathlib.Path(os.environ["MS_SOURCE"]), pathlib.Path(os.environ["MS_BUILD"])
MAX_BYTES, SKIPPED = 30 << 20, 77
MODEL = SOURCE / "tests/data/hf_llama_tiny"
TINY_RUN = ("--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --micro-batch-size 2 --global-batch-size 4 "
            "--lr 1e-3 --train-iters 4 --eval-iters 0 --split 100,0,0 --bf16 --profile --profile-step-start 1 "
            "--profile-step-end 3").split()


def run(*command, **how):
    return subprocess.run([str(part) for part in command], check=True, text=True, stdout=subprocess.PIPE, **how).stdout


def check(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")


def in_an_empty_root(folder, tarball):
    """Runs the executables as root in a chroot that contains only them and the data."""
    root = folder / "root"
    root.mkdir()
    run("tar", "-xzf", tarball, "-C", root, "--strip-components=1")
    shutil.copytree(MODEL, root / "model")
    for line in (["/bin/msckpt", "convert", "--load-dir", "/model", "--save-dir", "/mg", "--to", "mg", "--tp", "2", "--prove"],
                 ["/bin/msckpt", "verify", "/mg", "--against", "/model"],
                 ["/bin/msckpt", "convert", "--load-dir", "/mg", "--save-dir", "/ours", "--compress"],
                 ["/bin/msckpt", "verify", "/ours"],
                 ["/bin/msdata", "preprocess", "/licences/LICENSE", "--output-prefix", "/text"],
                 ["/bin/mstrain", *TINY_RUN, "--data-path", "/text_text_document", "--save", "/run",
                  "--profile-save-path", "/traces"],
                 ["/bin/msckpt", "verify", "/run"],
                 ["/bin/msprof", "analyze", "/traces"]):
        run("chroot", root, *line)


def in_a_fresh_environment(folder, wheel):
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv/bin/python"
    run(python, "-m", "pip", "install", "-q", "--no-index", wheel)
    environment = {name: value for name, value in os.environ.items() if name not in ("MS_BIN", "PYTHONPATH")}
    environment["PATH"] = "/nonexistent"
    trace = {"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": ts, "dur": 10, "args": {"stream": 7}} for ts in (0, 30)]}
    (folder / "trace.json").write_text(json.dumps(trace), encoding="utf-8")
    code = (f"import msuite; r = msuite.convert({str(MODEL)!r}, {str(folder / 'out')!r}, to='mg', prove=True); "
            f"print(r['proof']['faults'], msuite.verify(r['path'], against={str(MODEL)!r})['ok'], msuite.__version__, "
            f"msuite.open_trace({str(folder / 'trace.json')!r}).breakdown()['ranks'][0]['breakdown']['idle_us'])")
    said = run(python, "-c", code, env=environment).split()
    version = run(folder / "venv/bin/msckpt", "--version").split()[1]
    check(said == ["[]", "True", version, "20.0"], f"the module converts, verifies and analyses: {said}")


def audited(folder, wheel):
    """auditwheel reads every ELF file of the wheel; of a static program there is nothing that a platform could lack."""
    run(sys.executable, "-m", "venv", folder / "audit")
    got = subprocess.run([folder / "audit/bin/python", "-m", "pip", "install", "-q", "auditwheel==6.8.2"], check=False)
    if got.returncode != 0:
        print("auditwheel cannot be installed: the tag is not checked")
        return
    said = run(folder / "audit/bin/auditwheel", "show", wheel, stderr=subprocess.STDOUT)
    check("manylinux_2_17_x86_64" in said, f"auditwheel agrees with the tag: {said}")


def main():
    out = pathlib.Path(tempfile.mkdtemp())
    try:
        made = subprocess.run([SOURCE / "tools/dev/wheel", "--out", out, "--build", BUILD / "wheel"], text=True, check=False,
                              stdout=subprocess.PIPE)
        if made.returncode == 4:
            print("SKIPPED: needs Debian's source packages, and PyPI")
            return SKIPPED
        check(made.returncode == 0, f"tools/dev/wheel: exit {made.returncode}")
        tarball, wheel = map(pathlib.Path, made.stdout.split())
        check(wheel.stat().st_size < MAX_BYTES, f"{wheel.name} has {wheel.stat().st_size} bytes")
        in_a_fresh_environment(out, wheel)
        audited(out, wheel)
        if os.geteuid() == 0:
            in_an_empty_root(out, tarball)
        print(f"{wheel.name}: {wheel.stat().st_size} bytes; {tarball.name}: {tarball.stat().st_size} bytes")
        return 0
    finally:
        shutil.rmtree(out)


if __name__ == "__main__":
    sys.exit(main())
