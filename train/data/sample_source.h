// Interface of a data set as the trainer reads it: an indexed series of samples of seq_length + 1 tokens, or of at most
// as many.
//
// Implemented by gpt_dataset.h, document_dataset.h and blended_dataset.h; sampler.h chooses the indices and builds
// micro-batches from it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::train {

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  // Number of samples; at least as many as were requested.
  virtual int64_t size() const = 0;
  virtual int64_t seq_length() const = 0;
  // Tokens of sample `index`, without the last label: seq_length(), or 1 to that where samples have lengths of their
  // own. Throws kInvalidArgument if index is not in [0, size()).
  virtual int64_t sample_length(int64_t index) const {
    (void)index;
    return seq_length();
  }
  // Where the documents of sample `index` end, in tokens from its first one on; the last is sample_length(index).
  // Throws kInvalidArgument as sample_length().
  virtual void document_ends(int64_t index, std::vector<int64_t>& ends) const { ends.assign(1, sample_length(index)); }
  // Writes sample `index` to out: sample_length(index) + 1 token ids; the extra one is the last label.
  // The same index gives the same tokens in every process and on every layout. Safe to call from several threads.
  // Throws kInvalidArgument if index is not in [0, size()) or out has another size; kCorruptData or kIo from the files.
  virtual void sample(int64_t index, std::span<int32_t> out) const = 0;
};

}  // namespace ms::train
