#include "tools/msckpt_verbs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/commit.h"
#include "ckpt/execute.h"
#include "ckpt/gc.h"
#include "ckpt/inspect.h"
#include "ckpt/merge.h"
#include "ckpt/native_sink.h"
#include "ckpt/plan.h"
#include "ckpt/probe.h"
#include "ckpt/reader.h"
#include "ckpt/reshard.h"
#include "ckpt/values.h"
#include "ckpt/verify.h"
#include "convert/convert.h"
#include "convert/detect.h"
#include "convert/family.h"
#include "core/comm/agree.h"
#include "core/error.h"
#include "core/log.h"
#include "core/path_list.h"
#include "core/signals.h"
#include "tools/guard.h"

namespace ms::tools::msckpt {
namespace {

namespace fs = std::filesystem;
using namespace ckpt;
using convert::open_source;
using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

void print_json(const json& document) { print(document.dump() + "\n"); }

// Under mpirun one process prints for all.
bool speaks(const Flags& flags) { return flags.team == nullptr || flags.team->rank() == 0; }

// What can fail on one process fails on all.
void agree(const Flags& flags, const std::function<void()>& body) {
  if (flags.team == nullptr) return body();
  core::collectively(*flags.team, "msckpt", body);
}

// What one process knows, of stdin or of folders that change, on all.
std::vector<std::string> agreed_list(const Flags& flags, const std::function<std::vector<std::string>()>& list) {
  std::vector<std::string> items;
  agree(flags, [&] {
    if (speaks(flags)) items = list();
  });
  if (flags.team == nullptr) return items;
  return json::parse(flags.team->bcast_string(json(items).dump(), 0)).get<std::vector<std::string>>();
}

// The only path of a flag that may be "-"; empty if the link before gave none.
std::string single_path(const Flags& flags, const std::string& given, const char* flag) {
  const auto paths = agreed_list(flags, [&] { return core::expand_path_list({given}, std::cin); });
  if (paths.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, cat(flag, " -: one path is wanted, stdin gave ", paths.size()));
  }
  return paths.empty() ? "" : paths.front();
}

ModelLayout target_layout(const Flags& flags, const Source& source) {
  ModelLayout layout = flags.target;
  const auto& model = source.info().model;
  const int pp = layout.pipeline_model_parallel_size;
  layout.virtual_pipeline_model_parallel_size =
      virtual_pipeline_size(model, pp, flags.num_layers_per_virtual_pipeline_stage);
  if (flags.first_num_layers > 0 || flags.last_num_layers > 0) {
    if (!layout.num_layer_list.empty() || flags.num_layers_per_virtual_pipeline_stage > 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers go neither with "
                  "--num-layer-list nor with --num-layers-per-virtual-pipeline-stage");
    }
    layout.num_layer_list = uneven_layer_list(model.num_layers, pp, flags.first_num_layers, flags.last_num_layers);
  }
  if (!layout.num_layer_list.empty() && flags.num_layers_per_virtual_pipeline_stage > 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "--num-layer-list says how many layers each stage has, and so does "
                "--num-layers-per-virtual-pipeline-stage: give one of them");
  }
  // MindSpeed-LLM's default: as many ranks share an expert as share a dense layer.
  layout.expert_tensor_parallel_size = flags.expert_tensor_parallel_size.value_or(
      flags.target.expert_model_parallel_size > 1 ? layout.tensor_model_parallel_size
                                                  : layout.expert_tensor_parallel_size);
  return layout;
}

ReshardOptions reshard_options(const Flags& flags) {
  ReshardOptions options;
  options.drop_optimizer = flags.drop_optimizer;
  if (!flags.params_dtype.empty()) {
    options.params_dtype = convert::parse_weight_dtype(flags.params_dtype, "--params-dtype");
  }
  return options;
}

bool interrupted() { return core::termination_signal() != 0; }

