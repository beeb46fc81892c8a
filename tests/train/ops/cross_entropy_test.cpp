#include "train/ops/cross_entropy.h"

#include "core/error.h"
#include "tests/reference/cross_entropy.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::Array;
using reference::kFp32;

// The whole loss from slices of the vocabulary, as tensor-parallel ranks compute it; each slice is padded by 3 columns.
TEST(CrossEntropy, VocabularySlicesGiveTheWholeLoss) {
  constexpr int64_t kN = 9, kVocab = 53, kPad = 3;
  Ops ops(2);
  const Array all = reference::to_double(test::RandomValues(1).make(kN * kVocab, 8));
  const auto labels = test::RandomValues(2).integers(kN, 0, kVocab - 1);
  const auto row_scale = test::RandomValues(3).make(kN);
  for (const int64_t slices : {1, 2, 3}) {
    std::vector<core::Tensor> logits;
    std::vector<int64_t> first, valid;
    std::vector<float> max(kN, -HUGE_VALF), sum(kN), target(kN);
    for (int64_t slice = 0; slice < slices; ++slice) {
      // The last of three slices contains only padding.
      const int64_t width = slices == 3 ? 30 : (kVocab + slices - 1) / slices, begin = std::min(slice * width, kVocab);
      first.push_back(begin);
      valid.push_back(std::min(width, kVocab - begin));
      std::vector<float> part;
      for (int64_t i = 0; i < kN; ++i) {
        for (int64_t j = 0; j < valid.back(); ++j)
          part.push_back(static_cast<float>(all[static_cast<size_t>(i * kVocab + begin + j)]));
        for (int64_t j = 0; j < kPad; ++j) part.push_back(1e9F);  // would win every softmax
      }
      logits.push_back(ops.tensor(part, {kN, valid.back() + kPad}));
      std::vector<float> local(kN);
      row_max(ops.context, logits.back(), valid.back(), local);
      for (size_t i = 0; i < kN; ++i) max[i] = std::max(max[i], local[i]);
    }
    for (size_t slice = 0; slice < logits.size(); ++slice) {
      std::vector<float> local_sum(kN), local_target(kN);
      row_sums(ops.context, logits[slice], valid[slice], max, labels, first[slice], local_sum, local_target);
      for (size_t i = 0; i < kN; ++i) sum[i] += local_sum[i], target[i] += local_target[i];
    }
    for (size_t i = 0; i < kN; ++i) {
      const Array row(all.begin() + static_cast<int64_t>(i) * kVocab,
                      all.begin() + (static_cast<int64_t>(i) + 1) * kVocab);
      const auto label = static_cast<size_t>(labels[i]);
      const double loss = std::log(static_cast<double>(sum[i])) + max[i] - target[i];
      ASSERT_NEAR(loss, reference::cross_entropy(row, label), 100 * kFp32) << slices << " slices, row " << i;
    }
    for (size_t slice = 0; slice < logits.size(); ++slice) {
      cross_entropy_backward(ops.context, logits[slice], valid[slice], max, sum, labels, first[slice], row_scale);
      const Array got = array(logits[slice]);
      const auto columns = static_cast<size_t>(valid[slice] + kPad);
      for (size_t i = 0; i < kN; ++i) {
        const Array row(all.begin() + static_cast<int64_t>(i) * kVocab,
                        all.begin() + (static_cast<int64_t>(i) + 1) * kVocab);
        const Array want = reference::numeric_gradient(
            [&](const Array& v) { return reference::cross_entropy(v, static_cast<size_t>(labels[i])); }, row);
        for (size_t j = 0; j < columns; ++j) {
          const bool padding = j >= static_cast<size_t>(valid[slice]);
          const double expected = padding ? 0 : row_scale[i] * want[static_cast<size_t>(first[slice]) + j];
          ASSERT_NEAR(got[i * columns + j], expected, padding ? 0 : 100 * kFp32) << slices << " slices, row " << i;
        }
      }
    }
  }
}

TEST(CrossEntropy, RefusesSpansOfWrongSize) {
  Ops ops;
  const auto logits = ops.random<float>({3, 4}, 1);
  std::vector<float> two(2), three(3);
  EXPECT_THROW(row_max(ops.context, logits, 4, two), core::Error);
  EXPECT_THROW(row_max(ops.context, logits, 5, three), core::Error);
}

}  // namespace
}  // namespace ms::ops
