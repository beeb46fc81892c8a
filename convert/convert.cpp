#include "convert/convert.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "ckpt/inspect.h"
#include "ckpt/optimizer_settings.h"
#include "ckpt/plan.h"
#include "ckpt/prove_report.h"
#include "ckpt/reader.h"
#include "convert/convert_named.h"
#include "convert/formats.h"
#include "convert/gguf_source.h"
#include "convert/hf_names_source.h"
#include "convert/huggingface_config.h"
#include "convert/job_identity.h"
#include "convert/lora.h"
#include "convert/named.h"
#include "convert/option_uses.h"
#include "convert/passthrough.h"
#include "convert/report.h"
#include "convert/user_family.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/io/result_folder.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

bool is_megatron(Format format) { return format == Format::kMegatron || format == Format::kMegatronDist; }

// The element type of each canonical parameter in the target: the one requested, or the source's.
std::map<std::string, core::DType> target_dtypes(const ckpt::Source& source, std::optional<core::DType> asked) {
  std::map<std::string, core::DType> dtypes;
  for (const core::ShardedTensor& shard : source.shards()) {
    const bool is_buffer = shard.role == core::TensorRole::kBuffer;  // keeps its type: the router bias must stay exact
    if (shard.role != core::TensorRole::kParam && !is_buffer) continue;
    const core::DType dtype = is_buffer ? shard.dtype : asked.value_or(shard.dtype);
    const auto [at, is_new] = dtypes.emplace(shard.key, dtype);
    if (!is_new && at->second != dtype) {
      throw Error(ErrorCode::kUnsupported, cat(shard.key, " comes in parts of ", core::dtype_name(at->second), " and ",
                                               core::dtype_name(dtype), "; choose one type with --dtype"));
    }
  }
  return dtypes;
}

// Returns the optimizer state roles to convert. Reports what is left out, or refuses to leave it out.
std::vector<core::TensorRole> roles_of_target(const ckpt::Source& source, const ConvertOptions& options,
                                              ConvertReport& report) {
  std::vector<core::TensorRole> roles = {core::TensorRole::kParam};
  if (ckpt::has_role(source, core::TensorRole::kBuffer)) roles.push_back(core::TensorRole::kBuffer);
  std::set<std::string> dropped;
  const FormatRow& target = format_row(report.to);
  const bool of_sgd = ckpt::has_role(source, core::TensorRole::kMomentumBuffer);
  for (const core::TensorRole role : core::kOptimizerRoles) {
    if (!ckpt::has_role(source, role)) continue;
    if (target.holds_optimizer && !of_sgd && !options.drop_optimizer) {
      roles.push_back(role);
    } else {
      dropped.emplace(core::role_name(role));
    }
  }
  if (dropped.empty()) return roles;
  std::string names;
  for (const std::string& name : dropped) names += cat(names.empty() ? "" : ", ", name);
  if (!options.drop_optimizer) {
    throw Error(ErrorCode::kUnsupported,
                cat(options.load_dir, " contains optimizer state (", names, "), which ", target.noun, " cannot hold",
                    of_sgd && target.holds_optimizer ? " (of optimizers it has the state of AdamW only)" : "",
                    "; give --drop-optimizer to leave it out"));
  }
  report.decisions.push_back(cat("optimizer state is left out: ", names));
  return roles;
}

void note_casts(const ckpt::Source& source, const std::map<std::string, core::DType>& dtypes, ConvertReport& report) {
  std::map<std::pair<core::DType, core::DType>, int64_t> casts;
  for (const core::ShardedTensor& shard : source.shards()) {
    if (shard.role != core::TensorRole::kParam) continue;
    const core::DType to = dtypes.at(shard.key);
    if (to != shard.dtype) casts[{shard.dtype, to}] += core::num_elements(shard.local_shape);
  }
  for (const auto& [types, elements] : casts) {
    report.decisions.push_back(cat(elements, " elements are cast from ", core::dtype_name(types.first), " to ",
                                   core::dtype_name(types.second), ", rounded to nearest even"));
  }
}