// A progress line with rate and time left, redrawn at most ten times a second.
std::function<void(int64_t, int64_t)> progress_line(const std::string& what) {
  using Clock = std::chrono::steady_clock;
  return [what, start = Clock::now(), last = Clock::time_point()](int64_t done, int64_t total) mutable {
    const auto now = Clock::now();
    if (done < total && now - last < std::chrono::milliseconds(100)) return;
    last = now;
    const double seconds = std::chrono::duration<double>(now - start).count();
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    const double left = rate > 0 ? static_cast<double>(total - done) / rate : 0;
    core::log_progress(done >= total ? ""
                                     : cat(what, ": ", bytes_text(done), " of ", bytes_text(total), ", ",
                                           bytes_text(static_cast<int64_t>(rate)), "/s, ",
                                           static_cast<int64_t>(left + 0.5), " s left"));
  };
}

// One tensor's statistics, in every role it has.
void print_statistics(Source& source, const std::string& path, const Flags& flags) {
  const auto tensors = source.shards().find_roles(flags.tensor);
  json list = json::array();
  std::string text;
  for (const int32_t tensor : tensors) {
    if (tensor < 0) continue;
    const TensorStatistics statistics = tensor_statistics(source, tensor);
    list.push_back(statistics_json(source.shards(), tensor, statistics));
    text += statistics_text(source.shards(), tensor, statistics);
  }
  if (list.empty()) {
    throw Error(ErrorCode::kNotFound, cat("--tensor ", flags.tensor, ": ", path,
                                          " has no such tensor. msckpt inspect --tensors lists the names."));
  }
  if (flags.json) {
    print_json({{"schema", kJsonSchema}, {"verb", "inspect"}, {"path", path}, {"tensors", std::move(list)}});
  } else {
    print(text);
  }
}

}  // namespace

int run_inspect(const Flags& flags) {
  for (const std::string& path : core::expand_path_list(flags.paths, std::cin)) {
    const auto source = open_source(path);
    if (!flags.tensor.empty()) {
      print_statistics(*source, path, flags);
    } else if (flags.json) {
      print_json(inspect_json(*source, path));
    } else {
      print(inspect_text(*source, path, flags.tensors));
    }
  }
  return 0;
}

namespace {

// A root stands for its newest generation, whole or not: falling back would hide the damage.
std::vector<fs::path> generations_to_verify(const std::string& path, bool all) {
  if (fs::exists(fs::path(path) / kManifestName)) return {path};
  const auto generations = list_generations(path);
  if (generations.empty()) {
    throw Error(ErrorCode::kNotFound,
                cat(path, ": no checkpoint here: no ", kManifestName, " and no iter_* directory"));
  }
  std::vector<fs::path> paths;
  for (const Generation& generation : generations) paths.push_back(generation.path);
  if (const auto note = pointer_note(path, generations.front().iteration)) {
    core::log_warning("msckpt.verify", cat(path, ": ", *note));
  }
  if (!all) paths.resize(1);
  return paths;
}

void print_verified(const Flags& flags, const fs::path& path, const VerifyReport& report) {
  json findings = json::array();
  for (const Finding& finding : report.findings) {
    core::log_error("msckpt.verify", cat(path.string(), ": ", finding_text(finding)));
    findings.push_back({{"file", finding.file}, {"tensor", finding.tensor}, {"text", finding.text}});
    if (finding.begin >= 0) findings.back().update({{"begin", finding.begin}, {"end", finding.end}});
  }
  for (const std::string& note : report.notes) {
    core::log_warning("msckpt.verify", cat(path.string(), ": ", note));
  }
  if (flags.json) {
    print_json({{"schema", kJsonSchema},
                {"verb", "verify"},
                {"path", path.string()},
                {"ok", report.findings.empty()},
                {"fast", flags.fast},
                {"iteration", report.iteration},
                {"files", report.files},
                {"tensors", report.tensors},
                {"bytes", report.bytes},
                {"findings", std::move(findings)},
                {"notes", report.notes}});
  } else if (report.findings.empty()) {
    core::log_info("msckpt.verify",
                   cat(path.string(), ": ", report.files, " files, ", report.tensors, " tensors, ",
                       bytes_text(report.bytes), flags.fast ? ": sizes and manifest hold" : ": every hash holds"));
    print(path.string() + "\n");
  }
}

json differences_json(const std::vector<Difference>& differences) {
  json list = json::array();
  for (const Difference& difference : differences) {
    list.push_back(
        {{"tensor", difference.tensor}, {"role", core::role_name(difference.role)}, {"text", difference.text}});
  }
  return list;
}

// Whether two checkpoints of any formats and layouts hold the same.
bool holds_the_same(const Flags& flags, const std::string& path) {
  const auto source = open_source(path), other = open_source(flags.against);
  const auto differences = diff_sources(*source, *other, flags.drop_optimizer);
  for (const Difference& difference : differences) {
    core::log_error("msckpt.verify", cat(path, ": ", difference.tensor, " (", core::role_name(difference.role),
                                         "), against ", flags.against, ": ", difference.text));
  }
  if (flags.json) {
    print_json({{"schema", kJsonSchema},
                {"verb", "verify"},
                {"path", path},
                {"against", flags.against},
                {"ok", differences.empty()},
                {"tensors", source->shards().num_tensors()},
                {"differences", differences_json(differences)}});
  } else if (differences.empty()) {
    core::log_info("msckpt.verify",
                   cat(path, ": the same as ", flags.against, flags.drop_optimizer ? " in all weights" : ""));
    print(path + "\n");
  }
  return differences.empty();
}

}  // namespace

