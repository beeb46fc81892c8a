# One file per rank, one for all ranks, and a conflict.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof convert traces -o json/
msprof convert traces --merge -o all.perfetto-trace
msprof convert traces -o all.json || echo "exit $?"
msprof convert json/rank_00000.json.gz -o back.mstrace
msprof breakdown back.mstrace
