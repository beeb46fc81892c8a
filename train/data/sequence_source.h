// Interface of the documents that samples are cut from (gpt_dataset.h): numbered sequences of token ids.
//
// Implemented by indexed_dataset.h (files) and mock_documents.h (made up).
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ms::train {

class SequenceSource {
 public:
  virtual ~SequenceSource() = default;
  virtual const std::string& name() const = 0;                  // for errors
  virtual int64_t sequence_length(int64_t sequence) const = 0;  // tokens
  // Writes tokens [offset, offset + out.size()) of a sequence. Safe to call from several threads.
  virtual void read(int64_t sequence, int64_t offset, std::span<int32_t> out) const = 0;
};

}  // namespace ms::train
