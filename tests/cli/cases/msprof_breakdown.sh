# Where device time goes, of a rank and of each step.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof breakdown traces
msprof breakdown traces --per-step --rank 0
msprof breakdown traces --compat hta
