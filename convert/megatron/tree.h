// The folders and files of a Megatron checkpoint of --ckpt-format torch, which is MindSpeed-LLM's too:
//
//   ROOT/latest_checkpointed_iteration.txt      an iteration, or "release"
//   ROOT/iter_0000100/mp_rank_TT[_PPP]/model_optim_rng.pt, distrib_optim.pt
//
// Source: megatron/training/checkpointing.py (get_checkpoint_name). Which ranks there must be is what `args` say; the
// tracker is not trusted.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "convert/megatron/args.h"
#include "convert/torch/torch_file.h"

namespace ms::convert {

// Of a rank's folder in that of the iteration: "mp_rank_01_003", of one stage "mp_rank_01".
std::string megatron_rank_folder(int tp, int pp, int pp_size);
inline constexpr const char* kMegatronModelFile = "model_optim_rng.pt";
inline constexpr const char* kMegatronOptimizerFile = "distrib_optim.pt";

struct MegatronRank {
  int tp = 0, pp = 0;
  std::unique_ptr<TorchFile> file;  // model_optim_rng.pt
  std::unique_ptr<MegatronArgs> args;
  std::string distributed_optimizer;  // path of distrib_optim.pt; empty: there is none
  // A member of the file's dictionary; nothing if it is absent or None.
  std::optional<PickleValue> find(std::string_view key) const;
};

struct MegatronTree {
  std::filesystem::path folder;  // of the iteration
  int tp = 1, pp = 1, vpp = 1;
  std::vector<MegatronRank> ranks;  // tp fastest
};

// What in a folder says that it is such a tree: "mp_rank_00_000", "iter_0000100/mp_rank_00"; empty if nothing does.
std::string megatron_sign(const std::filesystem::path& folder);

// path: a root, or the folder of one iteration. Of a root the iteration that the tracker names, without one the newest.
// Throws kNotFound; kCorruptData if ranks are missing, too many or contradict each other, naming the newest iteration
// beside it that is complete; kUnsupported for expert parallelism; what TorchFile throws.
MegatronTree open_megatron_tree(const std::filesystem::path& path);

}  // namespace ms::convert
