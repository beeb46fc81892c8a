"""msuite from Python: the checkpoint and trace tools as functions that return dicts.

    import msuite
    msuite.inspect("checkpoints/iter_0000100")["layout"]
    msuite.convert("Llama-3.2-1B", "megatron", to="mg", target_tensor_parallel_size=2, prove=True)
    msuite.verify("megatron", against="Llama-3.2-1B")["ok"]
    msuite.open_trace("traces/").breakdown()

Each function runs one of the commands that the package installs (msckpt, msprof) with --json and returns what it prints: the
fields are those of `msckpt VERB --json` and of the "result" of `msprof VERB --json`. The contents of checkpoints do not pass
through Python. Keyword arguments are the command's flags with _ for -: True sets a switch, a list gives several values.

A command that fails raises MsuiteError with its exit code and its error line. Exit code 10 (nothing failed, the answer is
no) does not raise: see "ok" of verify() and "equal" of diff().
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from typing import Any, Mapping, Sequence, Union

__all__ = ["MsuiteError", "Trace", "command", "convert", "diff", "inspect", "open_trace", "run", "verify"]
__version__ = "@VERSION@"

Path = Union[str, "os.PathLike[str]"]
_ANSWER_IS_NO = 10


class MsuiteError(RuntimeError):
    """A command failed. exit_code: 2 the arguments, 3 a damaged file, 4 the machine, 1 a bug of ours (README.md)."""

    def __init__(self, exit_code: int, message: str):
        super().__init__(message)
        self.exit_code = exit_code


def command(name: str) -> str:
    """The path of msckpt, msprof or msdata: from the folder MS_BIN if that is set, else from this environment, else from PATH."""
    for folder in (os.environ.get("MS_BIN"), sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")):
        if folder and os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is neither beside this Python nor in PATH; install the wheel of msuite")
    return found


def _flags(options: Mapping[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        flags.append("--" + name.replace("_", "-"))
        if value is True:
            continue
        if isinstance(value, (list, tuple)):
            flags += [str(item) for item in value]
        else:
            flags.append(str(value))
    return flags


def run(name: str, verb: str, *paths: Path, **options: Any) -> dict[str, Any]:
    """Runs `name verb paths --json options` and returns the JSON object that it prints."""
    line = [command(name), verb, *map(os.fspath, paths), "--json", *_flags(options)]
    ran = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if ran.returncode not in (0, _ANSWER_IS_NO):
        errors = [text.split("] ", 1)[-1] for text in ran.stderr.splitlines() if text.startswith("E ")]
        raise MsuiteError(ran.returncode, (errors or [f"{name} {verb} ended with exit code {ran.returncode}"])[-1])
    return json.loads(ran.stdout)


def inspect(path: Path, **options: Any) -> dict[str, Any]:
    """The contents of a checkpoint or a model folder in any known format: model, layout, tensors, training state."""
    return run("msckpt", "inspect", path, **options)


def convert(load_dir: Path, save_dir: Path, *, to: str | None = None, **options: Any) -> dict[str, Any]:
    """Converts a checkpoint. Returns the report: source, what was converted, dropped and taken from flags, and "path".

    to: hf, hf-bin, file, mg, dist, dcp, ucp, gguf or ms (the default). options: flags of msckpt convert, such as
    target_tensor_parallel_size=2, dtype="bf16", drop_optimizer=True, prove=True.
    """
    return run("msckpt", "convert", load_dir=os.fspath(load_dir), save_dir=os.fspath(save_dir), to=to, **options)


def verify(path: Path, *, against: Path | None = None, **options: Any) -> dict[str, Any]:
    """Checks hashes and structure, or with `against` that both contain the same tensors. The result is in "ok"."""
    return run("msckpt", "verify", path, against=None if against is None else os.fspath(against), **options)


def diff(left: Path, right: Path, **options: Any) -> dict[str, Any]:
    """Compares two checkpoints in any formats and layouts. The result is in "equal". resume=True: would a resumed run be equal?"""
    return run("msckpt", "diff", left, right, **options)


class Trace:
    """Traces of one job: files or folders, of any format that msprof reads. Each method reads them and runs one analysis."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = [os.fspath(path) for path in paths]

    def table(self, verb: str, **options: Any) -> dict[str, Any]:
        """The "result" of `msprof VERB --json`; the verbs are listed by `msprof --help`."""
        return run("msprof", verb, *self.paths, **options)["result"]

    def breakdown(self, **options: Any) -> dict[str, Any]:
        """Computing, exposed communication, exposed memory and idle time of each rank, in us."""
        return self.table("breakdown", **options)

    def breakdown_frame(self, **options: Any) -> "Any":
        """breakdown() as a pandas DataFrame with one row per rank. Raises ImportError without pandas."""
        import pandas

        return pandas.DataFrame([{"rank": row["rank"], **row["breakdown"]} for row in self.breakdown(**options)["ranks"]])

    def kernels(self, **options: Any) -> dict[str, Any]:
        """Time by kernel."""
        return self.table("kernels", **options)

    def steps(self, **options: Any) -> dict[str, Any]:
        """Computing, communication and idle time of each step."""
        return self.table("steps", **options)

    def ranks(self, **options: Any) -> dict[str, Any]:
        """Who arrived last at collectives, who waited, which rank is slow and why."""
        return self.table("ranks", **options)


def open_trace(*paths: Path) -> Trace:
    """Traces to analyse. They are read by each analysis, not here. Raises FileNotFoundError."""
    if not paths:
        raise ValueError("open_trace: at least one file or folder")
    for path in paths:
        if not os.path.exists(path):
            raise FileNotFoundError(f"no such file or folder: {os.fspath(path)}")
    return Trace(paths)
