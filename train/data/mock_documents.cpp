#include "train/data/mock_documents.h"

#include "core/error.h"
#include "train/data/detail/numpy_random.h"

namespace ms::train {

MockDocuments::MockDocuments(int64_t vocab_size, int32_t eod) : vocab_size_(vocab_size), eod_(eod) {
  MS_CHECK(vocab_size > 0, "a vocabulary of ", vocab_size);
  constexpr uint32_t kMaxLength = 4095;
  detail::NumpyGenerator random(0);
  lengths_.reserve(static_cast<size_t>(kNumDocuments));
  for (int64_t i = 0; i < kNumDocuments; ++i) {
    lengths_.push_back(static_cast<int32_t>(1 + random.bounded(kMaxLength - 1)));
  }
}

void MockDocuments::read(int64_t sequence, int64_t offset, std::span<int32_t> out) const {
  const int64_t last = sequence_length(sequence) - 1;
  for (int32_t& token : out) {
    token = offset == last ? eod_ : static_cast<int32_t>((offset + 1) % vocab_size_);
    ++offset;
  }
}

}  // namespace ms::train
