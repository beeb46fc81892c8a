// A verb of msckpt as its main program (tools/msckpt.cpp) sees it: a subcommand with its flags, and the function that
// runs.
//
// Each verb is a pair of files, tools/msckpt/<verb>.h and .cpp, with one function that adds it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "core/comm/communicator.h"

namespace ms::tools::msckpt {

// The process that runs a verb: alone, or one of several that a launcher (mpirun) started.
struct Process {
  core::Communicator* team = nullptr;  // null: this process alone. Not owned
  int local_size = 1;                  // processes on this machine

  // True for the process that prints the result: the first of the team.
  bool prints() const { return team == nullptr || team->rank() == 0; }
  // This process's share of --threads, which is per machine; at least 1.
  int threads(int per_machine) const { return per_machine / local_size > 1 ? per_machine / local_size : 1; }
};

struct Verb {
  CLI::App* command = nullptr;  // owned by the app it was added to
  // Prints the result to stdout and returns the exit code. Called once, after the command line was parsed.
  std::function<int(const Process&)> run;
  bool shared = false;  // all processes of a team run it; otherwise the first one does
};

}  // namespace ms::tools::msckpt
