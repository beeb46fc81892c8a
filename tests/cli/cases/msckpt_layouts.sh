# Every layout flag, and contradictory ones; merging checkpoints of different layouts.
set -euo pipefail
"$MS_BUILD/tests/make_checkpoint" a 2 1 1 0 100
cut() { msckpt reshard --load-dir a --save-dir b --params-dtype fp32 "$@" > /dev/null && msckpt inspect b --json | python3 -c '
import json, sys
print({k: v for k, v in sorted(json.load(sys.stdin)["layout"].items()) if v not in (1, "even")})'; }
cut --target-pipeline-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1
cut --target-pipeline-parallel-size 2 --num-layer-list 1,1
cut --target-pipeline-parallel-size 2 --decoder-first-pipeline-num-layers 1
cut --target-data-parallel-size 3 --target-zero-stage 3
cut --target-tensor-parallel-size 2 --drop-optimizer
{ msckpt diff a b || echo "exit $?"; } | grep -v "dtype bf16 and fp32\|only in the first"
cut --target-pipeline-parallel-size 2 --num-layer-list 2,1 || echo "exit $?"
cut --target-pipeline-parallel-size 2 --num-layer-list 1,1 --num-layers-per-virtual-pipeline-stage 1 || echo "exit $?"
cut --target-expert-parallel-size 2 || echo "exit $?"
# The average of a checkpoint and a resharded copy of it is the checkpoint without its optimizer state.
msckpt reshard --load-dir a --save-dir c --target-pipeline-parallel-size 2
msckpt merge a c --weights 1,3 --save-dir d --target-tensor-parallel-size 2
{ msckpt diff a d || echo "exit $?"; } | grep -v "only in the first\|nan and"
msckpt merge a c --weights 1,2,3 --save-dir e || echo "exit $?"
msckpt merge a c --save-dir e --dry-run