// The element type of a canonical parameter in the target.
std::function<core::DType(const std::string& key)> dtype_of(const ConvertOptions& options,
                                                            const std::map<std::string, core::DType>& dtypes) {
  return [&](const std::string& key) {
    const auto dtype = dtypes.find(key);
    if (dtype == dtypes.end()) throw Error(ErrorCode::kCorruptData, cat(options.load_dir, ": ", key, " is missing"));
    return dtype->second;
  };
}

// Adam's state belongs to the weights without the adapter.
std::unique_ptr<ckpt::Source> with_lora(std::unique_ptr<ckpt::Source> source, const ConvertOptions& options,
                                        ConvertReport& report) {
  const bool trained =
      std::ranges::any_of(core::kOptimizerRoles, [&](core::TensorRole role) { return ckpt::has_role(*source, role); });
  if (trained && !options.drop_optimizer) {
    throw Error(ErrorCode::kUnsupported,
                cat(options.load_dir,
                    " contains optimizer state, which does not belong to the weights that --lora "
                    "makes; give --drop-optimizer to leave it out"));
  }
  return merge_lora(std::move(source), options.lora, options.dtype == core::DType::kFp32 || options.q8_0,
                    report.decisions);
}

// Without optimizer state these flags would have no effect.
std::unique_ptr<ckpt::Source> with_settings(std::unique_ptr<ckpt::Source> source, const ConvertOptions& options,
                                            ConvertReport& report) {
  if (!options.optimizer.any()) return source;
  if (options.drop_optimizer || !ckpt::has_role(*source, core::TensorRole::kExpAvg)) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("optimizer settings (--lr, --weight-decay, --adam-beta1, ..) need optimizer state, ",
                    options.drop_optimizer ? std::string("which --drop-optimizer leaves out")
                                           : cat("and ", options.load_dir, " has none")));
  }
  return with_optimizer_flags(std::move(source), options.optimizer, report.decisions, report.from_flags);
}

// "group of 12 listed parameters: lr 0.0003, .."
void note_settings(const ckpt::Source& source, ConvertReport& report) {
  for (const ckpt::OptimizerGroup& group : ckpt::optimizer_groups(source)) {
    report.carried.push_back(cat(group.params.empty() ? std::string("group of all other parameters")
                                                      : cat("group of ", group.params.size(), " listed parameters"),
                                 ": ", settings_text(group)));
  }
  const json schedule = source.info().common.value("opt_param_scheduler", json());
  if (schedule.is_object()) report.carried.push_back(cat("schedule: ", schedule.dump()));
}

// A source with fewer shards than the model has layers or experts cannot be complete; refusing it limits the lists
// allocated for them.
void check_size(const ckpt::Source& source, const std::string& load_dir) {
  const core::TransformerConfig& model = source.info().model;
  const std::vector<bool> layers = model.layers_with_experts();
  const auto with_experts = static_cast<size_t>(std::count(layers.begin(), layers.end(), true));
  if (layers.size() + with_experts * static_cast<size_t>(model.num_experts) <= source.shards().size()) return;
  throw Error(ErrorCode::kCorruptData,
              cat(load_dir, ": its model has ", model.num_layers, " layers and ", model.num_experts,
                  " experts, but there are only ", source.shards().size(), " shards"));
}

// Reports passthrough tensors; refuses a target that cannot store them.
void note_passthrough(const ckpt::Source& source, const ConvertOptions& options, ConvertReport& report) {
  const std::vector<core::ShardedTensor> tensors = passthrough_tensors(source);
  if (tensors.empty()) return;
  int64_t bytes = 0;
  for (const core::ShardedTensor& tensor : tensors) {
    bytes += core::num_elements(tensor.global_shape) * core::size_of(tensor.dtype);
  }
  if (report.to == Format::kGguf || report.to == Format::kUniversal) {
    throw Error(
        ErrorCode::kUnsupported,
        cat(options.load_dir, " contains ", tensors.size(), " tensors outside the family (", tensors.front().key,
            ", ..), which ", format_row(report.to).noun, " cannot hold; --drop-passthrough leaves them out"));
  }
  report.decisions.push_back(cat(tensors.size(), " tensors of ", bytes, " bytes are copied unchanged, under their ",
                                 "own names (", tensors.front().key, ", ..)",
                                 is_megatron(report.to) ? ", in passthrough.pt next to the ranks' files" : ""));
}

