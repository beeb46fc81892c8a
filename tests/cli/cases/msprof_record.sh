# A folder that holds traces, and a program that calls no MPI.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof record -o traces -- true || echo "exit $?"
msprof record -o other -- false || echo "exit $?"
