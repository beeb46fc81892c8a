#include "convert/megatron/tree.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <set>

#include "convert/detail/printable.h"
#include "convert/megatron/iterations.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/log.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

// The second name is from 2022, when the distributed optimizer had separate files for each data-parallel rank.
constexpr const char* kModelFiles[] = {kMegatronModelFile, "model_rng.pt"};

bool holds_ranks(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with("mp_rank_") && entry->is_directory(error)) return true;
  }
  return false;
}

std::string model_file(const fs::path& folder) {
  for (const char* name : kModelFiles) {
    if (fs::exists(folder / name)) return (folder / name).string();
  }
  return "";
}

MegatronRank open_rank(const fs::path& folder, int tp, int pp, int ep) {
  MegatronRank rank;
  rank.tp = tp;
  rank.pp = pp;
  rank.ep = ep;
  const std::string path = model_file(folder);
  if (path.empty()) {
    throw Error(ErrorCode::kCorruptData, cat((folder / kModelFiles[0]).string(), " is missing"));
  }
  rank.file = std::make_unique<TorchFile>(path);
  const auto args = rank.find("args");
  if (!args) {
    throw Error(ErrorCode::kUnsupported, cat(path, ": no args, which describe the model, so it cannot be read"));
  }
  rank.args = std::make_unique<MegatronArgs>(*args, path);
  if (const fs::path state = folder / kMegatronOptimizerFile; fs::exists(state))
    rank.distributed_optimizer = state.string();
  return rank;
}

// `asked` applies if args have no value.
PipelineExtras extras_of(const MegatronArgs& args, const PipelineExtras& asked) {
  PipelineExtras extras = pipeline_extras(args);
  const auto& layers = extras.noop_layers;
  if (!layers.empty() && !asked.noop_layers.empty() && layers != asked.noop_layers) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("--noop-layers ", asked.noop_layers, ", but ", args.where(), ": args.noop_layers is ", layers));
  }
  if (layers.empty()) extras.noop_layers = asked.noop_layers;
  extras.dualpipev = extras.dualpipev || asked.dualpipev;
  return extras;
}

// MindSpeed-LLM's converter stores only the number of layers per chunk.
int chunks_of_stage(const MegatronArgs& args, int pp, const PipelineExtras& extras) {
  if (extras.dualpipev) return 2;
  const int64_t each = args.integer("num_layers_per_virtual_pipeline_stage").value_or(0);
  if (args.is_set("virtual_pipeline_model_parallel_size") || each == 0) {
    return args.size("virtual_pipeline_model_parallel_size");
  }
  const int64_t layers = args.integer("num_layers").value_or(0);
  if (each < 0 || layers < 1 || layers > 1 << 20 || each > layers || layers % (each * pp) != 0) {
    throw Error(ErrorCode::kCorruptData, cat(args.where(), ": args.num_layers_per_virtual_pipeline_stage ", each,
                                             " does not divide args.num_layers ", layers, " on ", pp, " stages"));
  }
  return static_cast<int>(layers / (each * pp));
}

MegatronTree open_iteration(const fs::path& folder, const PipelineExtras& asked) {
  core::confine_reads(folder.string());
  if (!holds_ranks(folder)) {
    throw Error(ErrorCode::kCorruptData, cat(folder.string(), ": contains no mp_rank_* folder"));
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with("mp_rank_") && !model_file(entry.path()).empty()) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) throw Error(ErrorCode::kCorruptData, cat(folder.string(), ": no ", kModelFiles[0], " in it"));
  MegatronTree tree;
  tree.folder = folder;
  const MegatronRank first = open_rank(folder / names[0], 0, 0, 0);
  const MegatronArgs& args = *first.args;
  tree.tp = args.size("tensor_model_parallel_size");
  tree.pp = args.size("pipeline_model_parallel_size");
  tree.extras = extras_of(args, asked);
  tree.vpp = chunks_of_stage(args, tree.pp, tree.extras);
  tree.experts = {tree.tp, args.size("expert_model_parallel_size"), tree.tp, args.flag("moe_tp_extend_ep")};
  if (args.is_set("expert_tensor_parallel_size")) tree.experts.etp = args.size("expert_tensor_parallel_size");
  if (tree.tp % tree.experts.etp != 0) {
    throw Error(ErrorCode::kUnsupported, cat(args.where(), ": args.expert_tensor_parallel_size ", tree.experts.etp,
                                             " does not divide args.tensor_model_parallel_size ", tree.tp));
  }
  if (int64_t{tree.tp} * tree.experts.ep > 1 << 20) {
    throw Error(ErrorCode::kCorruptData,
                cat(args.where(), ": args.tensor_model_parallel_size ", tree.tp,
                    " and args.expert_model_parallel_size ", tree.experts.ep, " are too many ranks per stage"));
  }
  const std::string of_experts = tree.experts.ep == 1 ? "" : cat(" and expert_model_parallel_size ", tree.experts.ep);
  const std::string sizes = cat("args of ", names[0], " say tensor_model_parallel_size ", tree.tp,
                                " and pipeline_model_parallel_size ", tree.pp, of_experts);
  const std::vector<std::pair<int, int>> places = tree.experts.ranks();
  for (int pp = 0; pp < tree.pp; ++pp) {
    for (const auto& [tp, ep] : places) {
      const std::string name = megatron_rank_folder(tp, pp, tree.pp, ep, tree.experts.ep);
      if (!fs::exists(folder / name)) {
        throw Error(ErrorCode::kCorruptData, cat((folder / name).string(), " is missing: ", sizes));
      }
      names.erase(std::remove(names.begin(), names.end(), name), names.end());
    }
  }
  if (!names.empty()) {
    throw Error(ErrorCode::kCorruptData, cat((folder / names[0]).string(), " exists, but ", sizes));
  }
  for (int pp = 0; pp < tree.pp; ++pp) {
    for (const auto& [tp, ep] : places) {
      tree.ranks.push_back(open_rank(folder / megatron_rank_folder(tp, pp, tree.pp, ep, tree.experts.ep), tp, pp, ep));
      const MegatronArgs& own = *tree.ranks.back().args;
      for (const char* name :
           {"tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
            "expert_model_parallel_size", "expert_tensor_parallel_size", "num_layers", "hidden_size", "iteration"}) {
        if (own.integer(name) == args.integer(name)) continue;
        throw Error(ErrorCode::kCorruptData,
                    cat(own.where(), ": args.", name, " is ", own.integer(name).value_or(0), " but ", args.where(),
                        " says ", args.integer(name).value_or(0), ": they are from different runs"));
      }
    }
  }
  return tree;
}

}  // namespace

