// Where tensors go: a checkpoint of any format being written. Nothing is visible under its final name before commit().
//
// The native sink (native_sink.h) is one; convert/ implements the others. execute.h drives a sink:
//   begin(info, targets); keep(...) or write(...) for every element of every wanted target once; commit().
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <tuple>

#include "ckpt/source.h"

namespace ms::ckpt {

// Targets of one file in this order: role by role, tensor by tensor, as layout.h lists those of a rank.
inline std::tuple<core::TensorRole, int32_t, int32_t> write_order(const ShardTable& targets, int32_t target) {
  const int32_t tensor = targets.tensor_of(static_cast<size_t>(target));
  return {targets.role(tensor), tensor, target};
}

class Sink {
 public:
  // Without commit() everything written is removed; never throws.
  virtual ~Sink() = default;

  // Announces what will be written: every target shard with its final dtype. `targets` is valid until commit() returns.
  // Throws kIo if there is not enough space, kUnsupported if the format cannot hold a target.
  virtual void begin(const CheckpointInfo& info, const ShardTable& targets) = 0;

  // The elements [first, first + count) of target `target`, in the row-major order of its local_shape, in its dtype.
  // first is a multiple of chunk_elements(target); count is that or what remains. Every range comes exactly once.
  // Thread-safe for different ranges; threads take up those of one file in the order of write_order and `first`, so
  // that one may wait for another. data is page_offset(target, first) bytes behind a multiple of 4096.
  virtual void write(int32_t target, int64_t first, int64_t count, const std::byte* data) = 0;

  // Where the range will lie in its file, modulo 4096: memory that is placed alike is written without a copy
  // (core/io/bulk_writer.h). Below 4096. Thread-safe.
  virtual int64_t page_offset(int32_t /*target*/, int64_t /*first*/) { return 0; }

  // Whether an earlier attempt at the same job wrote these elements and they are still there, proved by reading them
  // back; then they are not written again. The range as of write(); scratch: room for it, holds the elements then.
  // Thread-safe.
  virtual bool keep(int32_t /*target*/, int64_t /*first*/, int64_t /*count*/, std::byte* /*scratch*/) { return false; }

  // Whether this process is to write the target: not what others write, or an earlier process has written.
  virtual bool wants(int32_t /*target*/) const { return true; }

  // Runs the writing of all wanted targets. Where several processes write one checkpoint, they agree on its outcome:
  // if it throws on one, it throws on all.
  virtual void agree(const std::function<void()>& writing) { writing(); }

  // Some write will not come: those that wait for another throw.
  virtual void stop() {}

  // Memory that a thread holds from write to write, at most.
  virtual int64_t scratch_bytes() const { return 0; }

  // Makes it durable and visible, and returns the path that was made. Once.
  virtual std::filesystem::path commit() = 0;

  // The file that a target goes to, any number that is not another's: files of consecutive targets are written at the
  // same time, a few of them.
  virtual int32_t file_of(int32_t /*target*/) const { return 0; }

  // How many files are written at a time: more, and source bytes that several want are read once; fewer, and files are
  // finished early.
  virtual size_t files_at_once() const { return 16; }

  // Elements per write; the default is 8 MiB worth, the granularity of our checksums.
  virtual int64_t chunk_elements(const core::ShardedTensor& target) const {
    return (int64_t{8} << 20) / core::size_of(target.dtype);
  }
};

}  // namespace ms::ckpt