int run_verify(const Flags& flags) {
  bool damaged = false;
  const auto refuse = [](const char* text) { throw Error(ErrorCode::kInvalidArgument, text); };
  if (flags.against.empty() && flags.drop_optimizer) refuse("verify --drop-optimizer: of --against only");
  if (!flags.against.empty()) {
    if (flags.team != nullptr) refuse("verify --against: by one process, not under mpirun");
    if (flags.fast || flags.all)
      refuse("verify --against compares every value of one checkpoint: without --fast, --all");
    for (const std::string& path : core::expand_path_list(flags.paths, std::cin)) {
      damaged = !holds_the_same(flags, path) || damaged;
    }
    return damaged ? core::exit_code(ErrorCode::kCorruptData) : 0;
  }
  for (const std::string& given : agreed_list(flags, [&] { return core::expand_path_list(flags.paths, std::cin); })) {
    const auto list = [&] {
      std::vector<std::string> paths;
      for (const fs::path& path : generations_to_verify(given, flags.all)) paths.push_back(path.string());
      return paths;
    };
    for (const fs::path path : agreed_list(flags, list)) {
      VerifyOptions options;
      options.fast = flags.fast;
      options.threads = flags.threads;
      options.progress = progress_line("verify");
      options.stopped = interrupted;
      options.team = flags.team;
      const VerifyReport report = verify_generation(path, options);
      core::log_progress("");
      if (speaks(flags)) print_verified(flags, path, report);
      damaged = damaged || !report.findings.empty();
    }
  }
  return damaged ? core::exit_code(ErrorCode::kCorruptData) : 0;
}

