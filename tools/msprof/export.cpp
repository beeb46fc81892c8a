#include "tools/msprof/export.h"

#include <filesystem>

#include "core/error.h"
#include "profile/convert.h"
#include "tools/msprof/output_flags.h"

namespace ms::tools::msprof {

using core::cat;
using core::Error;
using core::ErrorCode;

void ExportFlags::add(CLI::App& verb) {
  input.add(verb);
  verb.add_option("--step", step, "Only these steps: 10-12; default all");
  verb.add_option("-o,--output", output,
                  "File to write, whose extension is the format: .json, .perfetto-trace or .pftrace (each also with "
                  ".gz or .zst) or .mstrace; or a folder, for one file per rank")
      ->required();
  verb.add_flag("--merge", merge, "Write all ranks into one file, on one clock");
  verb.add_option("--format", format,
                  "Format of files in a folder: json or perfetto-trace, each also with .gz or .zst, or mstrace");
}

int ExportFlags::run() const {
  const std::vector<std::string> inputs = input.paths();
  if (inputs.empty()) return 0;
  const bool folder = output.ends_with('/') || std::filesystem::is_directory(output);
  const profile::ExportFormat form =
      folder ? profile::parse_export_format(format) : profile::export_format_of_path(output);
  const bool as_json = profile::export_format_name(form).starts_with("json");  // JSON keeps all arguments of its source
  profile::Store store = input.load(inputs, /*keep_file_order=*/as_json);
  keep_steps(step, store);
  std::vector<std::string> paths;
  if (folder && !merge) {
    paths = profile::convert_ranks(store, output, form);
  } else if (folder) {
    throw Error(ErrorCode::kInvalidArgument, cat("--merge writes one file, but -o ", output, " is a folder"));
  } else if (store.ranks.size() > 1 && !merge) {
    throw Error(ErrorCode::kInvalidArgument, cat(store.ranks.size(), " ranks do not fit into ", output,
                                                 ": give --merge (one file, one clock), --rank N, or a folder as -o"));
  } else {
    profile::convert_merged(store, output, form);
    paths = {output};
  }
  print_paths(paths);
  return input.exit_code(store);
}

}  // namespace ms::tools::msprof
