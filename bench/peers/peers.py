"""Helpers of the scripts of bench/: where our programs are, other projects' software to run next to them, if it is installed,
and what a program takes."""
import importlib.util
import os
import shutil
import subprocess
import sys
import time


def installed(module):
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # the package that it would be part of
        return False
    return spec is not None and spec.origin is not None  # not a folder of that name, as those of tests/


def need(*modules, programs=()):
    """Returns if the modules can be imported; otherwise restarts with the interpreter in MS_PEERS_PYTHON, or exits with 77.
    programs: programs of ours that the script will run; a missing one ends the script here, not minutes later."""
    missing = [module for module in modules if not installed(module)]
    if not missing:
        for name in programs:
            binary(name)
        return
    other = os.environ.get("MS_PEERS_PYTHON")
    if other and not os.environ.get("MS_PEERS_INSIDE"):
        os.environ["MS_PEERS_INSIDE"] = "1"
        os.execv(other, [other, *sys.argv])
    print(f"SKIPPED: needs {', '.join(missing)}; set MS_PEERS_PYTHON to an interpreter that has them")
    sys.exit(77)


def build_folder():
    """MS_BUILD, else build of this checkout."""
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.path.abspath(os.environ.get("MS_BUILD") or os.path.join(checkout, "build"))


def binary(name):
    """Path of one of our programs: in MS_BIN, else in bin of build_folder(), else on the PATH. Ends the script if it is in none
    of them."""
    folder = os.environ.get("MS_BIN")
    found = None
    for place in ([folder] if folder else [os.path.join(build_folder(), "bin"), None]):
        found = found or shutil.which(name, path=place)
    if found is None:
        looked = f"MS_BIN={folder}" if folder else f"{build_folder()}/bin and on the PATH"
        sys.exit(f"{name} is not in {looked}: build it (cmake --build build --target {name}), or set MS_BIN to its folder")
    return os.path.abspath(found)


def benchmark(name):
    """Path of one of our benchmark programs ("bench.ckpt.ceiling"): in MS_BENCH, else in bench of build_folder(), which without
    MS_BUILD is the one that MS_BIN is in. Ends the script if it is not there."""
    beside = os.environ.get("MS_BIN") if "MS_BUILD" not in os.environ else None
    build = os.path.dirname(os.path.abspath(beside)) if beside else build_folder()
    folder = os.environ.get("MS_BENCH") or os.path.join(build, "bench")
    found = shutil.which(name, path=folder)
    if found is None:
        sys.exit(f"{name} is not in {folder}: configure with -DMS_BUILD_BENCH=ON and build it (cmake --build build "
                 f"--target {name}), or set MS_BENCH to its folder")
    return os.path.abspath(found)


def run(name, *arguments):
    """Returns what one of our programs prints; ends the script if it fails."""
    command = [binary(name), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {result.returncode}\n{result.stderr}")
    return result.stdout.strip()


def write_indexed_dataset(prefix, documents):
    """Writes PREFIX.bin and PREFIX.idx, a Megatron data set, from lists of token ids below 65536."""
    import numpy
    lengths = numpy.array([len(document) for document in documents], dtype=numpy.int32)
    pointers = numpy.concatenate([[0], numpy.cumsum(lengths[:-1], dtype=numpy.int64) * 2]).astype(numpy.int64)
    numpy.concatenate(documents).astype(numpy.uint16).tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes([8]))
        file.write(len(lengths).to_bytes(8, "little") + (len(lengths) + 1).to_bytes(8, "little"))
        file.write(lengths.tobytes() + pointers.tobytes() + numpy.arange(len(lengths) + 1, dtype=numpy.int64).tobytes())


class Finished:
    """A finished command: exit code, stdout, wall seconds and peak resident memory in MiB."""

    def __init__(self, exit_code, out, seconds, peak_mib):
        self.exit_code, self.out, self.seconds, self.peak_mib = exit_code, out, seconds, peak_mib


def measured(command):
    """Runs a command. A child inherits its parent's peak memory, so only a small process may call this."""
    begin = time.perf_counter()
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    return Finished(child.returncode, out, seconds, usage.ru_maxrss / 1024)


def in_child(body, *arguments):
    """Runs body in a separate process, so that this one stays small."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            body(*arguments)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(f"{body.__name__} failed")