std::string megatron_rank_folder(int tp, int pp, int pp_size, int ep, int ep_size) {
  const auto field = [](const char* format, int value) {
    char text[32];
    std::snprintf(text, sizeof text, format, value);
    return std::string(text);
  };
  return cat(field("mp_rank_%02d", tp), pp_size > 1 ? field("_%03d", pp) : "", ep_size > 1 ? field("_%03d", ep) : "");
}

bool ExpertGrid::keeps_optimizer(int tp_rank, int ep_rank, bool of_experts) const {
  if (tp_extends_ep) return of_experts || ep_rank == 0;
  int64_t rank = tp_rank;  // in the stage, counted as in ranks()
  while (rank / etp % ep != ep_rank) rank += tp;
  return rank < (of_experts ? int64_t{etp} * ep : tp);
}

std::vector<std::pair<int, int>> ExpertGrid::ranks() const {
  std::set<std::pair<int, int>> places;  // (ep, tp)
  // megatron/core/parallel_state.py: tp varies fastest among the ranks of a stage; in the experts' own grid etp, then
  // ep.
  const int64_t all = tp_extends_ep ? int64_t{tp} * ep : std::lcm(int64_t{tp}, int64_t{etp} * ep);
  for (int64_t rank = 0; rank < all; ++rank) {
    places.emplace(tp_extends_ep ? rank / tp : rank / etp % ep, rank % tp);
  }
  std::vector<std::pair<int, int>> in_order;
  for (const auto& [ep_rank, tp_rank] : places) in_order.emplace_back(tp_rank, ep_rank);
  return in_order;
}

std::optional<PickleValue> MegatronRank::find(std::string_view key) const {
  const PickleValue root = file->root();
  if (!root.is(PickleKind::kDict)) {
    throw Error(ErrorCode::kCorruptData, cat(file->where(), ": not a dictionary, so not a Megatron checkpoint"));
  }
  return root.find(key);
}

std::string megatron_sign(const fs::path& folder) {
  const auto first_rank = [](const fs::path& inside) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(inside)) {
      if (entry.path().filename().string().starts_with("mp_rank_")) names.push_back(entry.path().filename().string());
    }
    return *std::min_element(names.begin(), names.end());
  };
  if (holds_ranks(folder)) return first_rank(folder);
  const std::vector<fs::path> folders = megatron_iterations(folder, holds_ranks);
  if (folders.empty()) return "";
  return cat(folders[0].filename().string(), "/", first_rank(folders[0]));
}

MegatronTree open_megatron_tree(const fs::path& path, const PipelineExtras& asked) {
  const bool is_iteration = holds_ranks(path);
  const fs::path chosen = is_iteration ? path : choose_megatron_iteration(path, holds_ranks);
  try {
    return open_iteration(chosen, asked);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData) throw;
    const fs::path whole = fs::weakly_canonical(chosen);
    std::string why = error.what();
    if (!is_iteration && fs::exists(path / kMegatronTracker))
      why = cat(kMegatronTracker, " names ", whole.filename().string(), ": ", why);
    for (const fs::path& other : megatron_iterations(whole.parent_path(), holds_ranks)) {
      if (other.filename() == whole.filename()) continue;
      try {
        open_iteration(other, asked);
      } catch (const Error&) {  // cannot be read either
        continue;
      }
      throw Error(error.code(), cat(why, ". The newest complete one is ", other.string(), ": give that"));
    }
    throw Error(error.code(), why);
  }
}

}  // namespace ms::convert
