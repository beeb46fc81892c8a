// Carries out a plan: reads every source box that a target needs, converts its dtype, writes the targets.
//
// The targets of a few files at a time are written tensor by tensor, in the order of places in the tensor, so that a
// source chunk that several of them want is read once. Many chunks are under way at a time, each read, assembled and
// written by one thread. Memory is bounded by mem_bytes whatever the size of the checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "ckpt/sink.h"
#include "ckpt/source.h"

namespace ms::ckpt {

inline constexpr int64_t kMinMemBytes = int64_t{64} << 20;

struct ExecuteOptions {
  int64_t mem_bytes = int64_t{256} << 20;  // --mem: the process as a whole; at least kMinMemBytes
  int threads = 1;                         // cores to use; fewer if mem_bytes does not carry their buffers
  std::function<bool()> stopped;           // asked between chunks; when true, execute throws kIo "interrupted"
  std::function<void(int64_t done, int64_t total)> progress;  // target bytes; from one thread at a time; may be empty
};

struct ExecuteReport {
  std::filesystem::path path;  // what the sink made
  int64_t copies = 0;          // by this process
  int64_t bytes = 0;           // of targets
  int64_t kept_bytes = 0;      // of these, what an earlier attempt had written (Sink::keep); by this process
  double seconds = 0;
};

// begin, all writes of what the sink wants, commit. `targets` as for plan_copies. Source shards that no target wants
// are left out (the caller decides what may be dropped). dtypes: equal, or among fp32, bf16 and fp16 on both sides
// (convert_elements). Throws what plan_copies, source, and sink throw; then the sink has not been committed.
ExecuteReport execute(Source& source, Sink& sink, const CheckpointInfo& info, const ShardTable& targets,
                      const ExecuteOptions& options);

// One piece of a rank's memory that a checkpoint is to fill.
struct ShardTarget {
  core::ShardedTensor meta;
  std::byte* data = nullptr;  // dense, row-major, meta.local_shape of meta.dtype; not owned
};

// Fills one rank's shards from a checkpoint of any layout, checking what it reads. Local: no communication.
// stopped: asked between reads; when true, kIo "interrupted" is thrown. Throws kCorruptData naming the tensor if the
// source lacks it, and as Source::read; kInvalidArgument if a shape differs.
void load_shards(Source& source, std::span<const ShardTarget> targets, const std::function<bool()>& stopped = {});

// Converts count elements; from == to is a memcpy. Rounds to nearest even, NaN stays NaN. Throws kUnsupported for a
// pair that is not {fp32, bf16, fp16} x {fp32, bf16, fp16}, and kInvalidArgument if a finite value overflows fp16.
void convert_elements(const std::byte* source, core::DType from, std::byte* target, core::DType to, int64_t count);

}  // namespace ms::ckpt
