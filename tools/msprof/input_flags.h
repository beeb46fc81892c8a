// Input flags shared by the verbs of msprof, and loading by them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "profile/store.h"

namespace ms::tools::msprof {

struct InputFlags {
  std::vector<std::string> inputs;
  std::string rank, time_range, last_step = "keep", class_rules, rank_from_name, step_annotation;
  int threads = 1;  // add() sets it to the number of cores
  bool strict = false, force = false;
  bool log_all_issues = false;  // also log harmless import issues; set by info

  void add(CLI::App& verb);

  // The inputs, with "-" replaced by the list on stdin. Empty if the list is empty: the upstream command failed and
  // printed why.
  std::vector<std::string> paths() const;
  // Loads the traces, logs import issues, and cuts by --time-range and --last-step.
  profile::Store load(const std::vector<std::string>& paths, bool keep_file_order = false) const;
  // 0, or with --strict the exit code for lost data.
  int exit_code(const profile::Store& store) const;
};

// "0-3,8" -> 0, 1, 2, 3, 8. Throws kInvalidArgument naming the flag.
std::vector<int64_t> parse_list(const std::string& text, const char* flag);

// Cuts the traces to the steps of --step, for verbs that show events rather than analyses of steps.
void keep_steps(const std::string& steps, profile::Store& store);

}  // namespace ms::tools::msprof
