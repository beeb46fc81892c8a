# Two runs: equal, and with one step less; one input is an error.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof diff traces traces
msprof slice traces --step 10-11 --merge -o less.json > written
msprof diff traces less.json
msprof diff traces || echo "exit $?"