int run_gc(const Flags& flags) {
  for (const std::string& root : core::expand_path_list(flags.paths, std::cin)) {
    const GcReport report = collect_garbage(root, {flags.retention, flags.dry_run});
    for (const std::string& note : report.notes) core::log_warning("msckpt.gc", note);
    json items = json::array();
    std::string text;
    int64_t freed = 0;
    for (const GcItem& item : report.items) {
      items.push_back({{"path", item.path.string()},
                       {"reason", item.reason},
                       {"bytes", item.bytes},
                       {"bytes_freed", item.bytes_freed}});
      text += item.path.string() + "\n";
      freed += item.bytes_freed;
    }
    core::log_info("msckpt.gc", cat(flags.dry_run ? "would remove " : "removed ", report.items.size(),
                                    report.items.size() == 1 ? " directory of " : " directories of ", root, ", ",
                                    bytes_text(freed), "; the newest whole one is ",
                                    report.newest.empty() ? "absent" : report.newest.filename().string()));
    if (flags.json) {
      print_json({{"schema", kJsonSchema},
                  {"verb", "gc"},
                  {"path", root},
                  {"dry_run", flags.dry_run},
                  {"newest", report.newest.string()},
                  {"bytes_freed", freed},
                  {"removed", std::move(items)},
                  {"notes", report.notes}});
    } else {
      print(text);
    }
  }
  return 0;
}

int run_diff(const Flags& flags) {
  const auto paths = core::expand_path_list(flags.paths, std::cin);
  if (paths.empty()) return 0;  // the link before failed and said why
  if (paths.size() != 2) throw Error(ErrorCode::kInvalidArgument, cat("diff wants two paths, not ", paths.size()));
  const auto a = open_source(paths[0]), b = open_source(paths[1]);
  const auto differences = diff_sources(*a, *b);
  std::string text;
  for (const Difference& difference : differences) {
    text += cat(difference.tensor, " (", core::role_name(difference.role), "): ", difference.text, "\n");
  }
  if (flags.json) {
    print_json({{"schema", kJsonSchema},
                {"verb", "diff"},
                {"paths", paths},
                {"equal", differences.empty()},
                {"differences", differences_json(differences)}});
  } else {
    print(text);
  }
  if (!differences.empty()) {
    core::log_info("msckpt.diff", cat(differences.size(), " tensors differ"));
    return core::kExitAnswerIsNo;
  }
  core::log_info("msckpt.diff", "the same tensors with the same values");
  return 0;
}

int run_plan(const Flags& flags) {
  const std::string load_dir = single_path(flags, flags.load_dir, "--load-dir");
  if (load_dir.empty()) return 0;
  const auto source = open_source(load_dir);
  const ReshardPlan plan = plan_reshard(*source, target_layout(flags, *source), reshard_options(flags));
  const auto& targets = plan.targets;
  plan_copies(source->shards(), targets.shards, [&](const CopyRegion& copy) {
    const core::ShardedTensor target = targets.shards[static_cast<size_t>(copy.target_shard)];
    const int rank = targets.ranks[static_cast<size_t>(copy.target_shard)];
    if (flags.json) {
      print_json({{"source", source->describe(copy.source_shard)},
                  {"source_offset", copy.source_offset},
                  {"rank", rank},
                  {"tensor", target.key},
                  {"role", core::role_name(target.role)},
                  {"target_offset", copy.target_offset},
                  {"extent", copy.extent}});
    } else {
      print(cat(source->describe(copy.source_shard), " ", copy.source_offset, " + ", copy.extent, " -> rank ", rank,
                " ", target.key, " (", core::role_name(target.role), ") ", copy.target_offset, "\n"));
    }
  });
  return 0;
}

