# Overlap of device work by class.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof overlap traces
