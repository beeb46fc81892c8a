// Samples that are one document each, with its own length: --variable-seq-lengths.
//
// Documents of a split are shuffled, each epoch anew, by numpy's RandomState(seed) as in gpt_dataset.h. Of a document
// with more tokens than a sample the first ones are read. Documents below 2 tokens, which predict nothing, are left
// out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "train/data/gpt_dataset.h"
#include "train/data/sample_source.h"
#include "train/data/sequence_source.h"

namespace ms::train {

class DocumentDataset : public SampleSource {
 public:
  // request: its split, seq_length, seed, and number of samples; 0: one epoch. 8 bytes of memory for each sample.
  // Throws kCorruptData if no document of the split has 2 tokens, kIo "interrupted".
  DocumentDataset(std::shared_ptr<const SequenceSource> dataset, const GptIndexRequest& request);

  int64_t size() const override { return static_cast<int64_t>(documents_.size()); }
  int64_t seq_length() const override { return seq_length_; }
  int64_t sample_length(int64_t index) const override;
  void sample(int64_t index, std::span<int32_t> out) const override;

 private:
  int64_t document(int64_t index) const;

  std::shared_ptr<const SequenceSource> dataset_;
  int64_t seq_length_;
  std::vector<int64_t> documents_;  // of each sample
};

}  // namespace ms::train
