# Launch delays.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof launch traces
