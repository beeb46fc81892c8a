# One HTML file; its tables equal those of the verbs.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof report traces -o report.html
grep -o "<h[23][^>]*>[^<]*</h[23]>" report.html
