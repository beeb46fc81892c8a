#!/usr/bin/env python3
"""Ranks that srun starts, in a Slurm of this host alone: the losses are those of mpirun's ranks, an error is one line and its
exit code is srun's, and tasks without PMIx, which would each train alone, are refused. Skipped where Slurm is not installed or
does not start."""
import os
import shutil
import socket
import subprocess
import sys
import time

import training

RANKS = 4
FLAGS = ["--tensor-model-parallel-size", "2", "--use-distributed-optimizer", "--train-iters", "3", "--metrics-path"]
NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sinfo")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Slurm:
    """Its three daemons, in the foreground, with all their files in the folder of the test."""

    def __init__(self, place):
        self.place, self.daemons = place, []
        self.host = socket.gethostname()
        self.configuration = place.path("slurm.conf")
        for folder in ("state", "spool"):
            os.mkdir(place.path(folder))
        with open(place.path("key"), "wb") as file:
            os.chmod(file.fileno(), 0o600)
            file.write(os.urandom(1024))
        with open(self.configuration, "w") as file:
            file.write("\n".join([
                "ClusterName=msuite", f"SlurmctldHost={self.host}(127.0.0.1)", f"SlurmctldPort={free_port()}",
                f"SlurmdPort={free_port()}", "AuthType=auth/munge", f"AuthInfo=socket={place.path('munge')}",
                "CredType=cred/munge", "SlurmUser=root", "SlurmdUser=root", f"StateSaveLocation={place.path('state')}",
                f"SlurmdSpoolDir={place.path('spool')}", f"SlurmctldPidFile={place.path('slurmctld.pid')}",
                f"SlurmdPidFile={place.path('slurmd.pid')}", "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none",
                "SelectType=select/linear", "ReturnToService=2", "SchedulerType=sched/builtin",
                "SlurmdParameters=config_overrides", f"NodeName={self.host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN",
                f"PartitionName=all Nodes={self.host} Default=YES OverSubscribe=FORCE:4 State=UP", ""]))
        os.environ["SLURM_CONF"] = self.configuration

    def daemon(self, *command):
        log = open(self.place.path(f"{command[0]}.log"), "w")
        self.daemons.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))

    def is_up(self):
        state = subprocess.run(["sinfo", "--noheader", "--format=%T"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return state.stdout.strip() == "idle"

    def __enter__(self):
        path = self.place.path
        self.daemon("munged", "--foreground", "--force", f"--socket={path('munge')}", f"--key-file={path('key')}",
                    f"--pid-file={path('munge.pid')}", f"--log-file={path('munge.log')}", f"--seed-file={path('seed')}")
        training.wait_for(lambda: os.path.exists(path("munge")) or self.daemons[0].poll() is not None, "munged")
        self.daemon("slurmctld", "-D", "-f", self.configuration)
        self.daemon("slurmd", "-D", "-f", self.configuration)
        until = time.monotonic() + 30
        while not self.is_up():
            if time.monotonic() > until or any(daemon.poll() is not None for daemon in self.daemons):
                logs = [training.read(path(f"{name}.log")).strip().split("\n")[-1] for name in ("munged", "slurmctld", "slurmd")]
                self.__exit__()
                print(f"SKIPPED: Slurm does not start here: {logs}")
                sys.exit(77)
            time.sleep(0.2)
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()


def srun(mpi):
    return ["srun", "--quiet", f"--mpi={mpi}"]


def main():
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing or os.getuid() != 0:
        print(f"SKIPPED: needs {', '.join(missing) or 'root'} (apt: slurm-wlm munge)")
        sys.exit(77)
    with training.workplace() as place, Slurm(place):
        place.make_data()
        for name, launcher in (("srun", srun("pmix")), ("mpirun", training.MPIRUN)):
            ran = place.run(*FLAGS, f"{name}.jsonl", ranks=RANKS, launcher=launcher)
            place.expect(ran.exit == 0, f"{name}: a run", ran)
        losses = [place.losses(f"{name}.jsonl") for name in ("srun", "mpirun")]
        place.expect(len(losses[0]) == 3 and losses[0] == losses[1], f"losses under srun and mpirun: {losses}")
        bad = place.run("--train-iters", "1", "--tensor-model-parallel-size", "3", ranks=RANKS, launcher=srun("pmix"))
        place.expect(bad.exit == 2 and bad.stderr.count("error:") == 1, "an error of all ranks is one line, and exit 2", bad)
        alone = place.run("--train-iters", "1", ranks=2, launcher=srun("none"))
        place.expect(alone.exit == 2 and "srun --mpi=pmix" in alone.stderr, "tasks without PMIx are refused", alone)


if __name__ == "__main__":
    sys.exit(main())
