# A folder that already contains traces, and a program without MPI.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof record -o traces -- true || echo "exit $?"
msprof record -o other -- false || echo "exit $?"
