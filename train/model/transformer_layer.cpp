#include "train/model/transformer_layer.h"

#include "core/error.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

std::string prefix_of(int64_t layer) { return core::cat("decoder.layers.", layer, "."); }

}  // namespace

TransformerLayer::TransformerLayer(RankState& state, ParameterStore& parameters, const ops::RopeTable& rope,
                                   int64_t layer)
    : state_(state), attention_(state, parameters, rope, prefix_of(layer)), mlp_(state, parameters, prefix_of(layer)) {}

core::Tensor TransformerLayer::forward(LayerActivations& saved) {
  core::Tensor attention = attention_.forward(saved.input, saved.attention);
  ops::add_inplace(state_.ops, attention, saved.input);
  saved.mlp.input = std::move(attention);
  core::Tensor output = mlp_.forward(saved.mlp);
  ops::add_inplace(state_.ops, output, saved.mlp.input);
  saved.complete = true;
  return output;
}

core::Tensor TransformerLayer::backward(const core::TensorView& dy, LayerActivations& saved) {
  MS_CHECK(saved.complete, "backward of a layer whose activations were dropped");
  const core::Tensor dmiddle = mlp_.backward(dy, saved.mlp, dy);
  saved.mlp = {};
  core::Tensor dx = attention_.backward(dmiddle, saved.input, saved.attention, dmiddle);
  saved = {};
  return dx;
}

}  // namespace ms::train
