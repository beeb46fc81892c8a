#include "train/model/transformer_layer.h"

#include "core/error.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

std::string place(int64_t layer, const char* part) { return core::cat("decoder.layers.", layer, ".", part); }

}  // namespace

TransformerLayer::TransformerLayer(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope,
                                   int64_t layer, const RebuiltOutputs& rebuilds)
    : state_(state),
      attention_(state, parameters, rope, layer, rebuilds),
      attention_dropout_(state, place(layer, "self_attention")),
      mlp_(state, parameters, layer, rebuilds),
      mlp_dropout_(state, place(layer, "mlp")) {}

core::Tensor TransformerLayer::forward(LayerActivations& saved, std::span<const int64_t> samples) {
  core::Tensor attention = attention_.forward(saved.input, saved.attention, samples);
  attention_dropout_.apply(attention, samples);
  ops::add_inplace(state_.ops, attention, saved.input);
  saved.mlp.input = std::move(attention);
  core::Tensor output = mlp_.forward(saved.mlp);
  mlp_dropout_.apply(output, samples);
  ops::add_inplace(state_.ops, output, saved.mlp.input);
  saved.complete = true;
  return output;
}

core::TensorView TransformerLayer::branch_gradient(const HiddenDropout& dropout, const core::TensorView& dy,
                                                   core::Tensor& dropped, std::span<const int64_t> samples) {
  if (!dropout.drops(samples)) return dy;
  dropped = ops::cast(state_.ops, dy, dy.dtype());
  dropout.apply(dropped, samples);
  return dropped;
}

core::Tensor TransformerLayer::backward(const core::TensorView& dy, LayerActivations& saved,
                                        std::span<const int64_t> samples) {
  MS_CHECK(saved.complete, "backward of a layer whose activations were dropped");
  core::Tensor dropped;
  const core::Tensor dmiddle = mlp_.backward(branch_gradient(mlp_dropout_, dy, dropped, samples), saved.mlp, dy);
  saved.mlp = {};
  core::Tensor dx = attention_.backward(branch_gradient(attention_dropout_, dmiddle, dropped, samples), saved.input,
                                        saved.attention, dmiddle, samples);
  saved = {};
  return dx;
}

}  // namespace ms::train
