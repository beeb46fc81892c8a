#include "train/loop/expert_bias.h"

#include <numeric>

#include "core/error.h"

namespace ms::train {

void update_expert_biases(const ParameterStore& parameters, const ExpertLoads& loads, double rate) {
  for (const ModelBuffer& buffer : parameters.buffers()) {
    const std::vector<int64_t>& tokens = loads.at(buffer.spec.layer + buffer.spec.mtp_layer).tokens;
    const auto biases = buffer.values.elements<float>();
    MS_CHECK(tokens.size() == biases.size(), buffer.spec.key, " of ", biases.size(), " experts, not ", tokens.size());
    const int64_t sum = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
    for (size_t expert = 0; expert < biases.size(); ++expert) {
      const int64_t all = tokens[expert] * static_cast<int64_t>(tokens.size());  // compared without rounding
      biases[expert] += static_cast<float>(all < sum ? rate : all > sum ? -rate : 0);
    }
  }
}

}  // namespace ms::train