// MindSpeed-LLM's command lines for a conversion to Hugging Face repeat how the tree was made, since its converter
// cannot detect it.
void drop_flags_detected_from_tree(ConvertOptions& options, ConvertReport& report) {
  if (report.from != Format::kMegatron || report.to != Format::kHuggingFace) return;
  const auto leave_out = [&](const char* flag, auto& option) {
    const std::remove_reference_t<decltype(option)> none{};
    if (option == none) return;
    option = none;
    report.decisions.push_back(cat(flag, " has no effect: it is detected from the tree"));
  };
  leave_out("--moe-grouped-gemm", options.moe_grouped_gemm);
  leave_out("--moe-tp-extend-ep", options.moe_tp_extend_ep);
  leave_out("--expert-tensor-parallel-size", options.expert_tensor_parallel_size);
  leave_out("--num-layer-list", options.num_layer_list);
  leave_out("--num-layers-per-virtual-pipeline-stage", options.num_layers_per_virtual_pipeline_stage);
  leave_out("--target-norm-naming, set by --transformer-impl,", options.target_norm_naming);
}

// Targets that take any names keep those of the rank files. Others need the family: from --hf-cfg-dir, else from the
// config.json next to the files.
void choose_rank_file_mode(ConvertOptions& options, ConvertReport& report) {
  if (!options.save_model_type || takes_any_names(*options.save_model_type)) {
    options.as_named = true;
  } else if (!options.as_named && options.hf_cfg_dir.empty()) {
    options.hf_cfg_dir = config_folder_of(options.load_dir);
    if (!options.hf_cfg_dir.empty())
      report.decisions.push_back(cat(options.hf_cfg_dir, "/config.json describes the model"));
  }
}

// Determines the source's and the target's format.
void choose_formats(ConvertOptions& options, const Family* family, ConvertReport& report) {
  if (options.load_model_type) {
    report.from = *options.load_model_type;
    report.detected_by = "--load-model-type";
  } else {
    const Detection found = detect_format(options.load_dir);
    report.from = found.format;
    report.detected_by = found.rule;
  }
  const auto& asked = options.save_model_type;
  if (report.from == Format::kRankFiles) choose_rank_file_mode(options, report);
  if (report.from == Format::kHuggingFace && (asked == Format::kHuggingFaceBin || asked == Format::kFile))
    options.as_named = true;
  const bool named = reads_as_named(report.from, options.load_dir, options.hf_cfg_dir, options.as_named, family);
  const Format other = report.from == Format::kNative || named ? Format::kHuggingFace : Format::kNative;
  report.to = asked.value_or(other);
  if (format_row(report.from).open == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                cat(options.load_dir, ": ", format_name(report.from), " checkpoints can be written, but not read"));
  }
  if (format_row(report.to).make_target == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                cat("--save-model-type ", format_name(report.to), ": such checkpoints can be read, but not written"));
  }
  if (report.from == Format::kNative && report.to == Format::kNative) {
    throw Error(ErrorCode::kInvalidArgument, cat(options.load_dir,
                                                 " is a native checkpoint, and so is the target; use msckpt "
                                                 "reshard, which keeps the optimizer state"));
  }
}

void check_save_dir(const ConvertOptions& options, Format to) {
  if (to != Format::kFile && fs::exists(options.save_dir) && !fs::is_directory(options.save_dir)) {
    throw Error(ErrorCode::kInvalidArgument, cat("--save-dir ", options.save_dir, " is a file, not a folder"));
  }
  std::error_code absent;  // on an error they are different
  if (fs::equivalent(options.load_dir, options.save_dir, absent)) {
    throw Error(ErrorCode::kInvalidArgument, cat("--load-dir and --save-dir are the same folder, ", options.save_dir));
  }
}

