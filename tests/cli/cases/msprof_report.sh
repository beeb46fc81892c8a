# One HTML file; its tables are those of the verbs.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof report traces -o report.html
grep -c "<h2>" report.html
grep -o "<h2>[^<]*</h2>" report.html
