"""Shared by the tests of mstrain as a program: a data set, a small model, runs on ranks, their output and exit status.

  with training.workplace() as place:
      ran = place.run("--train-iters", "2", ranks=2)
      place.expect(ran.exit == 0, "...", ran)

MS_BIN is the folder of the binaries. Nothing here waits longer than LIMIT_S.
"""
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SLOWER = float(os.environ.get("MS_SLOWER", "1"))  # a sanitized build
LIMIT_S = 60 * SLOWER
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--quiet"]
MODEL = ("--num-layers 2 --hidden-size 16 --num-attention-heads 2 --ffn-hidden-size 32 --swiglu --normalization RMSNorm "
         "--position-embedding-type rope --disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --seq-length 16 "
         "--micro-batch-size 1 --global-batch-size 2 "
         "--lr 1e-3 --lr-decay-style constant --eval-iters 0 --peak-tflops 0.1 --log-interval 1 --threads-per-rank 1 "
         "--distributed-timeout-minutes 0.5").split()
# Wrappers of a rank. pid.R is mstrain's own process; NOTE_CODE survives mpirun's SIGTERM to record the exit code.
NOTE_PID = 'echo $$ > "$NOTES/pid.${OMPI_COMM_WORLD_RANK:-0}"; exec "$@"'
NOTE_CODE = f'''trap "" TERM INT; sh -c '{NOTE_PID}' sh "$@"; code=$?
echo $code > "$NOTES/code.${{OMPI_COMM_WORLD_RANK:-0}}"; exit $code'''
RECOVER = ["--enable-recovery"]  # mpirun does not end a rank because another has failed; its own exit status is then meaningless


class Ran:
    """A program that has ended: its exit status (mpirun's under MPI), its output, and the exit code of each rank."""

    def __init__(self, command, status, stdout, stderr, codes, seconds):
        self.command, self.exit, self.stdout, self.stderr, self.codes, self.seconds = command, status, stdout, stderr, codes, seconds

    @property
    def errors(self):
        return [line for line in self.stderr.splitlines() if line.startswith("E ")]

    def __str__(self):
        return f"$ {' '.join(self.command)}\nexit {self.exit}, ranks {self.codes}, {self.seconds:.1f} s\n{self.stdout}{self.stderr}"


