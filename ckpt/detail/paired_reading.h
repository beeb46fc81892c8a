// Reads two checkpoints side by side: pieces of the first, and the same elements of the second.
//
// If the first side is native, each piece is one stored chunk: every byte is read, and its checksum compared, once.
// Chunks of a second side that is sharded differently stay in a cache until their neighbours have been used. Memory:
// about 24 MiB per thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "ckpt/plan.h"
#include "ckpt/source.h"
#include "ckpt/values.h"
#include "core/layout/box.h"

namespace ms::ckpt::detail {

using ckpt::TensorPair;

// True if elements of one type can be converted to the other: equal types, or two of fp32, bf16 and fp16.
bool is_convertible(core::DType from, core::DType to);

// Converts with rounding to nearest even; unlike convert_elements, overflow of fp16 gives infinity.
void round_elements(const std::byte* source, core::DType from, std::byte* target, core::DType to, int64_t count);

struct PairedPiece {
  size_t pair = 0;            // index into the pairs
  size_t number = 0;          // index among all pieces: pair by pair, shard by shard, front to back
  int32_t shard = 0;          // of the first side
  int64_t first = 0;          // flat index within that shard of the piece's first element
  core::ShardedTensor place;  // its box in the global tensor; dtype, replica_id of the shard, name of the second side
  std::span<const std::byte> a;
  std::span<const std::byte> b;       // in the dtype of the second side's tensor
  std::span<const std::byte> b_as_a;  // rounded to nearest even to the dtype of a
};

struct PairedReadingOptions {
  bool replicas = false;  // also read replicas of the first side
  int threads = 1;
  std::function<bool()> stopped;                              // if true, throws kIo "interrupted"; may be empty
  std::function<void(int64_t done, int64_t total)> progress;  // bytes of the first side; one thread at a time
};

class PairedReading {
 public:
  // Every pair must be convertible. The sources and options must outlive it.
  PairedReading(Source& a, Source& b, std::span<const TensorPair> pairs, const PairedReadingOptions& options);

  size_t num_pieces() const { return places_.size(); }
  size_t pair_of(size_t piece) const { return places_[piece].pair; }

  // Calls `use` for every piece, from several threads. Throws what reading and planning throw: kCorruptData for a
  // damaged chunk, or if the second side leaves a hole in a tensor.
  void run(const std::function<void(const PairedPiece&)>& use);

 private:
  struct Place {
    size_t pair;
    int32_t shard;
    int64_t first;
    layout::Box box;  // within the shard
  };
  struct Buffers {
    std::vector<std::byte> a, b, converted, part;
  };

  void read_b(const std::vector<CopyRegion>& copies, const core::ShardedTensor& place, core::DType dtype,
              Buffers& buffers);

  Source& a_;
  Source& b_;
  std::vector<TensorPair> pairs_;
  const PairedReadingOptions& options_;
  std::vector<Place> places_;
  ShardTable pieces_;  // targets of the plan that reads from b, under b's names
  std::mutex mutex_;
  size_t next_ = 0;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace ms::ckpt::detail
