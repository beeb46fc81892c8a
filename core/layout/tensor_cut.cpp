#include "core/layout/tensor_cut.h"

namespace ms::layout {

size_t local_dims(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size, int64_t* shape) {
  std::copy(spec.global_shape.begin(), spec.global_shape.end(), shape);
  switch (spec.rule) {
    case TpRule::kReplicated:
      break;
    case TpRule::kRows:
    case TpRule::kGatedRows:
      shape[0] /= tp_size;
      break;
    case TpRule::kColumns:
      shape[1] /= tp_size;
      break;
    case TpRule::kVocabRows:
      shape[0] = config.padded_vocab_size(tp_size) / tp_size;
      break;
  }
  return spec.global_shape.size();
}

core::Dims local_shape(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size) {
  core::Dims shape(spec.global_shape.size());
  local_dims(spec, config, tp_size, shape.data());
  return shape;
}

std::vector<Box> boxes_of_local_range(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size,
                                      int tp_rank, int64_t begin, int64_t end) {
  std::vector<Box> boxes;
  const size_t axes = spec.global_shape.size();
  for_each_local_box(spec, config, tp_size, tp_rank, begin, end, [&](const int64_t* offset, const int64_t* extent) {
    boxes.push_back({core::Dims(offset, offset + axes), core::Dims(extent, extent + axes)});
  });
  return boxes;
}

}  // namespace ms::layout
