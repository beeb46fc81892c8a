// The folders and files of a Megatron checkpoint of --ckpt-format torch, which is MindSpeed-LLM's too:
//
//   ROOT/latest_checkpointed_iteration.txt      an iteration, or "release"
//   ROOT/iter_0000100/mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt, distrib_optim.pt
//
// Source: megatron/training/checkpointing.py (get_checkpoint_name). Which ranks there must be is what `args` say; the
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

// Of a rank's folder in that of the iteration: "mp_rank_01_003", of one stage "mp_rank_01"; with experts spread over
// expert-parallel ranks "mp_rank_01_003_002".
std::string megatron_rank_folder(int tp, int pp, int pp_size, int ep = 0, int ep_size = 1);

// How the ranks of a stage share its experts.
struct ExpertGrid {
  int tp = 1, ep = 1, etp = 1;
  bool tp_extends_ep = false;  // MindSpeed's --moe-tp-extend-ep: whole experts, spread over tp within ep

  // Equal runs of experts, and which of them a rank has.
  int blocks() const { return tp_extends_ep ? ep * tp : ep; }
  int block_of(int tp_rank, int ep_rank) const { return tp_extends_ep ? ep_rank * tp + tp_rank : ep_rank; }
  // How many share an expert, and which of them a rank is.
  int cuts() const { return tp_extends_ep ? 1 : etp; }
  int cut_of(int tp_rank) const { return tp_rank % cuts(); }
  // Whether a rank writes the state of its distributed optimizer, that of experts or the other: the first of those that
  // share it.
  bool keeps_optimizer(int tp_rank, int ep_rank, bool of_experts) const;
  // The pairs (tp, ep) of the ranks that there are, ep slowest. With an etp other than tp not all are.
  std::vector<std::pair<int, int>> ranks() const;
};
inline constexpr const char* kMegatronModelFile = "model_optim_rng.pt";
inline constexpr const char* kMegatronOptimizerFile = "distrib_optim.pt";

struct MegatronRank {
  int tp = 0, pp = 0, ep = 0;
  std::unique_ptr<TorchFile> file;  // model_optim_rng.pt
  std::unique_ptr<MegatronArgs> args;
  std::string distributed_optimizer;  // path of distrib_optim.pt; empty: there is none
  // A member of the file's dictionary; nothing if it is absent or None.
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

// What in a folder says that it is such a tree: "mp_rank_00_000", "iter_0000100/mp_rank_00"; empty if nothing does.
std::string megatron_sign(const std::filesystem::path& folder);

// path: a root, or the folder of one iteration. Of a root the iteration that the tracker names, without one the newest.
// asked: what MindSpeed-LLM's pipeline was, for args that do not say so. Throws kNotFound; kInvalidArgument if they say
// otherwise than asked; kCorruptData if ranks are missing, too many or contradict each other, naming the newest
// iteration beside it that is complete; what TorchFile throws.
MegatronTree open_megatron_tree(const std::filesystem::path& path, const PipelineExtras& asked = {});

}  // namespace ms::convert
