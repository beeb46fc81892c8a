# Copies and allocations.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof memory traces
