#include "train/model/grouped_linear.h"

#include <utility>

#include "core/error.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

constexpr ops::GroupedWeight kLayout = ops::GroupedWeight::kOutIn;

Parameter& first_of(const RankState& state, ParameterStore& parameters, const std::string& experts,
                    const std::string& linear) {
  const int64_t experts_each = state.config.model.num_experts / state.groups.grid.ep;
  return parameters.at(core::cat(experts, state.groups.at_experts.ep * experts_each, ".", linear, ".weight"));
}

// Elements from the weight of one expert here to that of the next one, of one linear layer.
int64_t distance_of(const ParameterStore& parameters, const Parameter& first, int64_t count, const std::string& experts,
                    const std::string& ending) {
  int64_t stride = first.size();
  // One after the other in the order of the model: a search for each name would take the square of their number.
  auto next = static_cast<size_t>(&first - parameters.all().data());
  for (int64_t expert = 1; expert < count; ++expert) {
    do {
      ++next;
      MS_CHECK(next < parameters.all().size(), experts, first.spec.expert + expert, ending,
               " does not follow the expert before it");
    } while (!parameters.all()[next].spec.key.ends_with(ending));
    const Parameter& own = parameters.all()[next];
    MS_CHECK(own.spec.expert == first.spec.expert + expert && own.spec.layer == first.spec.layer, own.spec.key,
             " follows expert ", first.spec.expert + expert - 1);
    if (expert == 1) stride = own.offset_elems - first.offset_elems;
    MS_CHECK(own.offset_elems == first.offset_elems + expert * stride && own.trains() == first.trains(), own.spec.key,
             " is at ", own.offset_elems, ", not at a distance of ", stride, " from the expert before it");
  }
  return stride;
}

}  // namespace

GroupedLinear::GroupedLinear(RankState& state, ParameterStore& parameters, const std::string& experts,
                             const std::string& linear)
    : state_(state),
      first_(first_of(state, parameters, experts, linear)),
      count_(first_.spec.num_experts / state.groups.grid.ep),
      stride_(distance_of(parameters, first_, count_, experts, "." + linear + ".weight")),
      sum_(state.config.training.gradient_accumulation_fusion ? ops::WeightGradientSum::kInProduct
                                                              : ops::WeightGradientSum::kRounded) {}

core::Tensor GroupedLinear::forward(const core::TensorView& x, std::span<const int64_t> ends) {
  return ops::grouped_matmul(state_.ops, x, weights(), ends, kLayout);
}

core::Tensor GroupedLinear::backward_input(const core::TensorView& dy, std::span<const int64_t> ends) {
  return ops::grouped_matmul_dgrad(state_.ops, dy, weights(), ends, kLayout);
}

void GroupedLinear::backward_weight(const core::TensorView& x, const core::TensorView& dy,
                                    std::span<const int64_t> ends) {
  if (!first_.trains()) return;
  const ops::GroupedMatrices gradients(first_.main_grad, count_, stride_);
  if (sum_ == ops::WeightGradientSum::kInProduct) {
    return ops::grouped_matmul_add_fp32(state_.ops, x, dy, ends, gradients, kLayout);
  }
  const core::Tensor rounded = ops::grouped_matmul_wgrad(state_.ops, x, dy, ends, kLayout);
  const ops::GroupedMatrices products(rounded);
  int64_t begin = 0;
  for (int64_t expert = 0; expert < count_; ++expert) {
    const int64_t end = ends[static_cast<size_t>(expert)];
    if (std::exchange(begin, end) < end)  // an expert without tokens has no gradient
      ops::accumulate_fp32(state_.ops, gradients.matrix(expert), products.matrix(expert));
  }
}

}  // namespace ms::train
