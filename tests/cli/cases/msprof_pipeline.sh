# Traces without a pipeline.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof pipeline traces
