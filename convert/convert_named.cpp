#include "convert/convert_named.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "ckpt/execute.h"
#include "ckpt/hashing_sink.h"
#include "ckpt/inspect.h"
#include "ckpt/plan.h"
#include "ckpt/prove.h"
#include "ckpt/prove_report.h"
#include "convert/family.h"
#include "convert/formats.h"
#include "convert/hf_split.h"
#include "convert/huggingface_config.h"
#include "convert/name_rules.h"
#include "convert/named.h"
#include "convert/named_target.h"
#include "convert/report.h"
#include "convert/wrapper.h"
#include "core/error.h"
#include "core/io/json.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using core::TensorRole;

constexpr int64_t kMaxConfigBytes = 16 << 20;

// True if `path` has a config.json whose model_type is a family that we know, or a wrapper of one (wrapper.h).
bool has_known_family(const std::string& path) {
  const std::string folder = config_folder_of(path);
  if (folder.empty()) return false;
  const nlohmann::json config = read_json((fs::path(folder) / "config.json").string(), kMaxConfigBytes);
  if (!config.is_object() || !config.contains("model_type") || !config["model_type"].is_string()) return false;
  if (is_wrapper(config)) return true;
  const auto all = families();
  const std::string type = config["model_type"];
  return std::any_of(all.begin(), all.end(), [&](const Family* family) { return type == family->model_type; });
}

NamedForm form_of(Format format) {
  switch (format) {
    case Format::kHuggingFaceBin:
      return NamedForm::kHuggingFaceBin;
    case Format::kFile:
      return NamedForm::kFile;
    case Format::kDcp:
      return NamedForm::kDcp;
    default:
      return NamedForm::kHuggingFace;
  }
}

// Reports what is left out, or refuses to leave it out.
bool takes_optimizer(const ckpt::Source& source, const ConvertOptions& options, ConvertReport& report) {
  const ckpt::ShardTable& shards = source.shards();
  std::set<std::string> kinds;
  for (size_t t = 0; t < shards.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    if (!is_optimizer_state(shards.role(tensor), shards.key(tensor))) continue;
    kinds.emplace(shards.role(tensor) == TensorRole::kBuffer ? "counters" : core::role_name(shards.role(tensor)));
  }
  if (kinds.empty()) return false;
  std::string names;
  for (const std::string& kind : kinds) names += cat(names.empty() ? "" : ", ", kind);
  if (options.drop_optimizer) {
    report.decisions.push_back(cat("optimizer state is left out: ", names));
    return false;
  }
  if (form_of(report.to) == NamedForm::kDcp) return true;
  throw Error(ErrorCode::kUnsupported,
              cat(options.load_dir, " contains optimizer state (", names, "), which ", format_row(report.to).noun,
                  " cannot hold; give --drop-optimizer to leave it out"));
}

// Reads the result back and proves it against the source.
ckpt::ProofReport prove_result(ckpt::Source& source, const ConvertOptions& options, const ConvertReport& report) {
  std::unique_ptr<ckpt::Source> result;
  try {
    std::vector<std::string> decisions;
    result = open_named(report.path, false, decisions);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData && error.code() != ErrorCode::kUnsupported) throw;
    return ckpt::refused_target(error);
  }
  ckpt::ProveOptions proving;
  proving.threads = options.execute.threads;
  proving.stopped = options.execute.stopped;
  proving.progress = options.execute.progress;
  return ckpt::prove(source, *result, proving);
}

// Reports, by role, what goes into the result and what does not.
void report_carried(const ckpt::Source& source, const ckpt::ShardTable& targets, ConvertReport& report) {
  const ckpt::ShardTable& shards = source.shards();
  std::map<std::pair<TensorRole, bool>, std::pair<int64_t, int64_t>> sizes;  // (role, is carried) -> (tensors, bytes)
  for (size_t t = 0; t < shards.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const bool carried =
        shards.tensor_bytes(tensor) == 0 || targets.find(shards.key(tensor), shards.role(tensor)).has_value();
    auto& [tensors, bytes] = sizes[{shards.role(tensor), carried}];
    ++tensors;
    bytes += shards.tensor_bytes(tensor);
  }
  for (const auto& [kind, size] : sizes) {
    (kind.second ? report.carried : report.dropped)
        .push_back(cat(core::role_name(kind.first), ": ", size.first, size.first == 1 ? " tensor, " : " tensors, ",
                       ckpt::bytes_text(size.second)));
  }
  for (const ckpt::Leftover& leftover : source.leftovers()) {
    report.dropped.push_back(cat(leftover.name, " in ", leftover.place, ": ", leftover.why));
  }
}

}  // namespace

