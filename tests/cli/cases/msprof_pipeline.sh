# No pipeline is in these traces.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof pipeline traces
