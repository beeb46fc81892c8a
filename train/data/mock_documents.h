// The made-up documents of --mock-data: 100000 of 1 to 4095 tokens, which count 1, 2, 3, .. modulo the vocabulary and
// end with the end-of-document token. For runs that need no text: tests of a layout, of memory, of speed.
//
// Source: MockGPTLowLevelDataset (megatron/core/datasets/gpt_dataset.py), whose lengths come from
// numpy.random.default_rng(0). The run's seed shuffles the documents as those of a data set, so that the samples are
// Megatron's. (Before core 0.16 Megatron did not apply the modulo, and needed a vocabulary of at least 4096.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/data/sequence_source.h"

namespace ms::train {

class MockDocuments final : public SequenceSource {
 public:
  // vocab_size: the tokenizer's, at least 1. eod: its end-of-document token.
  MockDocuments(int64_t vocab_size, int32_t eod);

  static constexpr int64_t kNumDocuments = 100'000;
  std::span<const int32_t> lengths() const { return lengths_; }

  const std::string& name() const override { return name_; }
  int64_t sequence_length(int64_t sequence) const override { return lengths_[static_cast<size_t>(sequence)]; }
  void read(int64_t sequence, int64_t offset, std::span<int32_t> out) const override;

 private:
  std::string name_ = "--mock-data";
  int64_t vocab_size_;
  int32_t eod_;
  std::vector<int32_t> lengths_;
};

}  // namespace ms::train
