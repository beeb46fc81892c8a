# TP 2, DP 2 with ZeRO-1 -> TP 4 PP 2 -> back: same values and byte-identical rank files.
set -euo pipefail
make="$MS_BUILD/tests/make_checkpoint"
"$make" a 2 1 2 1 100 24 4
msckpt verify a | msckpt reshard --load-dir - --save-dir b --target-tensor-parallel-size 4 --target_pipeline_parallel_size 2
msckpt diff a b
msckpt reshard --load-dir b/iter_0000100 --save-dir c --target-tensor-parallel-size 2 --target-data-parallel-size 2 \
  --target-use-distributed-optimizer --threads 2 --mem 64
msckpt diff a c
for file in a/iter_0000100/rank_*.h5; do cmp "$file" "c/iter_0000100/${file##*/}"; done
msckpt reshard --load-dir a --dry-run --target-tensor-parallel-size 4 --drop-optimizer
ls a | grep -c tmp || true
msckpt reshard --load-dir a --save-dir new/d --dry-run | tail -1
msckpt reshard --load-dir a --save-dir new/d --dry-run --compress --json | tr ',' '\n' | grep -E 'expected_seconds|_per_s'
ls -A | grep -c -E 'new|probe' || true
