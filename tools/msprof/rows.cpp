#include "tools/msprof/rows.h"

#include "core/error.h"
#include "profile/query/sql.h"

namespace ms::tools::msprof {

void RowFlags::add(CLI::App& verb) {
  input.add(verb);
  verb.add_option("--step", output.step, "Only these steps: 10-12; default all");
  output.add_json(verb);
  verb.add_flag("--table", table, "Print an aligned table instead of CSV");
}

int RowFlags::answer(const char* verb, const std::vector<std::string>& paths, const std::string& sql,
                     const std::vector<std::string>& arguments) const {
  if (paths.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, core::cat(verb, ": give traces, then the SQL query"));
  }
  profile::Store store = input.load(paths);
  keep_steps(output.step, store);
  const profile::DataTable rows = profile::query(store, sql);
  if (output.json) {
    print(profile::json_report(store, rows, output.report(verb, arguments)));
  } else {
    print(table ? rows.text() : rows.csv());
  }
  return input.exit_code(store);
}

}  // namespace ms::tools::msprof
