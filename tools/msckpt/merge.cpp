#include "tools/msckpt/merge.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/execute.h"
#include "ckpt/inspect.h"
#include "ckpt/merge.h"
#include "ckpt/native_sink.h"
#include "ckpt/reshard.h"
#include "convert/detect.h"
#include "convert/huggingface_config.h"
#include "core/error.h"
#include "core/log.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"
#include "tools/msckpt/named_result.h"
#include "tools/msckpt/reshard_flags.h"
#include "tools/msckpt/source_flags.h"
#include "tools/msckpt/write_flags.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;
using nlohmann::json;

struct MergeFlags {
  std::vector<std::string> paths;
  bool json = false;
  std::vector<double> weights;
  ReshardFlags reshard;
  WriteFlags write;
  convert::OpenOptions source;
  NamedResultFlags named;
};

// Merges only parameters: moments have no average.
int run_merge(const MergeFlags& flags, const Process& process) {
  const auto paths = input_paths(flags.paths);
  if (paths.empty()) return 0;
  require_save_dir(flags.write);
  std::vector<std::unique_ptr<ckpt::Source>> sources;
  json merged = json::array();
  std::vector<double> weights = flags.weights;
  if (weights.empty()) weights.assign(paths.size(), 1);
  for (size_t i = 0; i < paths.size(); ++i) {
    sources.push_back(convert::open_source(paths[i], flags.source));
    refuse_to_write_into_the_source(paths[i], flags.write.save_dir);
    merged.push_back({{"path", paths[i]},
                      {"iteration", sources.back()->info().iteration},
                      {"weight", i < weights.size() ? weights[i] : 0}});
  }
  for (size_t i = 1; i < sources.size(); ++i) {
    const ckpt::CheckpointInfo &first = sources[0]->info(), &other = sources[i]->info();
    if (!first.has_model || !other.has_model) continue;
    const std::string differences = convert::model_differences(other.model, first.model);
    if (!differences.empty()) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        cat(paths[i], " is of another model than ", paths[0], ": it has ", differences));
    }
  }
  auto source = ckpt::merge_sources(std::move(sources), weights);
  if (!source->info().has_model) {
    ReshardFlags asked = flags.reshard;
    asked.drop_optimizer = true;
    const convert::ConvertReport report =
        write_named_result(std::move(source), paths[0], convert::detect_format(paths[0]).format, flags.named, asked,
                           flags.write, process, "merge");
    json document = convert::to_json(report);
    document["verb"] = "merge";
    document["merged_from"] = std::move(merged);
    flags.json ? print_json(document) : print_result(report);
    return 0;
  }
  refuse_named_result_flags(flags.named, paths[0]);
  ckpt::ReshardOptions reshard = reshard_options(flags.reshard);
  reshard.drop_optimizer = true;
  ckpt::ReshardPlan plan = ckpt::plan_reshard(*source, target_layout(flags.reshard.layout, *source), reshard);
  plan.info.model_extra["merged_from"] = merged;
  if (flags.write.dry_run) {
    print_dry_run(flags.write, flags.json, "merge", *source, plan);
    return 0;
  }
  const auto sink = ckpt::make_native_sink(sink_options(flags.write, plan, "msckpt merge"));
  const ckpt::ExecuteReport report =
      ckpt::execute(*source, *sink, plan.info, plan.targets.shards, execute_options(flags.write, process, "merge"));
  core::log_info("msckpt.merge", cat(paths.size(), " checkpoints: ", ckpt::bytes_text(report.bytes), " of parameters"));
  if (flags.json) {
    print_json({{"schema", ckpt::kJsonSchema},
                {"verb", "merge"},
                {"path", report.path.string()},
                {"bytes", report.bytes},
                {"merged_from", std::move(merged)}});
  } else {
    print(report.path.string() + "\n");
  }
  return 0;
}

}  // namespace

Verb add_merge(CLI::App& app) {
  const auto flags = std::make_shared<MergeFlags>();
  CLI::App* verb = add_command(app, "merge", "average the parameters of several checkpoints of one model", flags->json);
  add_paths(*verb, flags->paths, "Checkpoint roots or directories, of any layouts; - reads a list of them from stdin");
  verb->add_option("--weights", flags->weights,
                   "One number per checkpoint, for example 0.7,0.3; divided by their sum (default: equal)")
      ->delimiter(',');
  add_reshard_flags(*verb, flags->reshard);
  add_write_flags(*verb, flags->write, "Root of the new checkpoint; its path is printed");
  add_source_flags(*verb, flags->source);
  add_named_result_flags(*verb, flags->named);
  return {verb, [flags](const Process& process) { return run_merge(*flags, process); }};
}

}  // namespace ms::tools::msckpt
