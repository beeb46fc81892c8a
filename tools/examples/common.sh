# Sourced by the examples: finds the programs, makes an empty folder to work in.
#
# The programs are those of MS_BIN, else of this checkout's build/bin, else of PATH. An example works in
# examples_out/NAME of the current folder, which is made anew; MS_EXAMPLES_OUT names another place than examples_out.
# shellcheck shell=bash
set -euo pipefail
examples=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$examples/../.." && pwd)
if [ -n "${MS_BIN:-}" ]; then
  PATH=$(realpath "$MS_BIN"):$PATH
elif [ -x "$top/build/bin/msckpt" ]; then
  PATH=$top/build/bin:$PATH
fi
# More ranks than cores may share this machine, perhaps as root of a container.
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# begin NAME PROGRAM...: the folder, and the programs that the example runs.
begin() {
  local name=$1 program
  shift
  for program in "$@"; do
    command -v "$program" >/dev/null || { echo "SKIPPED: needs $program (README.md, Install)"; exit 77; }
  done
  out=${MS_EXAMPLES_OUT:-examples_out}/$name
  rm -rf "$out"
  mkdir -p "$out"
  cd "$out"
}

# run COMMAND...: prints the command and what it says, results and log together.
run() {
  printf '$ %s\n' "$*"
  "$@" 2>&1
}

# answer COMMAND...: the same of a command that may end with an exit code other than 0, which is printed.
answer() {
  local code=0
  run "$@" || code=$?
  echo "exit code $code"
}
