# Queue lengths of streams.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof queue traces --queue-limit 1
