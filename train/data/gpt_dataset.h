// Samples of seq_length + 1 tokens, cut from the shuffled documents of an indexed data set.
//
// Uses three indices, as Megatron's GPTDataset does (megatron/core/datasets/gpt_dataset.py, core 0.8). The document
// index lists the documents of all epochs, shuffled (the last epoch separately if less than 80 % of it is used). The
// sample index says where each sample begins in that series. The shuffle index is the order in which samples are drawn.
// All are 64-bit. They equal Megatron's for the same lengths, range, number of samples, seq_length and seed: the
// shuffles are numpy's RandomState(seed).shuffle. As in Megatron, "document" here means a sequence of the .idx.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/indexed_dataset.h"
#include "train/data/sample_source.h"

namespace ms::train {

struct GptIndexRequest {
  int64_t begin = 0;        // first sequence of the split
  int64_t end = 0;          // exclusive
  int64_t num_samples = 0;  // at least this many; 0: one epoch, no repetition
  int64_t seq_length = 0;
  uint64_t seed = 0;                   // below 2^32
  std::string split_name;              // "train", "valid" or "test": part of the cache's file names and of errors
  std::function<bool()> stopped = {};  // called regularly; if it returns true, build throws kIo "interrupted"
};

// Owns or maps the three indices.
class GptIndices {
 public:
  std::span<const int64_t> document_index() const { return document_index_; }
  // [samples + 1][2]: position in document_index, offset in tokens.
  std::span<const int64_t> sample_index() const { return sample_index_; }
  std::span<const int64_t> shuffle_index() const { return shuffle_index_; }
  int64_t num_samples() const { return static_cast<int64_t>(shuffle_index_.size()); }

  // Builds them in memory. lengths: tokens of each of the sequences [begin, end).
  // Throws kInvalidArgument: seq_length, seed, no tokens in the range; kOutOfMemory.
  static GptIndices build(std::span<const int32_t> lengths, const GptIndexRequest& request);

  // Same as build(), with a cache in cache_dir: three .npy files, and a description that contains all inputs and the
  // checksum of each file. If the description differs in any input, or a file does not match it, the cache is replaced.
  // Files are written under temporary names and renamed, the description last, so any number of processes may do this
  // at once. Throws as build() does, and kIo if cache_dir cannot be written.
  static GptIndices build_or_load(const IndexedDataset& dataset, const GptIndexRequest& request,
                                  const std::string& cache_dir);

 private:
  std::span<const int64_t> document_index_, sample_index_, shuffle_index_;
  std::shared_ptr<const void> storage_;  // owns the vectors or mappings that the spans point into
};

class GptDataset : public SampleSource {
 public:
  // dataset: shared by the splits of one prefix. indices: must have been built for it.
  GptDataset(std::shared_ptr<const SequenceSource> dataset, GptIndices indices, int64_t seq_length);

  int64_t size() const override { return indices_.num_samples(); }
  int64_t seq_length() const override { return seq_length_; }
  // As Megatron counts them: without the token that is the last label, and without documents that have none.
  void document_ends(int64_t index, std::vector<int64_t>& ends) const override;
  void sample(int64_t index, std::span<int32_t> out) const override;
  const GptIndices& indices() const { return indices_; }

 private:
  // Calls visit(document, offset, tokens) for the parts of documents that the first `tokens` tokens of a sample are.
  template <class Visit>
  void for_each_part(int64_t index, int64_t tokens, const Visit& visit) const;

  std::shared_ptr<const SequenceSource> dataset_;
  GptIndices indices_;
  int64_t seq_length_;
};

}  // namespace ms::train