// Reports, by role, what goes into the result and what does not.
void report_carried(const ckpt::Source& source, std::span<const core::TensorRole> roles, bool masters_are_weights,
                    ConvertReport& report) {
  std::map<core::TensorRole, std::pair<int64_t, int64_t>> sizes;  // (tensors, bytes)
  const ckpt::ShardTable& shards = source.shards();
  for (size_t t = 0; t < shards.num_tensors(); ++t) {
    auto& [tensors, bytes] = sizes[shards.role(static_cast<int32_t>(t))];
    ++tensors;
    bytes += shards.tensor_bytes(static_cast<int32_t>(t));
  }
  for (const auto& [role, size] : sizes) {
    std::string text = cat(core::role_name(role), ": ", size.first, size.first == 1 ? " tensor, " : " tensors, ",
                           ckpt::bytes_text(size.second));
    if (masters_are_weights && role == core::TensorRole::kMaster) text += ", stored as the result's fp32 weights";
    const bool kept = std::find(roles.begin(), roles.end(), role) != roles.end();
    (kept ? report.carried : report.dropped).push_back(std::move(text));
  }
  for (const ckpt::Leftover& leftover : source.leftovers()) {
    report.dropped.push_back(cat(leftover.name, " in ", leftover.place, ": ", leftover.why));
  }
}

// Reports the values in the result that a flag set.
void report_flag_settings(const ConvertOptions& options, ConvertReport& report) {
  const auto say = [&](const char* flag, const std::string& value, const char* what) {
    if (!value.empty()) report.from_flags.push_back(cat(flag, " ", value, ": ", what));
  };
  say("--dtype",
      options.q8_0    ? "q8_0"
      : options.dtype ? std::string(core::dtype_name(*options.dtype))
                      : "",
      "the element type of the weights");
  say("--hf-cfg-dir", options.hf_cfg_dir, "config.json and tokenizer files");
  say("--model-type-hf", options.claims.model_type_hf, "the family");
  say("--name-map", options.name_map, "the names of the tensors");
  say("--lora", options.lora, "an adapter merged into the weights");
  say("--true-vocab-size", options.true_vocab_size == 0 ? "" : cat(options.true_vocab_size), "vocabulary rows");
}

// Opens the result as a user would, and proves it against the source. family: of the names in the result.
ckpt::ProofReport prove_result(ckpt::Source& source, const ConvertOptions& options, const ConvertReport& report,
                               const Family* family) {
  ConvertOptions reading = options;
  reading.load_dir = report.path;
  reading.drop_optimizer = false;
  reading.true_vocab_size = 0;
  const fs::path root = fs::path(report.path).parent_path();
  if (report.to == Format::kUniversal && fs::exists(root / "config.json")) reading.hf_cfg_dir = root.string();
  ckpt::ProveOptions proving;
  proving.threads = options.execute.threads;
  proving.stopped = options.execute.stopped;
  proving.progress = options.execute.progress;
  if (report.to == Format::kGguf) return prove_gguf(source, report.path, family, proving);
  std::vector<std::string> decisions;
  std::unique_ptr<ckpt::Source> result;
  try {
    result =
        format_row(report.to).open(report.path, {.options = reading, .family = family, .for_proof = true}, decisions);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData && error.code() != ErrorCode::kUnsupported) throw;
    return ckpt::refused_target(error);
  }
  return ckpt::prove(source, *result, proving);
}

// Reads the hashes that a native checkpoint contains.
std::vector<ckpt::WrittenTensor> recorded_hashes(const std::string& path) {
  const auto made = ckpt::open_native(path);
  const ckpt::ShardTable& shards = made->shards();
  std::vector<ckpt::WrittenTensor> tensors;
  for (size_t t = 0; t < shards.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const auto shape = shards.global_shape(tensor);
    const std::string key(shards.key(tensor));
    tensors.push_back({key,
                       shards.role(tensor),
                       shards.dtype(tensor),
                       {shape.begin(), shape.end()},
                       made->logical_xxh3(key, shards.role(tensor))});
  }
  return tensors;
}

