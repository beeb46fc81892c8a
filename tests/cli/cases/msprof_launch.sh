# Delays of launches.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof launch traces
