// Ranges of memory that processes of one machine have mapped from each other: each rank's is a file in memory
// (core/block_heap.h), which the others open through /proc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/block_heap.h"

namespace ms::core {

// A new file in memory, all zeros, mapped here.
class SharedFile {
 public:
  // Without memory if the system does not allow it, or of 0 bytes.
  explicit SharedFile(int64_t size_bytes);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  const SharedRange& range() const { return range_; }  // begin: null if there is none

 private:
  SharedRange range_;
};

class SharedRanges {
 public:
  // What another process needs to map a range.
  struct Address {
    int64_t pid = 0, file = -1, size_bytes = 0;  // file: -1: there is none
  };

  // Of `ranks` ranks, this one's among them.
  SharedRanges(int ranks, int rank, const SharedRange& own);
  ~SharedRanges();
  SharedRanges(const SharedRanges&) = delete;
  SharedRanges& operator=(const SharedRanges&) = delete;

  // False if the file cannot be opened or mapped.
  bool map(int peer, const Address& address);
  bool has(int peer) const { return ranges_[static_cast<size_t>(peer)].begin != nullptr; }
  void unmap(int peer);

  int64_t offset_of(const void* data, int64_t size_bytes) const;  // in this rank's range; -1: outside of it
  std::byte* at(int peer, int64_t offset) const { return ranges_[static_cast<size_t>(peer)].begin + offset; }

 private:
  std::vector<SharedRange> ranges_;  // by rank
  int rank_;
};

}  // namespace ms::core
