# The verbs, and the example of each.
set -euo pipefail
msprof --help
for verb in $(msprof --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do msprof "$verb" --help | tail -1; done
