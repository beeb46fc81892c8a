# The page of losses; with --json every section is there.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof analyze traces
msprof analyze traces --json | python3 -c 'import json, sys; print(*json.load(sys.stdin)["result"]["ranks"][0])'
msprof analyze traces --compat hta --rank 0
