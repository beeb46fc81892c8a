# A folder that already contains traces, a program without MPI, and folders that cannot be made.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof record -o traces -- true || echo "exit $?"
msprof record -o other -- false || echo "exit $?"
test ! -e other
touch plain
msprof record -o plain/sub -- true || echo "exit $?"
msprof flight "$CASE_DIR/../../data/flight/nccl_stuck" --csv plain/sub || echo "exit $?"
