# The path of one rank, and across ranks.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof critical-path traces
msprof critical-path traces --rank 0 --instance 1
msprof critical-path traces --rank 0 --step 10 || echo "exit $?"
