# Device time, per rank and per step.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof breakdown traces
msprof breakdown traces --per-step --rank 0
msprof breakdown traces --compat hta
