# The copies that a reshard would make: text and JSON, one per line, in the order in which they would be made.
set -euo pipefail
"$MS_BUILD/tests/make_checkpoint" a 2 1 1 0 100
msckpt plan --load-dir a --tp 1 --drop-optimizer | grep final_layernorm
msckpt plan --load-dir a --tp 1 --drop-optimizer | grep -c " -> rank 0 "
msckpt plan --load-dir a --tp 1 --drop-optimizer --json | sed -n 1p
msckpt plan --load-dir a --tp 3 || echo "exit $?"
