# Bandwidth of collectives.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof links traces
