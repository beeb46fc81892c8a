// Optimizer state of a torch_dist checkpoint that lies as the distributed optimizer has it in memory, bucket by bucket:
// the kind dp_reshardable, which is Megatron's default since megatron-core 0.14, and was fully_sharded_bucket_space.
//
//   [chained_K.]optimizer.distributed.dp_group_idx_I.gbuf_idx_G.dtype_(torch.bfloat16, torch.float32).bucket_idx_B.KIND
//
// KIND is param, exp_avg or exp_avg_sq. K is 1 of experts that have an optimizer of their own, and 0 beside those. I
// counts what data-parallel ranks share: tp fastest, then pp; of experts etp, ep, pp. G and B count the buffers of a
// rank and the buckets of a buffer. Nothing has a name: where a parameter lies follows from the order in which Megatron
// registers them (stage_plan.h) and the lengths of the buckets, and is proved as in optimizer.h.
// Source: megatron/core/optimizer/distrib_optimizer.py (sharded_param_state_dp_reshardable).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convert/megatron/args.h"
#include "convert/megatron/model.h"
#include "convert/torch/dcp_reader.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

// True of the key of such a tensor, or of what is kept beside them.
bool is_bucket_key(std::string_view key);

// What a payload holds of a rank's part of a parameter.
struct BucketPart {
  ckpt::ParameterSpec spec;
  MegatronModel::Cut cut;
  core::TensorRole role = core::TensorRole::kMaster;
  const std::string* key = nullptr;  // of the bucket
  const DcpReader::Tensor* tensor = nullptr;
  const DcpReader::Chunk* chunk = nullptr;
  int64_t first = 0;           // element of the chunk
  int64_t begin = 0, end = 0;  // of the rank's part (ckpt::local_shape), flat
};

struct BucketWeights {
  std::function<core::DType(const std::string& key)> dtype;  // of a canonical parameter's weights
  // Its elements in a box, dense.
  std::function<void(const ckpt::ParameterSpec& spec, const ckpt::Box& box, std::byte* out)> read;
};

struct DistBuckets {
  std::vector<BucketPart> parts;  // of each parameter once, though several ranks keep it
  core::TransformerConfig padded;
};

// Masters and moments of all parameters. config: of the model, with the true vocabulary, which is stored as padded_rows
// rows. Throws kCorruptData if they are not the state of these weights as args say that they are cut, kUnsupported for
// another optimizer than Adam and for experts in one tensor as before Transformer Engine.
DistBuckets read_dist_buckets(const DcpReader& reader, const MegatronArgs& args, const core::TransformerConfig& config,
                              int64_t padded_rows, const BucketWeights& weights);

}  // namespace ms::convert
