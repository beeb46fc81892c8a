// Draws from several data sets in proportion to weights, deterministically (megatron/core/datasets/blended_dataset.py
// and build_blending_indices of helpers.cpp): sample i comes from the data set that is furthest below its share so far.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "train/data/sample_source.h"

namespace ms::train {

struct BlendIndices {
  std::vector<int16_t> dataset;  // [size] index of the data set
  std::vector<int64_t> sample;   // [size] index of the sample in that data set
};
// weights: normalized, positive, fewer than 32767. Ties go to the lower index. O(size * weights).
// stopped: called regularly; if it returns true, kIo "interrupted" is thrown.
BlendIndices build_blend_indices(std::span<const double> weights, int64_t size,
                                 const std::function<bool()>& stopped = {});

class BlendedDataset : public SampleSource {
 public:
  // weights: one per data set, any positive scale. size: samples of the blend; 10 bytes of memory each.
  // Throws kInvalidArgument if the blend would draw more samples of a data set than it has.
  BlendedDataset(std::vector<std::unique_ptr<SampleSource>> datasets, std::span<const double> weights, int64_t size,
                 const std::function<bool()>& stopped = {});

  int64_t size() const override { return static_cast<int64_t>(indices_.dataset.size()); }
  int64_t seq_length() const override { return datasets_.front()->seq_length(); }
  int64_t sample_length(int64_t index) const override;
  void document_ends(int64_t index, std::vector<int64_t>& ends) const override;
  void sample(int64_t index, std::span<int32_t> out) const override;

 private:
  size_t checked(int64_t index) const;  // throws kInvalidArgument

  std::vector<std::unique_ptr<SampleSource>> datasets_;
  BlendIndices indices_;
};

}  // namespace ms::train
