#include "train/data/gpt_dataset.h"

#include <algorithm>

#include "core/error.h"

namespace ms::train {

using core::cat;
using core::Error;
using core::ErrorCode;

GptDataset::GptDataset(std::shared_ptr<const SequenceSource> dataset, GptIndices indices, int64_t seq_length)
    : dataset_(std::move(dataset)), indices_(std::move(indices)), seq_length_(seq_length) {
  MS_CHECK(static_cast<int64_t>(indices_.sample_index().size()) == 2 * (indices_.num_samples() + 1), "sample index of ",
           indices_.sample_index().size(), " for ", indices_.num_samples(), " samples");
}

template <class Visit>
void GptDataset::for_each_part(int64_t index, int64_t tokens, const Visit& visit) const {
  if (index < 0 || index >= size()) {
    throw Error(ErrorCode::kInvalidArgument,
                cat(dataset_->name(), ": sample ", index, " requested, but there are ", size()));
  }
  const int64_t drawn = indices_.shuffle_index()[static_cast<size_t>(index)];
  MS_CHECK(drawn >= 0 && drawn < size(), "shuffle index ", drawn, " of ", size());
  const auto at = 2 * static_cast<size_t>(drawn);
  auto position = static_cast<size_t>(indices_.sample_index()[at]);
  int64_t offset = indices_.sample_index()[at + 1];
  while (tokens > 0) {
    MS_CHECK(position < indices_.document_index().size(), "sample ", index, " runs past the documents");
    const int64_t document = indices_.document_index()[position];
    const int64_t available = dataset_->sequence_length(document) - offset;
    const int64_t take = std::clamp<int64_t>(available, 0, tokens);
    if (take > 0) visit(document, offset, take);
    tokens -= take;
    ++position;
    offset = 0;
  }
}

void GptDataset::document_ends(int64_t index, std::vector<int64_t>& ends) const {
  ends.clear();
  for_each_part(index, seq_length_,
                [&](int64_t, int64_t, int64_t tokens) { ends.push_back((ends.empty() ? 0 : ends.back()) + tokens); });
}

void GptDataset::sample(int64_t index, std::span<int32_t> out) const {
  if (static_cast<int64_t>(out.size()) != seq_length_ + 1) {
    throw Error(ErrorCode::kInvalidArgument, cat("a sample has ", seq_length_ + 1, " tokens, not ", out.size()));
  }
  for_each_part(index, seq_length_ + 1, [&](int64_t document, int64_t offset, int64_t tokens) {
    dataset_->read(document, offset, out.first(static_cast<size_t>(tokens)));
    out = out.subspan(static_cast<size_t>(tokens));
  });
}

}  // namespace ms::train
