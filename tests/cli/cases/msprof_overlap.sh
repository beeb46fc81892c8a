# Which classes run at once.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof overlap traces
