# Events as CSV and as a table.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof events traces --where "cat=kernel,name~gemm" --columns rank,name,ts,dur
msprof events traces --where "rank=1,dur>150000" --columns name,dur --table
