// Samples of their own lengths on thread ranks: what the tests of --variable-seq-lengths share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/config.h"
#include "train/data/sample_source.h"
#include "train/model/parameters.h"

namespace ms::test {

// A document of each length and a last label; the longest may have seq_length tokens.
class OwnLengthDocuments : public train::SampleSource {
 public:
  OwnLengthDocuments(int64_t seq_length, std::vector<int64_t> lengths)
      : seq_length_(seq_length), lengths_(std::move(lengths)) {}
  int64_t size() const override { return static_cast<int64_t>(lengths_.size()); }
  int64_t seq_length() const override { return seq_length_; }
  int64_t sample_length(int64_t index) const override { return lengths_[static_cast<size_t>(index)]; }
  void sample(int64_t index, std::span<int32_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<int32_t>((i * 37 + static_cast<size_t>(index) * 11) % 256);
  }
  const std::vector<int64_t>& lengths() const { return lengths_; }

 private:
  int64_t seq_length_;
  std::vector<int64_t> lengths_;
};

using ConfigChange = std::function<void(train::TrainerConfig&)>;

// Features beside which samples may have their own lengths.
inline std::vector<ConfigChange> changes_beside_own_lengths() {
  using train::TrainerConfig;
  return {[](TrainerConfig& config) { config.training.micro_batch_size = 2; },
          [](TrainerConfig& config) { config.training.loss_chunk_size = 5; },
          [](TrainerConfig& config) {
            config.training.recompute_granularity = "full";
            config.training.recompute_method = "uniform";
            config.training.recompute_num_layers = 1;
          },
          [](TrainerConfig& config) {
            config.training.swap_attention = true;
            config.training.swap_min_tensor_kib = 0;
          },
          [](TrainerConfig& config) {
            config.model.position_embedding_type = "learned_absolute";
            config.model.max_position_embeddings = config.training.seq_length;
          },
          [](TrainerConfig& config) { config.model.sliding_window = 9; },
          [](TrainerConfig& config) {
            config.model.num_experts = 4;
            config.model.moe_router_topk = 2;
            config.model.init_method_std = 0.1;  // scores that rounding does not reorder
            config.training.moe_aux_loss_coeff = {0.02};
            config.training.moe_z_loss_coeff = 0.001;
          }};
}

// Adds a rank's gradients to those of others, by key.
inline void add_gradients(train::ParameterStore& parameters, std::map<std::string, std::vector<float>>& sums) {
  for (train::Parameter& parameter : parameters.all()) {
    const auto values = parameter.main_grad.elements<float>();
    std::vector<float>& sum = sums[parameter.spec.key];
    sum.resize(values.size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
}

}  // namespace ms::test
