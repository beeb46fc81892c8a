#include "tools/msprof/output_flags.h"

namespace ms::tools::msprof {

void OutputFlags::add_json(CLI::App& verb) {
  verb.add_flag("--json", json, "Print one line of JSON, schema msprof/1");
  verb.add_flag("--pretty", pretty, "Indent the JSON");
}

void OutputFlags::add(CLI::App& verb) {
  add_json(verb);
  verb.add_option("--csv", csv, "Write one CSV file per section into this folder, and print the paths");
  verb.add_option("--step", step, "Only these steps: 10-12; default all");
}

void OutputFlags::add_top(CLI::App& verb) {
  verb.add_option("--top", top, "Maximum rows of each long list; default 10, 0: all")->check(CLI::NonNegativeNumber);
}

void OutputFlags::add_names(CLI::App& verb) {
  verb.add_flag("--full-names,!--short-names", full_names,
                "Print kernel names in tables with return type, namespaces and parameters, as JSON and CSV always do; "
                "default short");
}

void print_paths(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) print(path + "\n");
}

}  // namespace ms::tools::msprof
