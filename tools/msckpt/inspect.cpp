#include "tools/msckpt/inspect.h"

#include <memory>
#include <string>
#include <vector>

#include "ckpt/inspect.h"
#include "ckpt/values.h"
#include "convert/detect.h"
#include "core/error.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"
#include "tools/msckpt/source_flags.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

struct InspectFlags {
  std::vector<std::string> paths;
  bool json = false, tensors = false;
  std::string tensor;
  convert::OpenOptions source;
};

// Prints the statistics of one tensor, in every role it has.
void print_statistics(ckpt::Source& source, const std::string& path, const InspectFlags& flags) {
  const auto tensors = source.shards().find_roles(flags.tensor);
  json list = json::array();
  std::string text;
  for (const int32_t tensor : tensors) {
    if (tensor < 0) continue;
    const ckpt::TensorStatistics statistics = ckpt::tensor_statistics(source, tensor);
    list.push_back(ckpt::statistics_json(source.shards(), tensor, statistics));
    text += ckpt::statistics_text(source.shards(), tensor, statistics);
  }
  if (list.empty()) {
    throw Error(ErrorCode::kNotFound, cat("--tensor ", flags.tensor, ": ", path,
                                          " has no such tensor. msckpt inspect --tensors lists the names."));
  }
  if (flags.json) {
    print_json({{"schema", ckpt::kJsonSchema}, {"verb", "inspect"}, {"path", path}, {"tensors", std::move(list)}});
  } else {
    print(text);
  }
}

int run_inspect(const InspectFlags& flags) {
  for (const std::string& path : input_paths(flags.paths)) {
    const auto source = convert::open_source(path, flags.source);
    if (!flags.tensor.empty()) {
      print_statistics(*source, path, flags);
    } else if (flags.json) {
      print_json(ckpt::inspect_json(*source, path));
    } else {
      print(ckpt::inspect_text(*source, path, flags.tensors));
    }
  }
  return 0;
}

}  // namespace

Verb add_inspect(CLI::App& app) {
  const auto flags = std::make_shared<InspectFlags>();
  CLI::App* verb = add_command(app, "inspect", "show layout, model and tensors of a checkpoint", flags->json);
  add_paths(*verb, flags->paths,
            "Checkpoint roots or directories, model folders or files of tensors; - reads a list of them from stdin");
  verb->add_flag("--tensors", flags->tensors, "Print a line for every tensor");
  verb->add_option("--tensor", flags->tensor, "Print statistics and a histogram of this tensor, in every role");
  add_source_flags(*verb, flags->source);
  return {verb, [flags](const Process&) { return run_inspect(*flags); }};
}

}  // namespace ms::tools::msckpt
