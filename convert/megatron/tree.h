// Finds and opens the folders and files of a Megatron checkpoint of --ckpt-format torch, which MindSpeed-LLM uses too:
//
//   ROOT/latest_checkpointed_iteration.txt      an iteration, or "release"
//   ROOT/iter_0000100/mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt, distrib_optim.pt
//
// Source: megatron/training/checkpointing.py (get_checkpoint_name). The ranks that must exist follow from `args`; the
// tracker is not trusted.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convert/megatron/args.h"
#include "convert/torch/torch_file.h"

namespace ms::convert {

// Returns the name of a rank's folder: "mp_rank_01_003", with one stage "mp_rank_01", with experts spread over
// expert-parallel ranks "mp_rank_01_003_002".
std::string megatron_rank_folder(int tp, int pp, int pp_size, int ep = 0, int ep_size = 1);

// How the ranks of a stage share its experts.
struct ExpertGrid {
  int tp = 1, ep = 1, etp = 1;
  bool tp_extends_ep = false;  // MindSpeed's --moe-tp-extend-ep: experts are not cut, but spread over tp within ep

  // Number of equal runs of experts, and the index of a rank's run.
  int blocks() const { return tp_extends_ep ? ep * tp : ep; }
  int block_of(int tp_rank, int ep_rank) const { return tp_extends_ep ? ep_rank * tp + tp_rank : ep_rank; }
  // Number of ranks that share an expert, and the index of a rank among them.
  int cuts() const { return tp_extends_ep ? 1 : etp; }
  int cut_of(int tp_rank) const { return tp_rank % cuts(); }
  // Whether a rank stores the state of its distributed optimizer (of experts, or of other parameters): the first of the
  // ranks that share it does.
  bool keeps_optimizer(int tp_rank, int ep_rank, bool of_experts) const;
  // Returns the (tp, ep) pairs that have a rank, ep slowest. If etp differs from tp some pairs have none.
  std::vector<std::pair<int, int>> ranks() const;
};
inline constexpr const char* kMegatronModelFile = "model_optim_rng.pt";
inline constexpr const char* kMegatronOptimizerFile = "distrib_optim.pt";

struct MegatronRank {
  int tp = 0, pp = 0, ep = 0;
  std::unique_ptr<TorchFile> file;  // model_optim_rng.pt
  std::unique_ptr<MegatronArgs> args;
  std::string distributed_optimizer;  // path of distrib_optim.pt; empty: absent
  // Returns a member of the file's dictionary; nullopt if it is absent or None.
  std::optional<PickleValue> find(std::string_view key) const;
};

struct MegatronTree {
  std::filesystem::path folder;  // of the iteration
  int tp = 1, pp = 1, vpp = 1;
  PipelineExtras extras;
  ExpertGrid experts;
  std::vector<MegatronRank> ranks;  // stage by stage, each in the order of experts.ranks()

  size_t ranks_of_stage() const { return ranks.size() / static_cast<size_t>(pp); }
};

// Returns the entry that identifies such a tree: "mp_rank_00_000", "iter_0000100/mp_rank_00"; empty if there is none.
std::string megatron_sign(const std::filesystem::path& folder);

// path: a root, or the folder of one iteration. In a root: the iteration that the tracker names, without a tracker the
// newest. asked: MindSpeed-LLM's pipeline options, used if args lack them. Throws kNotFound; kInvalidArgument if args
// contradict `asked`; kCorruptData if ranks are missing, superfluous or contradict each other, naming the newest
// complete iteration in the same root; what TorchFile throws.
MegatronTree open_megatron_tree(const std::filesystem::path& path, const PipelineExtras& asked = {});

}  // namespace ms::convert
