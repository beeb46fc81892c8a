// Plans what the ranks of one pipeline stage hold in a Megatron tree to be written: parameters under Megatron's names,
// in registration order, and the position of each one's weight and optimizer state in the rank's files.
//
// The ranks of a stage differ only in their elements and their experts (MegatronModel::spec_on_rank), so they share one
// plan. Sources: as tree.h and optimizer_order.h; for what is stored, megatron/core/optimizer/{optimizer,
// distrib_optimizer}.py.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convert/megatron/flat_layout.h"
#include "convert/megatron/model.h"
#include "convert/megatron/names.h"
#include "convert/megatron/optimizer_order.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

// Where the optimizer state is stored.
enum class MegatronOptimizerForm : uint8_t {
  kNone,
  kByPosition,   // mixed-precision (or fp32) optimizer: in model_optim_rng.pt
  kDistributed,  // in distrib_optim.pt
};

// The rank's part of a parameter (its boxes by core/layout/tensor_cut.h, concatenated) fills elements of a storage.
struct StageTensor {
  const MegatronParameter* parameter = nullptr;
  core::TensorRole role = core::TensorRole::kParam;
  core::DType dtype = core::DType::kFp32;
  size_t storage = 0;
  int64_t first = 0;
  int64_t transposed_columns = 0;  // columns of the stored matrix, which holds the part transposed; 0: not transposed
};

struct StageFile {
  std::vector<int64_t> storage_bytes;
  std::vector<std::pair<size_t, std::string>> contents;  // of storages that no tensor fills
  std::vector<StageTensor> tensors;
};

struct StagePlan {
  // An entry of a chunk's dictionary, with a storage of its own.
  struct Entry {
    std::string name;
    SafetensorsDType dtype = SafetensorsDType::kF32;
    core::Dims shape;
    size_t storage = 0;
  };
  // State of a parameter with MegatronOptimizerForm::kByPosition: storages in the model's file.
  struct PositionState {
    const MegatronParameter* parameter = nullptr;
    std::optional<size_t> master;  // nullopt: the weight is fp32, and its own master
    size_t exp_avg = 0, exp_avg_sq = 0, step = 0;
  };
  // State of a buffer with kDistributed: storages in Optimizer::file, in the order of kOptimizerKinds.
  struct BufferState {
    SafetensorsDType dtype = SafetensorsDType::kF32;  // of the weights
    int64_t elements = 0;
    size_t first_storage = 0;
  };
  struct Optimizer {
    OptimizerPart part = OptimizerPart::kAll;
    std::vector<std::vector<PositionState>> groups;
    std::vector<BufferState> buffers;
    StageFile file;
  };

  std::vector<MegatronChunk> chunks;
  std::vector<std::vector<Entry>> entries;  // per chunk
  std::vector<Optimizer> optimizers;        // none, one, or two (experts have their own)
  bool is_fp32 = true;                      // all trained weights are fp32, and so their own masters
  StageFile model;
};

// model: without chunks. dtype: of a canonical parameter. step: updates made by the optimizer.
StagePlan plan_stage(const MegatronModel& model, int pp, const MegatronSpelling& spelling,
                     MegatronOptimizerForm optimizer, int64_t step,
                     const std::function<core::DType(const std::string& key)>& dtype);

}  // namespace ms::convert