bool has_own_names(Format format) {
  switch (format) {
    case Format::kHuggingFace:
    case Format::kHuggingFaceBin:
    case Format::kFile:
    case Format::kDcp:
    case Format::kDeepSpeed:
    case Format::kUniversal:
    case Format::kRankFiles:
      return true;
    default:
      return false;
  }
}

bool takes_any_names(Format format) {
  return format == Format::kHuggingFace || format == Format::kHuggingFaceBin || format == Format::kFile ||
         format == Format::kDcp;
}

bool reads_as_named(Format format, const std::string& path, const std::string& hf_cfg_dir, bool as_named,
                    const Family* family) {
  if (!has_own_names(format)) return false;
  if (as_named || format == Format::kFile) return true;
  if (format == Format::kRankFiles) return hf_cfg_dir.empty();
  if (format == Format::kHuggingFace) return family == nullptr && !has_known_family(path);
  return hf_cfg_dir.empty() && !has_known_family(path);
}

void convert_named(std::unique_ptr<ckpt::Source> source, const ConvertOptions& options, const std::string& job,
                   ConvertReport& report, const ResultFiles* files) {
  const FormatRow& to = format_row(report.to);
  if (!takes_any_names(report.to) && fs::exists(fs::path(options.load_dir) / "adapter_config.json")) {
    throw Error(ErrorCode::kInvalidArgument,
                cat(options.load_dir, ": a LoRA adapter; --lora merges it into the model that --load-dir names"));
  }
  if (!takes_any_names(report.to)) ckpt::require_model(source->info(), to.noun);
  if (options.optimizer.any()) ckpt::require_model(source->info(), "an optimizer setting (--lr, ..)");
  if (!options.lora.empty()) ckpt::require_model(source->info(), "--lora");
  if (!options.claims.model_type_hf.empty()) ckpt::require_model(source->info(), "--model-type-hf");
  source = with_names(std::move(source), options.names, report.decisions);
  NamedTargetOptions asked;
  asked.save_dir = options.save_dir;
  asked.form = form_of(report.to);
  asked.max_shard_size_bytes = options.max_shard_size_bytes.value_or(kHfShardBytes);
  asked.data_parallel_size = options.target_data_parallel_size;
  asked.dtype = options.dtype;
  asked.with_optimizer = takes_optimizer(*source, options, report);
  asked.stem = weight_stem_of(options.load_dir);
  if (files != nullptr) {
    asked.copy_from = files->copy_from;
    asked.config = files->config;
    asked.generation_config = files->generation_config;
  } else {
    asked.copy_from = options.hf_cfg_dir.empty() ? small_files_of(options.load_dir) : options.hf_cfg_dir;
  }
  asked.writing = {options.write_path, job, options.resume};
  if (report.from == Format::kDcp && report.to == Format::kDcp) {
    // param_groups list parameters by name, so names that change would leave them dangling.
    const bool renamed = asked.with_optimizer && !options.names.empty();
    asked.entries = read_dcp_entries(options.load_dir, asked.with_optimizer && !renamed);
    if (renamed) {
      report.decisions.push_back(
          "optimizer settings (param_groups) are left out, since --rename, --include or --exclude change the "
          "parameters that they refer to");
    }
    if (!asked.entries.objects.empty()) {
      report.decisions.push_back(
          cat(asked.entries.objects.size(), " entries that are not tensors are copied unchanged"));
    }
  } else if (asked.with_optimizer) {
    report.decisions.push_back(
        "the source has no optimizer settings (param_groups) for a dcp result: the loading program sets "
        "its own");
  }
  NamedTarget target = make_named_target(*source, asked, report.decisions);
  report_carried(*source, target.shards, report);
  if (options.dtype) {
    report.from_flags.push_back(cat("--dtype ", core::dtype_name(*options.dtype), ": the element type of the weights"));
  }
  report.iteration = source->info().iteration;
  report.settings = source->info().common;
  for (size_t i = 0; i < target.shards.size(); ++i) report.bytes += target.shards.size_bytes(i);
  report.tensors = static_cast<int64_t>(target.shards.num_tensors());
  if (options.dry_run) {
    // Throws the errors that execute() would.
    ckpt::plan_copies(source->shards(), target.shards, [](const ckpt::CopyRegion&) {});
    return;
  }
  ckpt::HashingSink sink(*target.sink);
  const ckpt::ExecuteReport done = ckpt::execute(*source, sink, source->info(), target.shards, options.execute);
  report.path = done.path.string();
  report.kept_bytes = done.kept_bytes;
  report.seconds = done.seconds;
  report.written = sink.tensors();
  if (options.prove) report.proof = prove_result(*source, options, report);
  report.kept_at = keep_report(report, options);
}

}  // namespace ms::convert