namespace {

NativeSinkOptions sink_options(const Flags& flags, const ReshardPlan& plan, const char* producer) {
  NativeSinkOptions options;
  options.compress = flags.compress;
  options.write_path = core::parse_write_path(flags.write_path);
  options.root = flags.save_dir;
  options.rank_of_target = plan.targets.ranks;
  options.num_ranks = plan.layout.world_size();
  options.producer = producer;
  return options;
}

ExecuteOptions execute_options(const Flags& flags, const char* verb) {
  ExecuteOptions options;
  options.mem_bytes = flags.mem_mib << 20;
  options.threads = flags.threads;
  options.stopped = interrupted;
  options.progress = progress_line(verb);
  return options;
}

void print_dry_run(const Flags& flags, const char* verb, Source& source, const ReshardPlan& plan) {
  std::vector<int64_t> bytes_of_rank(static_cast<size_t>(plan.layout.world_size()));
  int64_t copies = 0, total = 0;
  plan_copies(source.shards(), plan.targets.shards, [&](const CopyRegion&) { ++copies; });
  for (size_t i = 0; i < plan.targets.shards.size(); ++i) {
    const int64_t bytes = plan.targets.shards.size_bytes(i);
    bytes_of_rank[static_cast<size_t>(plan.targets.ranks[i])] += bytes;
    total += bytes;
  }
  constexpr int64_t kProbeMiB = 48;  // of memory, a thread
  const int threads = static_cast<int>(std::clamp<int64_t>(flags.mem_mib / kProbeMiB, 1, flags.threads));
  const ProbeReport rates =
      probe(source, flags.save_dir, {threads, flags.compress, core::parse_write_path(flags.write_path)});
  const double seconds = rates.seconds_for(total);
  if (flags.json) {
    print_json({{"schema", kJsonSchema},
                {"verb", verb},
                {"dry_run", true},
                {"expected_seconds", seconds},
                {"read_bytes_per_s", rates.read_bytes_per_s},
                {"write_bytes_per_s", rates.write_bytes_per_s},
                {"layout", plan.info.layout},
                {"bytes", total},
                {"bytes_of_rank", bytes_of_rank},
                {"copies", copies},
                {"temporary_bytes", 0},
                {"memory_bytes", flags.mem_mib << 20},
                {"decisions", plan.decisions}});
    return;
  }
  std::string text = cat("would write ", bytes_text(total), " of tensors in ", copies,
                         " copies, no temporary space, at most ", flags.mem_mib, " MiB of memory\n");
  for (size_t rank = 0; rank < bytes_of_rank.size(); ++rank) {
    if (bytes_of_rank[rank] > 0) text += cat("  rank ", rank, ": ", bytes_text(bytes_of_rank[rank]), "\n");
  }
  for (const std::string& decision : plan.decisions) text += cat("  ", decision, "\n");
  const auto rate = [](double bytes_per_s) { return cat(bytes_text(static_cast<int64_t>(bytes_per_s)), "/s"); };
  text += cat("about ", seconds < 10 ? std::round(10 * seconds) / 10 : std::round(seconds), " s: a probe of ",
              bytes_text(rates.bytes_read), " was read at ", rate(rates.read_bytes_per_s));
  text += flags.save_dir.empty() ? " (with --save-dir one would be written, too)\n"
                                 : cat(" and written at ", rate(rates.write_bytes_per_s), "\n");
  print(text);
}

void refuse_to_write_into_the_source(const std::string& load_dir, const std::string& save_dir) {
  const auto same = [&](const fs::path& path) {
    std::error_code error;
    return !save_dir.empty() && fs::equivalent(path, save_dir, error) && !error;
  };
  const fs::path absolute = fs::absolute(fs::path(load_dir) / "").parent_path();
  if (same(absolute) || same(absolute.parent_path())) {
    throw Error(ErrorCode::kInvalidArgument, cat("--save-dir ", save_dir,
                                                 " holds what --load-dir reads: the new "
                                                 "layout would shadow it. Give another directory."));
  }
}

}  // namespace

