#include "train/data/blended_dataset.h"

#include <algorithm>

#include "core/error.h"
#include "train/data/build_datasets.h"
#include "train/data/detail/patience.h"

namespace ms::train {

using core::cat;
using core::Error;
using core::ErrorCode;

BlendIndices build_blend_indices(std::span<const double> weights, int64_t size, const std::function<bool()>& stopped) {
  MS_CHECK(!weights.empty() && weights.size() < 32767 && size >= 0, weights.size(), " weights, size ", size);
  detail::Patience patience(stopped);
  BlendIndices indices;
  indices.dataset.reserve(static_cast<size_t>(size));
  indices.sample.reserve(static_cast<size_t>(size));
  std::vector<int64_t> drawn(weights.size(), 0);
  for (int64_t i = 0; i < size; ++i) {
    patience.step();
    const double position = std::max(static_cast<double>(i), 1.0);
    size_t behind = 0;
    double largest_error = weights[0] * position - static_cast<double>(drawn[0]);
    for (size_t d = 1; d < weights.size(); ++d) {
      const double error = weights[d] * position - static_cast<double>(drawn[d]);
      if (error > largest_error) {
        largest_error = error;
        behind = d;
      }
    }
    indices.dataset.push_back(static_cast<int16_t>(behind));
    indices.sample.push_back(drawn[behind]++);
  }
  return indices;
}

BlendedDataset::BlendedDataset(std::vector<std::unique_ptr<SampleSource>> datasets, std::span<const double> weights,
                               int64_t size, const std::function<bool()>& stopped)
    : datasets_(std::move(datasets)), indices_(build_blend_indices(normalize_weights(weights), size, stopped)) {
  MS_CHECK(datasets_.size() == weights.size(), datasets_.size(), " data sets, ", weights.size(), " weights");
  std::vector<int64_t> used(datasets_.size(), 0);
  for (const int16_t d : indices_.dataset) ++used[static_cast<size_t>(d)];
  for (size_t d = 0; d < datasets_.size(); ++d) {
    if (used[d] > datasets_[d]->size()) {
      throw Error(ErrorCode::kInvalidArgument, cat("the blend needs ", used[d], " samples of its data set ", d,
                                                   ", which has ", datasets_[d]->size(), ". Change its weight"));
    }
  }
}

size_t BlendedDataset::checked(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw Error(ErrorCode::kInvalidArgument, cat("sample ", index, " requested from a blend of ", size()));
  }
  return static_cast<size_t>(index);
}

int64_t BlendedDataset::sample_length(int64_t index) const {
  const size_t i = checked(index);
  return datasets_[static_cast<size_t>(indices_.dataset[i])]->sample_length(indices_.sample[i]);
}

void BlendedDataset::document_ends(int64_t index, std::vector<int64_t>& ends) const {
  const size_t i = checked(index);
  datasets_[static_cast<size_t>(indices_.dataset[i])]->document_ends(indices_.sample[i], ends);
}

void BlendedDataset::sample(int64_t index, std::span<int32_t> out) const {
  const size_t i = checked(index);
  datasets_[static_cast<size_t>(indices_.dataset[i])]->sample(indices_.sample[i], out);
}

}  // namespace ms::train
