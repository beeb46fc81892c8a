#include "tools/msprof/output_flags.h"

namespace ms::tools::msprof {

void OutputFlags::add_json(CLI::App& verb) {
  verb.add_flag("--json", json, "Print JSON, schema msprof/1");
  verb.add_flag("--pretty", pretty, "JSON over several lines");
}

void OutputFlags::add(CLI::App& verb) {
  add_json(verb);
  verb.add_option("--csv", csv, "Write a CSV file for each section into this folder, and print the paths");
  verb.add_option("--step", step, "Only these steps: 10-12");
}

void OutputFlags::add_top(CLI::App& verb) {
  verb.add_option("--top", top, "Rows of each long list; 0: all")->check(CLI::NonNegativeNumber);
}

void OutputFlags::add_names(CLI::App& verb) {
  verb.add_flag(
      "--full-names,!--short-names", full_names,
      "Names of kernels in tables with return type, namespaces and parameters; JSON and CSV always have them");
}

void print_paths(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) print(path + "\n");
}

}  // namespace ms::tools::msprof