int run_reshard(const Flags& flags) {
  const std::string load_dir = single_path(flags, flags.load_dir, "--load-dir");
  if (load_dir.empty()) return 0;
  std::unique_ptr<Source> source;
  ReshardPlan plan;
  std::string plan_hash;
  agree(flags, [&] {
    if (flags.save_dir.empty() && !flags.dry_run) {
      throw Error(ErrorCode::kInvalidArgument, "--save-dir is missing: where should the checkpoint go?");
    }
    source = open_source(load_dir);
    refuse_to_write_into_the_source(load_dir, flags.save_dir);
    plan = plan_reshard(*source, target_layout(flags, *source), reshard_options(flags));
    plan_hash = hash_of_plan(*source, plan, flags.compress);
    if (plan_hash.empty() && (flags.resume || flags.team != nullptr)) {
      throw Error(ErrorCode::kUnsupported, cat(load_dir,
                                               ": without logical hashes in it a reshard can neither be resumed nor "
                                               "be made by several processes"));
    }
  });
  if (flags.dry_run) {
    if (speaks(flags)) print_dry_run(flags, "reshard", *source, plan);
    return 0;
  }
  for (const std::string& decision : plan.decisions) core::log_info("msckpt.reshard", decision);
  NativeSinkOptions to = sink_options(flags, plan, "msckpt");
  to.expected_logical_xxh3 = hashes_to_keep(*source);
  to.plan_hash = std::move(plan_hash);
  to.team = flags.team;
  to.resume = flags.resume;
  const auto sink = make_native_sink(std::move(to));
  const ExecuteReport report =
      execute(*source, *sink, plan.info, plan.targets.shards, execute_options(flags, "reshard"));
  if (!speaks(flags)) return 0;
  core::log_info("msckpt.reshard",
                 cat(bytes_text(report.bytes), " in ", report.copies, " copies, ", report.seconds, " s (",
                     bytes_text(static_cast<int64_t>(static_cast<double>(report.bytes) / report.seconds)), "/s)"));
  if (flags.json) {
    print_json({{"schema", kJsonSchema},
                {"verb", "reshard"},
                {"path", report.path.string()},
                {"bytes", report.bytes},
                {"copies", report.copies},
                {"seconds", report.seconds}});
  } else {
    print(report.path.string() + "\n");
  }
  return 0;
}

// Parameters alone: moments have no average.
int run_merge(const Flags& flags) {
  const auto paths = core::expand_path_list(flags.paths, std::cin);
  if (paths.empty()) return 0;
  if (flags.save_dir.empty() && !flags.dry_run) {
    throw Error(ErrorCode::kInvalidArgument, "--save-dir is missing: where should the checkpoint go?");
  }
  std::vector<std::unique_ptr<Source>> sources;
  json merged = json::array();
  std::vector<double> weights = flags.weights;
  if (weights.empty()) weights.assign(paths.size(), 1);
  for (size_t i = 0; i < paths.size(); ++i) {
    sources.push_back(open_source(paths[i]));
    refuse_to_write_into_the_source(paths[i], flags.save_dir);
    merged.push_back({{"path", paths[i]},
                      {"iteration", sources.back()->info().iteration},
                      {"weight", i < weights.size() ? weights[i] : 0}});
  }
  const auto source = merge_sources(std::move(sources), weights);
  ReshardOptions reshard = reshard_options(flags);
  reshard.drop_optimizer = true;
  ReshardPlan plan = plan_reshard(*source, target_layout(flags, *source), reshard);
  plan.info.model_extra["merged_from"] = merged;
  if (flags.dry_run) {
    print_dry_run(flags, "merge", *source, plan);
    return 0;
  }
  const auto sink = make_native_sink(sink_options(flags, plan, "msckpt merge"));
  const ExecuteReport report = execute(*source, *sink, plan.info, plan.targets.shards, execute_options(flags, "merge"));
  core::log_info("msckpt.merge", cat(paths.size(), " checkpoints: ", bytes_text(report.bytes), " of parameters"));
  if (flags.json) {
    print_json({{"schema", kJsonSchema},
                {"verb", "merge"},
                {"path", report.path.string()},
                {"bytes", report.bytes},
                {"merged_from", std::move(merged)}});
  } else {
    print(report.path.string() + "\n");
  }
  return 0;
}

int run_families(const Flags& flags) {
  nlohmann::json list = nlohmann::json::array();
  std::string table;
  for (const convert::Family* family : convert::families()) {
    list.push_back(
        {{"model_type", family->model_type}, {"architecture", family->architecture}, {"about", family->about}});
    const std::string name(family->model_type);
    table += cat(name, std::string(name.size() < 14 ? 14 - name.size() : 1, ' '), family->about, "\n");
  }
  if (flags.json) {
    print_json({{"schema", "msckpt/1"}, {"verb", "families"}, {"families", list}});
  } else {
    print(table);
  }
  return 0;
}