class Job:
    """A running program, in a process group of its own."""

    def __init__(self, place, command, ranks, environment):
        self.command, self.ranks, self.notes = command, ranks, environment["NOTES"]
        self.began = time.monotonic()
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self.out = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(command, cwd=place.folder, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=self.out, stderr=self.log, start_new_session=True)

    def pid(self, rank, limit_s=LIMIT_S):
        return int(wait_for(lambda: read(os.path.join(self.notes, f"pid.{rank}")).strip(), f"rank {rank} to start", limit_s))

    def code(self, rank):
        text = read(os.path.join(self.notes, f"code.{rank}"))
        return int(text) if text.endswith("\n") else None

    def said(self):
        # pread: the program writes through the same file offset
        return os.pread(self.log.fileno(), 1 << 24, 0).decode(errors="replace")

    def wait_for_line(self, text, limit_s=LIMIT_S):
        wait_for(lambda: text in self.said() or self.process.poll() is not None, f'"{text}" in the log', limit_s)

    def end(self, limit_s=LIMIT_S):
        """Waits for the end. At the limit the program is killed, and the status is None."""
        try:
            status = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        if status is not None and status < 0:
            status = 128 - status
        self.kill()
        self.out.seek(0)
        return Ran(self.command, status, self.out.read(), self.said(), [self.code(rank) for rank in range(self.ranks)],
                   time.monotonic() - self.began)

    def kill(self, spare=None):
        """SIGKILL to everything that is left of the program, including ranks (mpirun gives them groups of their own), except
        processes that have `spare` among their arguments."""
        victims = descendants(self.process.pid) if self.process.poll() is None else []
        victims = [pid for pid in victims if spare is None or spare not in read(f"/proc/{pid}/cmdline").split("\0")]
        for pid in [self.process.pid] + victims:
            with contextlib.suppress(ProcessLookupError):
                if pid != self.process.pid or self.process.poll() is None:
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Place:
    def __init__(self, folder, name):
        self.folder, self.name, self.failures, self.cases, self.runs, self.jobs = folder, name, 0, 0, 0, []
        self.bin = os.environ["MS_BIN"]
        self.seed = int(os.environ.get("MS_TEST_SEED", random.SystemRandom().randrange(1 << 31)))
        self.random = random.Random(self.seed)
        print(f"{name}: MS_TEST_SEED={self.seed}", flush=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def make_data(self, tokens=20000):
        words = random.Random(1).choices("the quick brown fox jumps over a lazy dog and runs".split(), k=tokens // 5)
        with open(self.path("text.txt"), "w", encoding="utf-8") as file:
            file.write(" ".join(words))
        made = self.tool("msdata", "preprocess", "text.txt", "--output-prefix", "data")
        assert made.exit == 0, made
        return made.stdout.strip()

    def start(self, *flags, ranks=1, wrap=None, mpirun=(), data="data_text_document", model=MODEL, launcher=MPIRUN):
        """One rank runs without mpirun, unless `mpirun` contains flags for it. wrap: NOTE_CODE or NOTE_PID."""
        self.runs += 1
        environment = dict(os.environ, NOTES=self.path(f"notes{self.runs}"))
        os.mkdir(environment["NOTES"])
        command = [os.path.join(self.bin, "mstrain"), *model, *(["--data-path", data] if data else []), *flags]
        if wrap:
            command = ["sh", "-c", wrap, "sh", *command]
        if ranks > 1 or mpirun:
            command = [*launcher, *mpirun, "-n", str(ranks), *command]
        self.jobs.append(Job(self, command, ranks, environment))
        return self.jobs[-1]

    def run(self, *flags, limit_s=LIMIT_S, **how):
        return self.start(*flags, **how).end(limit_s)

    def tool(self, program, *arguments, cwd=None):
        began = time.monotonic()
        command = [os.path.join(self.bin, program), *arguments]
        ran = subprocess.run(command, cwd=cwd or self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, errors="replace", timeout=LIMIT_S, check=False)
        return Ran(command, ran.returncode, ran.stdout, ran.stderr, [], time.monotonic() - began)

    def copy(self, source, target):
        shutil.copytree(self.path(source), self.path(target))
        return target

    def losses(self, metrics):
        """iteration -> "lm loss", as the text JSON carries (shortest that gives the same bits)."""
        losses = {}
        for line in read(self.path(metrics)).split("\n")[:-1]:  # whole lines only: the program may still be writing
            row = json.loads(line)
            if "lm loss" in row:
                losses[row["iteration"]] = repr(row["lm loss"])
        return losses

    def expect(self, condition, what, ran=None):
        self.cases += 1
        if condition:
            return True
        self.failures += 1
        print(f"FAILED: {what}\n{ran if ran is not None else ''}", flush=True)
        return False


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def wait_for(condition, what, limit_s=LIMIT_S):
    end = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"waited {limit_s} s for {what}")
        time.sleep(0.01)


def descendants(pid):
    """Descendants of a running process, from /proc, deepest last."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = read(f"/proc/{name}/stat").rpartition(")")[2].split()
            if len(fields) > 1:
                children.setdefault(int(fields[1]), []).append(int(name))
    found, queue = [], [pid]
    while queue:
        queue.extend(children.get(queue[0], []))
        found.extend(children.get(queue.pop(0), []))
    return found


@contextlib.contextmanager
def workplace(needs_mpirun=True, in_memory=False):
    """in_memory: in a memory file system if there is one, for tests that sync a lot but are not about disks."""
    name = os.path.basename(sys.argv[0])
    if needs_mpirun and shutil.which("mpirun") is None:
        print("SKIPPED: needs mpirun")
        sys.exit(77)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if in_memory and os.path.isdir("/dev/shm") else None) as folder:
        place = Place(folder, name)
        try:
            yield place
        finally:
            for job in place.jobs:  # after a script that has failed
                job.kill()
    print(f"{place.name}: {place.cases} checks, {place.failures} failed")
    sys.exit(1 if place.failures else 0)
