# Time by kernel, as a table, CSV and JSON.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof kernels traces --rank 0
msprof kernels traces --rank 0 --csv out && cat out/kernels.csv
msprof kernels traces --rank 0 --top 1 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["result"])'
