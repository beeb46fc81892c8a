#include "convert/megatron/tree.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "convert/detail/printable.h"
#include "convert/megatron/iterations.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

// The second is of 2022, when the distributed optimizer had files of its own for each data-parallel rank.
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

MegatronRank open_rank(const fs::path& folder, int tp, int pp) {
  MegatronRank rank;
  rank.tp = tp;
  rank.pp = pp;
  const std::string path = model_file(folder);
  if (path.empty()) {
    throw Error(ErrorCode::kCorruptData, cat((folder / kModelFiles[0]).string(), " is missing"));
  }
  rank.file = std::make_unique<TorchFile>(path);
  const auto args = rank.find("args");
  if (!args) {
    throw Error(ErrorCode::kUnsupported,
                cat(path, ": no args in it; what shape the model has is only said there, so it cannot be read"));
  }
  rank.args = std::make_unique<MegatronArgs>(*args, path);
  if (const fs::path state = folder / kMegatronOptimizerFile; fs::exists(state))
    rank.distributed_optimizer = state.string();
  return rank;
}

MegatronTree open_iteration(const fs::path& folder) {
  if (!holds_ranks(folder)) {
    throw Error(ErrorCode::kCorruptData, cat(folder.string(), ": no mp_rank_* folder in it"));
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
  const MegatronRank first = open_rank(folder / names[0], 0, 0);
  const MegatronArgs& args = *first.args;
  if (args.size("expert_model_parallel_size") != 1) {
    throw Error(ErrorCode::kUnsupported,
                cat(args.where(), ": args.expert_model_parallel_size is ", args.size("expert_model_parallel_size"),
                    ": expert parallelism is not supported yet"));
  }
  tree.tp = args.size("tensor_model_parallel_size");
  tree.pp = args.size("pipeline_model_parallel_size");
  tree.vpp = args.size("virtual_pipeline_model_parallel_size");
  const std::string sizes = cat("args of ", names[0], " say tensor_model_parallel_size ", tree.tp,
                                " and pipeline_model_parallel_size ", tree.pp);
  for (int pp = 0; pp < tree.pp; ++pp) {
    for (int tp = 0; tp < tree.tp; ++tp) {
      const std::string name = megatron_rank_folder(tp, pp, tree.pp);
      if (!fs::exists(folder / name)) {
        throw Error(ErrorCode::kCorruptData, cat((folder / name).string(), " is missing: ", sizes));
      }
      names.erase(std::remove(names.begin(), names.end(), name), names.end());
    }
  }
  if (!names.empty()) {
    throw Error(ErrorCode::kCorruptData, cat((folder / names[0]).string(), " is there, but ", sizes));
  }
  for (int pp = 0; pp < tree.pp; ++pp) {
    for (int tp = 0; tp < tree.tp; ++tp) {
      tree.ranks.push_back(open_rank(folder / megatron_rank_folder(tp, pp, tree.pp), tp, pp));
      const MegatronArgs& own = *tree.ranks.back().args;
      for (const char* name : {"tensor_model_parallel_size", "pipeline_model_parallel_size",
                               "virtual_pipeline_model_parallel_size", "num_layers", "hidden_size", "iteration"}) {
        if (own.integer(name) == args.integer(name)) continue;
        throw Error(ErrorCode::kCorruptData,
                    cat(own.where(), ": args.", name, " is ", own.integer(name).value_or(0), " but ", args.where(),
                        " says ", args.integer(name).value_or(0), ": they are of different runs"));
      }
    }
  }
  return tree;
}

}  // namespace

std::string megatron_rank_folder(int tp, int pp, int pp_size) {
  char name[64];
  if (pp_size > 1) {
    std::snprintf(name, sizeof name, "mp_rank_%02d_%03d", tp, pp);
  } else {
    std::snprintf(name, sizeof name, "mp_rank_%02d", tp);
  }
  return name;
}

std::optional<PickleValue> MegatronRank::find(std::string_view key) const {
  const PickleValue root = file->root();
  if (!root.is(PickleKind::kDict)) {
    throw Error(ErrorCode::kCorruptData, cat(file->where(), ": not a dictionary, so not a checkpoint of Megatron"));
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

MegatronTree open_megatron_tree(const fs::path& path) {
  const bool is_iteration = holds_ranks(path);
  const fs::path chosen = is_iteration ? path : choose_megatron_iteration(path, holds_ranks);
  try {
    return open_iteration(chosen);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData) throw;
    const fs::path whole = fs::weakly_canonical(chosen);
    std::string why = error.what();
    if (!is_iteration && fs::exists(path / kMegatronTracker))
      why = cat(kMegatronTracker, " names ", whole.filename().string(), ": ", why);
    for (const fs::path& other : megatron_iterations(whole.parent_path(), holds_ranks)) {
      if (other.filename() == whole.filename()) continue;
      try {
        open_iteration(other);
      } catch (const Error&) {  // no help either
        continue;
      }
      throw Error(error.code(), cat(why, ". The newest complete one is ", other.string(), ": give that"));
    }
    throw Error(error.code(), why);
  }
}

}  // namespace ms::convert