int run_convert(const Flags& flags) {
  namespace convert = ms::convert;
  convert::ConvertOptions options;
  options.load_dir = single_path(flags, flags.load_dir, "--load-dir");
  if (options.load_dir.empty()) return 0;
  if (flags.save_dir.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "--save-dir is missing: where should the checkpoint go?");
  }
  options.save_dir = flags.save_dir;
  options.compress = flags.compress;
  options.write_path = core::parse_write_path(flags.write_path);
  if (!flags.load_model_type.empty()) {
    options.load_model_type = convert::parse_format(flags.load_model_type, "--load-model-type");
  }
  if (!flags.save_model_type.empty()) {
    options.save_model_type = convert::parse_format(flags.save_model_type, "--save-model-type");
  }
  options.target_tensor_parallel_size = flags.target.tensor_model_parallel_size;
  options.target_pipeline_parallel_size = flags.target.pipeline_model_parallel_size;
  options.target_data_parallel_size = flags.target.data_parallel_size;
  options.num_layers_per_virtual_pipeline_stage = flags.num_layers_per_virtual_pipeline_stage;
  options.q8_0 = flags.dtype == "q8_0";
  if (!flags.dtype.empty() && !options.q8_0) options.dtype = convert::parse_weight_dtype(flags.dtype, "--dtype");
  options.lora = flags.lora;
  options.num_layer_list = flags.target.num_layer_list;
  options.target_expert_parallel_size = flags.target.expert_model_parallel_size;
  options.expert_tensor_parallel_size = flags.expert_tensor_parallel_size;
  options.max_shard_size_bytes = convert::parse_size_bytes(flags.max_shard_size, "--max-shard-size");
  options.true_vocab_size = flags.true_vocab_size;
  if (!flags.target_norm_naming.empty()) {
    options.target_norm_naming = convert::parse_norm_naming(flags.target_norm_naming, "--target-norm-naming");
  }
  if (!flags.mg_args.empty()) options.mg_args = convert::parse_args_form(flags.mg_args, "--mg-args");
  options.moe_tp_extend_ep = flags.moe_tp_extend_ep;
  options.moe_grouped_gemm = flags.moe_grouped_gemm;
  options.use_distributed_optimizer = flags.use_distributed_optimizer;
  options.make_vocab_size_divisible_by = flags.make_vocab_size_divisible_by;
  options.extras = flags.extras;
  std::sort(options.extras.noop_layers.begin(), options.extras.noop_layers.end());
  options.claims = flags.claims;
  options.script_flags = flags.script_flags;
  options.claims.add_qkv_bias = std::count(flags.script_flags.begin(), flags.script_flags.end(), "--add-qkv-bias") > 0;
  options.hf_cfg_dir = flags.hf_cfg_dir;
  options.name_map = flags.name_map;
  options.drop_optimizer = flags.drop_optimizer;
  options.dry_run = flags.dry_run;
  options.execute = execute_options(flags, "convert");
  const convert::ConvertReport report = convert::convert_checkpoint(options);
  core::log_progress("");
  core::log_info("msckpt.convert",
                 cat(options.load_dir, " is ", convert::format_name(report.from), " (", report.detected_by, ")"));
  for (const std::string& decision : report.decisions) core::log_info("msckpt.convert", decision);
  core::log_info("msckpt.convert", cat(flags.dry_run ? "would write " : "", report.tensors, " tensors, ",
                                       bytes_text(report.bytes), " as ", convert::format_name(report.to)));
  if (flags.json) {
    print_json(convert::to_json(report));
  } else {
    print(report.path + "\n");
  }
  return 0;
}

}  // namespace ms::tools::msckpt
