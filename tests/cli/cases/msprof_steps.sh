# The step table in both styles, and as the vendor's CSV.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof steps traces
msprof steps traces --style tensorboard --rank 0
msprof steps traces --csv out && cat out/cluster_step_trace_time.csv
