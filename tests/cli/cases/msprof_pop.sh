# POP efficiencies.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof pop traces
