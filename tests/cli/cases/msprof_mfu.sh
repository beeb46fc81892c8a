# FLOP/s and utilisation.
set -euo pipefail
"$MS_BUILD/tests/make_trace" traces > made
msprof mfu traces --peak-tflops 0.001 --model-flops 2000000
