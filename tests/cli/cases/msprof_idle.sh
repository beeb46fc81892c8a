# Causes of waiting per stream.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof idle traces
