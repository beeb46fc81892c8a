# The findings, and every section as JSON.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof analyze traces
msprof analyze traces --json | python3 -c 'import json, sys; print(*json.load(sys.stdin)["result"]["ranks"][0])'
msprof analyze traces --compat hta --rank 0
