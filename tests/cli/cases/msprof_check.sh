# Thresholds: kept, exceeded, and missing.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof check traces --max-exposed-comm 20% --min-parallel-efficiency 0.2
msprof check traces --max-idle 1% || echo "exit $?"
msprof check traces || echo "exit $?"
msprof check traces --max-idle much || echo "exit $?"
