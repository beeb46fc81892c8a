// Reads optimizer state that a torch_dist checkpoint stores bucket by bucket, as the distributed optimizer has it in
// memory: the kind dp_reshardable, Megatron's default since megatron-core 0.14, earlier called
// fully_sharded_bucket_space.
//
//   [chained_K.]optimizer.distributed.dp_group_idx_I.gbuf_idx_G.dtype_(torch.bfloat16, torch.float32).bucket_idx_B.KIND
//
// KIND is param, exp_avg or exp_avg_sq. K is 1 for experts with an optimizer of their own, and 0 for the other
// parameters. I counts the groups of data-parallel ranks: tp fastest, then pp; for experts etp, ep, pp. G counts the
// buffers of a rank, B the buckets of a buffer. Parameters have no names: the position of each follows from the order
// in which Megatron registers them (stage_plan.h) and the lengths of the buckets, and is proved as in optimizer.h.
// Source: megatron/core/optimizer/distrib_optimizer.py (sharded_param_state_dp_reshardable).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convert/megatron/args.h"
#include "convert/megatron/model.h"
#include "convert/torch/dcp_reader.h"
#include "core/layout/box.h"
#include "core/layout/parameter_specs.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

// Returns true for the key of such a tensor, and of the objects stored with them.
bool is_bucket_key(std::string_view key);

// A range of a payload that contains part of a rank's share of a parameter.
struct BucketPart {
  layout::ParameterSpec spec;
  MegatronModel::Cut cut;
  core::TensorRole role = core::TensorRole::kMaster;
  const std::string* key = nullptr;  // of the bucket
  const DcpReader::Tensor* tensor = nullptr;
  const DcpReader::Chunk* chunk = nullptr;
  int64_t first = 0;           // first element in the chunk
  int64_t begin = 0, end = 0;  // range in the rank's part (layout::local_shape), flattened
};

struct BucketWeights {
  std::function<core::DType(const std::string& key)> dtype;  // dtype of a canonical parameter's weights
  // Reads a box of the weights, dense.
  std::function<void(const layout::ParameterSpec& spec, const layout::Box& box, std::byte* out)> read;
};

struct DistBuckets {
  std::vector<BucketPart> parts;  // each parameter once, even if several ranks hold it
  core::TransformerConfig padded;
};

// Returns the master weights and moments of all parameters. config: the model with its true vocabulary, which is stored
// as padded_rows rows. Throws kCorruptData if the state does not match the weights under the layout in args;
// kUnsupported for another optimizer than Adam, and for experts grouped in one tensor by megatron-core's own
// (pre-Transformer Engine) layers.
DistBuckets read_dist_buckets(const DcpReader& reader, const MegatronArgs& args, const core::TransformerConfig& config,
                              int64_t padded_rows, const BucketWeights& weights);

}  // namespace ms::convert
