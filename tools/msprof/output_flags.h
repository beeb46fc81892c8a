// Output flags shared by the verbs of msprof, and printing by them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "profile/report/csv_report.h"
#include "profile/report/json_report.h"
#include "profile/report/text_report.h"
#include "tools/guard.h"

namespace ms::tools::msprof {

struct OutputFlags {
  bool json = false, pretty = false, full_names = false;
  std::string csv, step;
  int64_t top = 10;

  void add_json(CLI::App& verb);
  void add(CLI::App& verb);  // --json, --pretty, --csv, --step
  void add_top(CLI::App& verb);
  void add_names(CLI::App& verb);

  profile::ReportOptions report(std::string command, const std::vector<std::string>& arguments) const {
    return {std::move(command), arguments, top, pretty};
  }
};

// Prints the paths that were written, one per line.
void print_paths(const std::vector<std::string>& paths);

// Prints a result as JSON, as CSV files, or as text tables. tables(top): the tables, with at most `top` rows each.
template <class Json, class Tables>
void print_tables(const OutputFlags& flags, Json&& json, Tables&& tables) {
  if (flags.json) {
    print(json());
  } else if (!flags.csv.empty()) {
    print_paths(profile::write_csv(tables(int64_t{0}), flags.csv));
  } else {
    print(profile::tables_text(tables(flags.top), flags.full_names));
  }
}

}  // namespace ms::tools::msprof
