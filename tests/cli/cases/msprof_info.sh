# Contents of the traces.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof info traces
