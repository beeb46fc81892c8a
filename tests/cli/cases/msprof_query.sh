# SQL over events; invalid SQL is refused.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof query traces "SELECT name, count(*) AS n, sum(dur) FROM events WHERE class = 'COMPUTATION' GROUP BY 1"
msprof query traces "SELECT nothing FROM nowhere" || echo "exit $?"
