// Reads DeepSpeed's model states and gathers the tensors of the model: the common part of reading ZeRO partitions and
// universal checkpoints.
//
// Source: deepspeed/runtime/engine.py (_common_checkpoint_state, _get_zero_param_shapes, _get_shared_params).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/source.h"
#include "convert/deepspeed/files.h"
#include "convert/huggingface_config.h"
#include "convert/mapped_source.h"
#include "convert/torch/torch_pieces.h"

namespace ms::convert {

// Adam's moments and DeepSpeed's names for them.
struct DeepSpeedMoment {
  const char* name;
  core::TensorRole role;
};
inline constexpr DeepSpeedMoment kDeepSpeedMoments[] = {{"exp_avg", core::TensorRole::kExpAvg},
                                                        {"exp_avg_sq", core::TensorRole::kExpAvgSq}};

class DeepSpeedModel {
 public:
  struct Weight {
    std::string name;  // the family's, or the checkpoint's own
    std::vector<uint64_t> shape;
    uint64_t elements = 0;
  };

  // Reads the model states; `decisions` is kept and appended to. config: nullopt makes a source without a family, under
  // the checkpoint's own names. Throws what open_deepspeed does.
  DeepSpeedModel(DeepSpeedFiles files, std::optional<HfConfig> config, std::vector<std::string>& decisions);

  const DeepSpeedFiles& files() const { return files_; }
  const std::string& where() const { return where_; }
  // The optimizer's parameters, by group, in the order in which ZeRO flattens them.
  const std::vector<std::vector<Weight>>& trained() const { return trained_; }
  // Returns true if the model states contain the weights: these are the params then, and the fp32 ones their masters.
  bool has_weights() const { return has_weights_; }
  // The model states contain optimizer state that is not ZeRO's.
  bool has_other_optimizer() const { return has_other_optimizer_; }
  std::string name_of(std::string_view key) const;  // the family's name for a name in the checkpoint

  TorchPieces& pieces() { return *pieces_; }
  ckpt::CheckpointInfo& info() { return info_; }
  void say(std::string decision) { decisions_.push_back(std::move(decision)); }

  // Adds the fp32 values of a weight: its master, or, if the model states lack the weight, the weight itself. Throws
  // kCorruptData if the master does not round to the weight at both ends: then it is misplaced or from another step.
  void add_fp32(const Weight& weight, std::vector<TorchPieces::Run> runs);
  void add(core::TensorRole role, const Weight& weight, std::vector<TorchPieces::Run> runs);
  // Throws kUnsupported if a weight of the model has no tensor of this role, such as a frozen one.
  void require_all(core::TensorRole role) const;
  void drop(core::TensorRole role) { tables_.erase(role); }
  // Adds the settings of param_groups of `file`, whose params count the groups of trained(). step: used if groups have
  // none.
  void add_groups(const TorchFile& file, PickleValue groups, std::optional<int64_t> step);

  std::unique_ptr<ckpt::Source> source() &&;

 private:
  void read(const TorchFile& file);
  void read_shapes(const TorchFile& file);
  void read_frozen();
  void read_module(const TorchFile& file, PickleValue module);
  void read_scheduler(const TorchFile& file);
  std::vector<Weight> named_shapes(PickleValue dict, const std::string& where) const;
  bool rounds_to_weight(const Weight& weight, size_t fp32, size_t stored) const;

  DeepSpeedFiles files_;
  std::string where_;
  std::optional<HfConfig> config_;
  std::vector<std::string>& decisions_;
  std::unique_ptr<TorchPieces> pieces_;
  ckpt::CheckpointInfo info_;
  std::string prefix_;  // of names
  std::vector<std::vector<Weight>> trained_;
  std::vector<std::pair<std::string, std::string>> shared_;  // (alias of a weight, its name)
  bool has_weights_ = false, has_other_optimizer_ = false;
  std::map<core::TensorRole, NamedTensors::Table> tables_;
};

// Returns a member of a dictionary. Throws kCorruptData if it does not exist.
PickleValue deepspeed_member(const TorchFile& file, PickleValue dict, std::string_view key);

}  // namespace ms::convert
