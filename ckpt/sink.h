// A sink writes a checkpoint of any format. Nothing is visible under its final name before commit().
//
// native_sink.h implements the native format, convert/ the others. execute.h drives a sink:
//   begin(info, targets); keep(...) or write(...) for every element of every wanted target once; commit().
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <tuple>

#include "ckpt/source.h"

namespace ms::ckpt {

// Sort key for the targets of one file: by role, then tensor, as layout.h lists the shards of a rank.
inline std::tuple<core::TensorRole, int32_t, int32_t> write_order(const ShardTable& targets, int32_t target) {
  const int32_t tensor = targets.tensor_of(static_cast<size_t>(target));
  return {targets.role(tensor), tensor, target};
}

class Sink {
 public:
  // Removes everything written unless commit() was called; never throws.
  virtual ~Sink() = default;

  // Announces the targets: every shard with its final dtype. `targets` must stay valid until commit() returns.
  // Throws kIo if there is not enough space, kUnsupported if the format cannot represent a target.
  virtual void begin(const CheckpointInfo& info, const ShardTable& targets) = 0;

  // Writes the elements [first, first + count) of target `target`, in the row-major order of its local_shape, in its
  // dtype.
  // first is a multiple of chunk_elements(target); count is that or the rest. Each range is written exactly once.
  // Thread-safe for different ranges. Threads start the ranges of one file in the order of write_order and `first`, so
  // that a write may wait for an earlier one. The address of data is page_offset(target, first) bytes after a multiple
  // of 4096.
  virtual void write(int32_t target, int64_t first, int64_t count, const std::byte* data) = 0;

  // Offset of the range in its file, modulo 4096: memory with the same alignment is written without a copy
  // (core/io/bulk_writer.h). Thread-safe.
  virtual int64_t page_offset(int32_t /*target*/, int64_t /*first*/) { return 0; }

  // True if an earlier attempt at the same job wrote these elements and reading them back proves it; they are then not
  // written again. The range as in write(); scratch: room for it, then holds the elements. Thread-safe.
  virtual bool keep(int32_t /*target*/, int64_t /*first*/, int64_t /*count*/, std::byte* /*scratch*/) { return false; }

  // Whether this process must write the target: false if another process writes it or an earlier one has written it.
  virtual bool wants(int32_t /*target*/) const { return true; }

  // Runs `writing`, which writes all wanted targets. Processes that write one checkpoint together agree on the outcome:
  // if it throws on one, it throws on all.
  virtual void agree(const std::function<void()>& writing) { writing(); }

  // Some writes will not be made: writes that wait for them throw.
  virtual void stop() {}

  // Upper bound of the memory that a thread keeps between writes.
  virtual int64_t scratch_bytes() const { return 0; }

  // Makes the result durable and visible; returns its path. Call once.
  virtual std::filesystem::path commit() = 0;

  // A number that identifies the file of a target: files of consecutive targets are written at the same time, a few of
  // them.
  virtual int32_t file_of(int32_t /*target*/) const { return 0; }

  // How many files are written at the same time. More: source bytes that several files need are read once. Fewer: files
  // are finished earlier.
  virtual size_t files_at_once() const { return 16; }

  // Elements per write; the default is 8 MiB worth, the granularity of our checksums.
  virtual int64_t chunk_elements(const core::ShardedTensor& target) const {
    return (int64_t{8} << 20) / core::size_of(target.dtype);
  }
};

}  // namespace ms::ckpt
