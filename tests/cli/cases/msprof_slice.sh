# One step of one rank as a trace.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof slice traces --step 11 --rank 1 -o step.json
msprof info step.json
