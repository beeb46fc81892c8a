# What gc would remove, what it removes, and what it never removes.
set -euo pipefail
make="$MS_BUILD/tests/make_checkpoint"
for iteration in 100 200 300; do "$make" a 1 1 1 0 $iteration > made; done
mkdir a/iter_0000400.tmp-elsewhere-1-a_0 a/.trash-iter_0000050
echo half > a/iter_0000400.tmp-elsewhere-1-a_0/rank_00000.h5
msckpt gc a --dry-run --keep-last 2
ls -A a | sort
msckpt gc a
msckpt gc a --retain-interval 200 --json
ls -A a | sort
truncate -s 100 a/iter_0000300/manifest.json
msckpt gc a --keep-last 1
ls -A a | sort
msckpt gc nowhere || echo "exit $?"