// Identifies the source and all options that affect values; the sink hashes the layout. The source is identified by the
// times of its files, to avoid reading it twice.
std::string job_of(const ConvertOptions& options, const ConvertReport& report) {
  std::string layers;
  for (const int64_t layer : options.extras.noop_layers) layers += cat(layer, ",");
  const auto joined = [](const std::vector<std::string>& rules) {
    std::string text = cat(rules.size(), ":");
    for (const std::string& rule : rules) text += cat(rule, '\n');
    return text;
  };
  return cat(format_name(report.from), " to ", format_name(report.to), " of ", identity_of(options.load_dir), " ",
             identity_of(options.hf_cfg_dir), " ", identity_of(options.name_map), " ", identity_of(options.lora), " ",
             identity_of(options.passthrough_from), " ", options.passthrough, " ", options.drop_passthrough, " ",
             identity_of(options.passthrough_from), " ", options.true_vocab_size, " ", layers, " ",
             options.extras.dualpipev, " ", options.claims.model_type_hf, " ", options.drop_optimizer, " ",
             options.q8_0, " ", options.as_named, " ", joined(options.names.rename), joined(options.names.include),
             joined(options.names.exclude));
}

// Writes a model in a format that keeps names, under Hugging Face's names for its tensors.
void write_under_hf_names(std::unique_ptr<ckpt::Source> source, const ConvertOptions& options, const Family* family,
                          const std::string& job, ConvertReport& report) {
  const auto dtypes = target_dtypes(*source, options.dtype);
  const std::vector<core::TensorRole> roles = roles_of_target(*source, options, report);
  ConvertReport dropped;
  report_carried(*source, roles, false, dropped);
  report.dropped = std::move(dropped.dropped);
  ResultFiles files;
  const TargetRequest request{.source = *source,
                              .options = options,
                              .from = report.from,
                              .family = family,
                              .dtype = dtype_of(options, dtypes),
                              .roles = roles,
                              .writing = {}};
  files.config = result_config(request, &files.copy_from, report.decisions);
  files.generation_config = source->info().model_extra.value("hf_generation_config", json());
  auto of_result = family_of_result(files.config, source->info().model_extra, family);
  convert_named(with_hf_names(std::move(source), std::move(of_result)), options, job, report, &files);
}

}  // namespace

