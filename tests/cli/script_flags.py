#!/usr/bin/env python3
"""tools/dev/script_flags on planted scripts: what its readers make of bash and YAML, and what it says of each file when the
built mstrain is asked (MS_BIN)."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "tools/dev"))
import shell_reader  # noqa: E402
import yaml_arguments  # noqa: E402

MODEL = ("--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
         "--micro-batch-size 1 --global-batch-size 8 --train-iters 10 --lr 1e-3")
SCRIPTS = {
    # Every way to hold arguments at once; taken whole.
    "whole.sh": f'''#!/bin/bash
# $NOT_READ --comment-flag
export NODES=2
GPUS_PER_NODE=${{GPUS:-4}}
WORLD_SIZE=$(($NODES * GPUS_PER_NODE))
CKPT="your path"   # filled in before the script runs
TP=2
LIST=(
    --tensor-model-parallel-size $TP    # a comment
    # --no-such-flag in a comment
    "--split '99,1,0'"
)
if [[ "$TP" -gt 1 ]] && [ -n "$NODES" ]; then
    LIST+=(--sequence-parallel)
else
    LIST+=(--no-such-flag)
fi
TEXT="
    {MODEL} \\
    --bf16
"
case $TP in
    1) EXTRA=--wrong ;;
    2|4) EXTRA=--use-flash-attn ;;
esac
for size in 32; do TEXT="$TEXT --make-vocab-size-divisible-by $size"; done
launch() {{ torchrun --nproc_per_node $GPUS_PER_NODE --nnodes=$NODES pretrain_gpt.py "$@"; }}
launch ${{LIST[@]}} $TEXT $UNSET_ARGS $EXTRA --save $CKPT --load $1 --data-path $DATA 2>&1 | tee log.txt
''',
    "refused.sh": f'''torchrun pretrain_gpt.py {MODEL} --fp8-format hybrid --smart-swap --data-path data\n''',
    "unknown.sh": f'''python pretrain_gpt.py {MODEL} --num-wonders 3 --data-path data --optimizer muon\n''',
    # Known flags, and a rule between them that does not hold.
    "contradiction.sh": f'''python pretrain_gpt.py {MODEL} --fp16 --bf16 --data-path data\n''',
    "no_run.sh": "python preprocess_data.py --input x\npython pretrain_gpt.py --help\n",
    "unread.sh": 'python pretrain_gpt.py --lr "1\n',
    "case/model_config.yaml": '''ENV_VARS:
  A: 1
MODEL_ARGS: &BASE
  --num-layers: 4
  --hidden-size: 64
  --num-attention-heads: 4
  --seq-length: 32
  --max-position-embeddings: 32
  --micro-batch-size: 1
  --global-batch-size: 8
  --train-iters: 10 # a comment
  --lr: 1e-3
  --bf16: true
  --seed: ${REPEAT}
  --save: ${CHECKPOINT_SAVE_PATH}
  --recompute-granularity: selective
  --recompute-modules: "[mlp layernorm]"
  --wandb-exp-name: "a name"
MODEL_ARGS_2:
  <<: *BASE
  --lr: 2e-3
AFTER_SCRIPT: |-
  MODEL_ARGS_9:
    --not: read
TEST_TYPE: regular
METRICS:
  - "lm loss"
''',
}
KINDS = {"whole.sh": "whole", "refused.sh": "refused", "unknown.sh": "unknown", "contradiction.sh": "refused",
         "no_run.sh": "no run", "unread.sh": "unread", "case/model_config.yaml": "whole"}
BLAME = {"refused.sh": {"--fp8-format", "--smart-swap"}, "unknown.sh": {"--num-wonders", "--optimizer"},
         "contradiction.sh": {"--fp16"}}


def check(condition, *what):
    if not condition:
        raise SystemExit("FAILED " + " ".join(map(str, what)))


def check_readers(folder):
    launch, = shell_reader.read_launches(os.path.join(folder, "whole.sh"))
    check(launch.ranks() == 8, "ranks", launch.ranks())
    wanted = ("--tensor-model-parallel-size 2 --split '99,1,0' --sequence-parallel " + MODEL +
              " --bf16 --make-vocab-size-divisible-by 32 --use-flash-attn").split()
    check(launch.args == [*wanted, "--save", "your-path", "--load", "ARG1", "--data-path", "DATA"], launch.args)
    first, second = yaml_arguments.read_argument_lists(os.path.join(folder, "case/model_config.yaml"))
    check(first[0] == "MODEL_ARGS" and second[0] == "MODEL_ARGS_2", first[0], second[0])
    check(first[1][-5:] == ["--recompute-modules", "mlp", "layernorm", "--wandb-exp-name", "a name"], first[1])
    check(second[1][second[1].index("--lr") + 1] == "2e-3" and "--bf16" in second[1], second[1])


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name, text in SCRIPTS.items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        check_readers(folder)
        tool = [sys.executable, os.path.join(ROOT, "tools/dev/script_flags"), folder]
        ran = subprocess.run([*tool, "--json"], capture_output=True, text=True, check=False)
        check(ran.returncode == 0, ran.stderr)
        said = json.loads(ran.stdout)
        files = {os.path.relpath(one["file"], folder): one for one in said["files"]}
        for name, kind in KINDS.items():
            check(files[name]["kind"] == kind, name, files[name])
            blame = {one["flag"] for one in files[name]["blame"]}
            check(kind == "unread" or blame == BLAME.get(name, set()), name, blame)
        summary = said["summary"]
        check(summary["files"] == len(SCRIPTS) and summary["whole"] == 2 and summary["refused"] == 2, summary)
        check({one["flag"]: one["alone"] for one in summary["blame"]}["--fp16"] == 1, summary)
        text = subprocess.run([*tool, "--name", "*.sh"], capture_output=True, text=True, check=False).stdout
        check("6 files: 1 whole, 2 refused, 1 unknown, 1 no run, 1 unread" in text, text)
        check("--num-wonders: mstrain has no such flag" in text, text)
        print(text.strip().splitlines()[-6])


if __name__ == "__main__":
    main()
