#include "ckpt/reshard.h"

#include <map>
#include <set>

#include "core/error.h"

namespace ms::ckpt {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::TensorRole;

ReshardPlan plan_reshard(const Source& source, const ModelLayout& layout, bool drop_optimizer) {
  ReshardPlan plan;
  plan.info = source.info();
  plan.layout = layout;
  const core::TransformerConfig& model = plan.info.model;
  const auto shards = source.shards();
  // A model of more layers than there are shards cannot be whole; this also bounds the list of its parameters.
  if (model.num_layers < 1 || model.num_layers > static_cast<int64_t>(shards.size()) || model.num_attention_heads < 1 ||
      model.query_groups() < 1 || model.kv_channels < 1 || model.make_vocab_size_divisible_by < 1 ||
      model.vocab_size < 1 || model.hidden_size < 1 || model.ffn_hidden_size < 1) {
    throw Error(ErrorCode::kCorruptData, cat("the checkpoint's model has ", model.num_layers, " layers of hidden size ",
                                             model.hidden_size, ", but there are ", shards.size(), " shards"));
  }
  std::map<std::pair<std::string, TensorRole>, core::DType> dtypes;
  std::set<TensorRole> roles;
  for (const core::ShardedTensor& shard : shards) {
    dtypes[{shard.key, shard.role}] = shard.dtype;
    roles.insert(shard.role);
  }
  std::vector<RoleSpec> kept;
  for (const TensorRole role : roles) {
    if (drop_optimizer && role != TensorRole::kParam && role != TensorRole::kBuffer) {
      plan.decisions.push_back(cat(core::role_name(role), " is dropped (--drop-optimizer)"));
    } else {
      kept.push_back({role, core::DType::kFp32});
    }
  }
  plan.targets = shards_of_checkpoint(layout, model, kept);
  std::set<std::pair<std::string, TensorRole>> wanted;
  for (core::ShardedTensor& target : plan.targets.shards) {
    const auto found = dtypes.find({target.key, target.role});
    if (found == dtypes.end()) {
      throw Error(ErrorCode::kCorruptData, cat(target.key, " (", core::role_name(target.role),
                                               "): the model has it, but the checkpoint does not"));
    }
    target.dtype = found->second;
    wanted.insert({target.key, target.role});
  }
  for (const auto& [name, dtype] : dtypes) {
    const bool dropped = drop_optimizer && name.second != TensorRole::kParam && name.second != TensorRole::kBuffer;
    if (!dropped && wanted.count(name) == 0) {
      throw Error(ErrorCode::kUnsupported, cat(name.first, " (", core::role_name(name.second),
                                               "): the checkpoint holds it, but its model has no such parameter"));
    }
  }
  const int64_t padded = model.padded_vocab_size(layout.tensor_model_parallel_size);
  plan.info.layout = layout_to_json(layout);
  plan.info.model_extra["padded_vocab_size"] = padded;
  plan.decisions.push_back(
      cat("vocabulary: ", model.vocab_size, " true rows are stored; in memory they are padded to ", padded));
  if (!model.untie_embeddings_and_output_weights) {
    plan.decisions.push_back("tied embeddings: stored once, with the first stage");
  }
  return plan;
}

}  // namespace ms::ckpt
