# Operators, and stacks for flame graphs.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof ops traces --rank 0 --collapsed stacks
cat stacks
