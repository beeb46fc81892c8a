#include "train/data/document_dataset.h"

#include <algorithm>

#include "core/error.h"
#include "train/data/detail/numpy_random.h"

namespace ms::train {

using core::cat;
using core::Error;
using core::ErrorCode;

DocumentDataset::DocumentDataset(std::shared_ptr<const SequenceSource> dataset, const GptIndexRequest& request)
    : dataset_(std::move(dataset)), seq_length_(request.seq_length) {
  std::vector<int64_t> epoch;
  for (int64_t document = request.begin; document < request.end; ++document) {
    if (dataset_->sequence_length(document) >= 2) epoch.push_back(document);
  }
  if (epoch.empty()) {
    throw Error(ErrorCode::kCorruptData, cat(dataset_->name(), ": no document of the ", request.split_name,
                                             " set has 2 tokens, one of them to predict"));
  }
  detail::NumpyRandomState random(request.seed);
  const auto wanted = static_cast<size_t>(request.num_samples);
  do {
    if (request.stopped && request.stopped()) throw Error(ErrorCode::kIo, "interrupted");
    random.shuffle(epoch);
    const size_t room = request.num_samples == 0 ? epoch.size() : wanted - documents_.size();
    documents_.insert(documents_.end(), epoch.begin(),
                      epoch.begin() + static_cast<int64_t>(std::min(room, epoch.size())));
  } while (documents_.size() < wanted);
}

int64_t DocumentDataset::document(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw Error(ErrorCode::kInvalidArgument,
                cat(dataset_->name(), ": sample ", index, " requested, but there are ", size()));
  }
  return documents_[static_cast<size_t>(index)];
}

int64_t DocumentDataset::sample_length(int64_t index) const {
  return std::min(dataset_->sequence_length(document(index)) - 1, seq_length_);
}

void DocumentDataset::sample(int64_t index, std::span<int32_t> out) const {
  const int64_t length = sample_length(index);
  if (static_cast<int64_t>(out.size()) != length + 1) {
    throw Error(ErrorCode::kInvalidArgument, cat("sample ", index, " has ", length + 1, " tokens, not ", out.size()));
  }
  dataset_->read(document(index), 0, out);
}

}  // namespace ms::train
