#!/usr/bin/env python3
"""Random faults of one rank, over layouts: the right rank is named in one line, within 15 s of the time-out; no run hangs.

  faults_injection.py INJECT [number of injections]

INJECT is the program of tests/faults/inject.cpp. Faults: a rank is killed, stopped, stuck, enters another collective (of equal size,
or of all ranks), gives another shape, or becomes slow, at a random operation after the second step. A table is printed."""
import collections
import concurrent.futures
import os
import re
import sys
import time

import training

TIMEOUT_S = 4 * training.SLOWER
GRACE_S = 15 * training.SLOWER
REQUIRED = 0.95
SLOW_STEPS = 20  # within which a slow rank is named
FAULTS = ["kill", "stop", "hang", "collective", "group", "shape", "slow"]
EXPERTS = "--num-experts 4 --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall"
LAYOUTS = {
    "tp2": (2, "--tensor-model-parallel-size 2"),
    "tp2 sp": (2, "--tensor-model-parallel-size 2 --sequence-parallel"),
    "pp2": (2, "--pipeline-model-parallel-size 2"),
    "dp2": (2, ""),
    "dp2 zero": (2, "--use-distributed-optimizer"),
    "pp3": (3, "--pipeline-model-parallel-size 3"),
    "dp3 zero": (3, "--use-distributed-optimizer"),
    "dp2 zero2": (2, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads"),
    "dp3 zero3": (3, "--use-megatron-fsdp"),
    "pp2 dp2 zero3": (4, "--pipeline-model-parallel-size 2 --use-megatron-fsdp"),
    "tp2 pp2": (4, "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"),
    "tp2 dp2 zero": (4, "--tensor-model-parallel-size 2 --use-distributed-optimizer"),
    "pp2 dp2 zero": (4, "--pipeline-model-parallel-size 2 --use-distributed-optimizer"),
    "pp4": (4, "--pipeline-model-parallel-size 4"),
    "pp2 vpp2": (2, "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"),
    "pp2 dualpipev": (2, "--pipeline-model-parallel-size 2 --schedules-method dualpipev"),
    "dp4": (4, ""),
    "dp2 messages": (2, "--no-shared-memory"),
    "dp2 overlap": (2, "--overlap-grad-reduce --ddp-bucket-size 4096"),
    "dp2 zero overlap": (2, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 4096"),
    "dp4 instances": (4, "--use-distributed-optimizer --num-distributed-optimizer-instances 2"),
    "tp2 coc": (2, "--tensor-model-parallel-size 2 --use-ascend-coc --coc-parallel-num 2"),
    "tp2 mc2": (2, "--tensor-model-parallel-size 2 --sequence-parallel --use-ascend-mc2"),
    "tp2 overlap": (2, "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap"),
    "tp4 shared groups": (4, "--tensor-model-parallel-size 4 --num-attention-heads 4 --group-query-attention --num-query-groups 2"),
    "dp2 average": (2, "--ddp-average-in-collective --async-log-allreduce --overlap-grad-reduce"),
    "dp2 zero gathers": (2, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
                            "--overlap-param-gather-with-optimizer-step --ddp-bucket-size 4096"),
    "dp4 zero3 instances": (4, "--use-megatron-fsdp --num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim"),
    "cp2": (2, "--context-parallel-size 2"),
    "cp2 ring": (2, "--context-parallel-size 2 --cp-comm-type p2p"),
    "cp2 gather dp2": (4, "--context-parallel-size 2 --cp-comm-type all_gather --use-distributed-optimizer"),
    "dp2 thread": (2, "--comm-progress thread --no-shared-memory --overlap-grad-reduce"),
    "ep2 zero2": (4, f"{EXPERTS} --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads"),
    "ep2 zero3": (4, f"{EXPERTS} --use-megatron-fsdp"),
    "pp2 mtp": (2, "--pipeline-model-parallel-size 2 --mtp-num-layers 1"),
    "ep2": (2, EXPERTS),
    "ep2 tp2": (4, f"{EXPERTS} --tensor-model-parallel-size 2 --sequence-parallel --moe-alltoall-overlap-comm"),
    "ep2 allgather": (2, f"{EXPERTS} --moe-token-dispatcher-type allgather"),
    "tp2 latent": (2, "--tensor-model-parallel-size 2 --multi-latent-attention --kv-lora-rank 8 --qk-head-dim 8 "
                      "--qk-pos-emb-head-dim 4 --v-head-dim 8"),
}
MODEL = ("--num-layers 12 --hidden-size 16 --num-attention-heads 2 --ffn-hidden-size 32 --swiglu --normalization RMSNorm "
         "--position-embedding-type rope --disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --seq-length 16 "
         "--micro-batch-size 1 --global-batch-size 12 --lr 1e-3 --lr-decay-style constant --eval-iters 0 --peak-tflops 0.1 "
         "--threads-per-rank 1 --mock-data --vocab-size 64 --tokenizer-type NullTokenizer").split()


class Injection:
    def __init__(self, place, number):
        self.layout = place.random.choice(list(LAYOUTS))
        self.ranks, self.flags = LAYOUTS[self.layout]
        self.fault = FAULTS[number % len(FAULTS)]
        self.rank = place.random.randrange(self.ranks)
        self.at = place.random.randrange(1, 60)

    def command(self, inject):
        slow = self.fault == "slow"
        own = (["--train-iters", "30", "--log-interval", "5", "--log-straggler"] if slow else ["--train-iters", "1000", "--log-interval", "1000"])
        return [*training.MPIRUN, "-n", str(self.ranks), inject, self.fault, str(self.rank), str(self.at), *MODEL, *self.flags.split(), *own,
                "--distributed-timeout-minutes", str((60 if slow else TIMEOUT_S) / 60)]

    def judge(self, ran, after_s):
        """(whether the right rank is named, what was wrong)"""
        injected = [line for line in ran.stderr.splitlines() if " inject]" in line]
        if not injected:
            return False, f"the fault did not happen: {ran}"
        if ran.exit is None:
            return False, "hangs"
        if self.fault == "slow":
            if ran.exit != 0:
                return False, f"a slow rank ended the run: exit {ran.exit}"
            lines = re.findall(r"train\.straggler\] (.*)", ran.stderr)
            named = [line for line in lines[: SLOW_STEPS // 5 + 1] if line.startswith(f"straggler: rank {self.rank} ")]
            return bool(named), "" if named else f"not named: {lines}"
        lines = [line for line in ran.errors if " inject]" not in line]
        if ran.exit == 0 or len(lines) != 1:
            return False, f"exit {ran.exit}, {len(lines)} lines: {lines}"
        if after_s > TIMEOUT_S + GRACE_S:
            return False, f"took {after_s:.1f} s"
        right = re.search(rf"rank \[{self.rank}\] (silent|departs)", lines[0]) and re.search(r" in group | of group ", lines[0])
        return bool(right), "" if right else lines[0]


def run(place, inject, number, injection):
    environment = dict(os.environ, NOTES=place.path(f"notes{number}"), TMPDIR=place.folder)
    os.mkdir(environment["NOTES"])
    job = training.Job(place, injection.command(inject), injection.ranks, environment)
    injected_at = None
    # A slow rank waits at each of its operations, of which a step with overlaps has a thousand.
    limit = time.monotonic() + (300 if injection.fault == "slow" else 90) * training.SLOWER
    while job.process.poll() is None and time.monotonic() < limit:
        if injected_at is None and " inject]" in job.said():
            injected_at = time.monotonic()
        time.sleep(0.05)
    ended_at = time.monotonic()
    ran = job.end(0.1)
    after = ended_at - (injected_at or ended_at)
    return injection, ran, after, *injection.judge(ran, after)


def main():
    inject, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 14
    with training.workplace() as place:
        injections = [Injection(place, number) for number in range(count)]
        table = collections.defaultdict(lambda: [0, 0])
        hangs = 0
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("MS_INJECTIONS_AT_ONCE", "2"))) as pool:
            for injection, ran, after, right, why in pool.map(lambda n: run(place, inject, n, injections[n]), range(count)):
                table[injection.fault][0] += right
                table[injection.fault][1] += 1
                hangs += why == "hangs"
                if not right:
                    print(f"{injection.fault} of rank {injection.rank} at {injection.at}, {injection.layout}, {after:.1f} s: {why}", flush=True)
        print(f"{'fault':12} {'injections':>10} {'named':>6}")
        for fault, (right, all_of_it) in table.items():
            print(f"{fault:12} {all_of_it:10} {right:6}")
        right = sum(row[0] for row in table.values())
        print(f"{'all':12} {count:10} {right:6}  {100 * right / count:.1f} %")
        place.expect(hangs == 0, f"{hangs} runs hang")
        place.expect(right >= REQUIRED * count, f"the right rank is named in {right} of {count}, at least {REQUIRED:.0%} are required")


if __name__ == "__main__":
    sys.exit(main())