ConvertReport convert_checkpoint(const ConvertOptions& asked) {
  ConvertOptions options = asked;
  ConvertReport report;
  report.dry_run = options.dry_run;
  report.save_dir = options.save_dir;
  std::optional<UserFamily> user_family;
  if (!options.name_map.empty()) user_family.emplace(options.name_map);
  const Family* named = user_family ? &user_family->family() : nullptr;
  choose_formats(options, named, report);
  // Else files that a killed attempt had moved into the folder would count as the user's.
  if (!options.dry_run) core::undo_dead_publication(options.save_dir);
  check_save_dir(options, report.to);
  for (std::string& note : notes_on_script_flags(options.script_flags, report.to == Format::kMegatron))
    report.decisions.push_back(std::move(note));
  drop_flags_detected_from_tree(options, report);
  refuse_options_without_effect(options, report.from, report.to);
  if (!options.name_map.empty() && !options.claims.model_type_hf.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "--name-map and --model-type-hf both name a family: give one of them");
  }
  const bool to_tree = report.to == Format::kMegatron;  // else the extras describe the source
  std::unique_ptr<ckpt::Source> source =
      format_row(report.from)
          .open(options.load_dir,
                {.options = options, .family = named, .extras = to_tree ? PipelineExtras() : options.extras},
                report.decisions);
  if (!source->info().has_model) {
    convert_named(std::move(source), options, job_of(asked, report), report);
    return report;
  }
  source = with_names(std::move(source), options.names, report.decisions);
  if (!to_tree) options.extras = {};
  check_size(*source, options.load_dir);
  if (!options.passthrough_from.empty()) source = with_passthrough_from(std::move(source), options.passthrough_from);
  if (options.drop_passthrough) source = drop_passthrough(std::move(source));
  note_passthrough(*source, options, report);
  const bool config_is_used = report.to != Format::kNative && !is_megatron(report.to);
  if (is_megatron(report.from) && !options.hf_cfg_dir.empty() && !config_is_used &&
      !source->info().model_extra.contains("hf_config")) {
    report.decisions.push_back("--hf-cfg-dir has no effect: args describe the model");
  }
  const Family* said =
      check_script_claims(options.claims, source->info().model, source->info().model_extra.value("hf_config", json()),
                          static_cast<int64_t>(asked.extras.noop_layers.size()));
  if (!options.lora.empty()) source = with_lora(std::move(source), options, report);
  if (report.to == Format::kHuggingFaceBin || report.to == Format::kFile) {
    write_under_hf_names(std::move(source), options, named != nullptr ? named : said, job_of(asked, report), report);
    return report;
  }
  source = with_settings(std::move(source), options, report);
  const std::vector<core::TensorRole> roles = roles_of_target(*source, options, report);
  const bool masters_are_weights =
      report.to == Format::kDcp && std::find(roles.begin(), roles.end(), core::TensorRole::kMaster) != roles.end();
  if (masters_are_weights && options.dtype.value_or(core::DType::kFp32) != core::DType::kFp32) {
    throw Error(ErrorCode::kUnsupported,
                cat("--dtype ", core::dtype_name(*options.dtype),
                    ": the weights of a dcp checkpoint with optimizer state "
                    "are the fp32 master weights; leave --dtype out, or give --drop-optimizer"));
  }
  const auto dtypes = target_dtypes(*source, masters_are_weights ? std::optional(core::DType::kFp32) : options.dtype);
  if (!masters_are_weights) note_casts(*source, dtypes, report);
  const bool with_optimizer = std::any_of(roles.begin(), roles.end(), core::is_optimizer_role);
  const std::string job = job_of(asked, report);
  Target target = format_row(report.to).make_target({.source = *source,
                                                     .options = options,
                                                     .from = report.from,
                                                     .family = named != nullptr ? named : said,
                                                     .dtype = dtype_of(options, dtypes),
                                                     .roles = roles,
                                                     .with_optimizer = with_optimizer,
                                                     .writing = {options.write_path, job, options.resume}},
                                                    report.decisions);
  report_carried(*source, roles, masters_are_weights, report);
  report_flag_settings(asked, report);
  report.iteration = source->info().iteration;
  report.settings = source->info().common;
  if (with_optimizer) {
    note_settings(*source, report);
  } else {  // they would describe state that is absent
    for (const char* settings : {"optimizer", "lr_scheduler"}) target.info.common.erase(settings);
  }
  report.tensors = static_cast<int64_t>(dtypes.size());
  for (const core::ShardedTensor& shard : target.shards) {
    report.bytes += core::num_elements(shard.local_shape) * core::size_of(shard.dtype);
  }
  if (options.dry_run) {
    // Throws the errors that execute() would.
    ckpt::plan_copies(source->shards(), target.shards, [](const ckpt::CopyRegion&) {});
    return report;
  }
  // With q8_0 the stored values differ from those that the sink receives.
  const bool hashes = report.to != Format::kNative && !options.q8_0;
  ckpt::HashingSink hashing(*target.sink);
  ckpt::Sink& sink = hashes ? static_cast<ckpt::Sink&>(hashing) : *target.sink;
  const ckpt::ExecuteReport done = ckpt::execute(*source, sink, target.info, target.shards, options.execute);
  report.path = done.path.string();
  report.kept_bytes = done.kept_bytes;
  report.seconds = done.seconds;
  if (hashes) report.written = hashing.tensors();
  if (report.to == Format::kNative) report.written = recorded_hashes(report.path);
  if (options.prove) report.proof = prove_result(*source, options, report, named != nullptr ? named : said);
  report.kept_at = keep_report(report, options);
  return report;
}

json to_json(const ConvertReport& report) {
  json document = {{"schema", "msckpt/1"},
                   {"verb", "convert"},
                   {"path", report.path},
                   {"save_dir", report.save_dir},
                   {"from", format_name(report.from)},
                   {"to", format_name(report.to)},
                   {"detected_by", report.detected_by},
                   {"tensors", report.tensors},
                   {"bytes", report.bytes},
                   {"kept_bytes", report.kept_bytes},
                   {"decisions", report.decisions},
                   {"dry_run", report.dry_run},
                   {"carried", report.carried},
                   {"dropped", report.dropped},
                   {"from_flags", report.from_flags},
                   {"report", report.kept_at},
                   {"seconds", report.seconds}};
  if (report.proof) document["proof"] = ckpt::proof_json(*report.proof);
  return document;
}

}  // namespace ms::convert
