// Executes a reshard plan: reads every source box that a target needs, converts its dtype and writes the targets.
//
// The targets of a few files at a time are written tensor by tensor, ordered by position in the tensor, so that a
// source chunk that several targets need is read once. Many chunks are in flight; each is read, assembled and written
// by one thread. mem_bytes bounds the memory, whatever the size of the checkpoint.
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
  int64_t mem_bytes = int64_t{256} << 20;  // --mem: limit for the whole process; at least kMinMemBytes
  int threads = 1;                         // cores to use; fewer if mem_bytes is too small for their buffers
  std::function<bool()> stopped;           // polled between chunks; if true, execute throws kIo "interrupted"
  std::function<void(int64_t done, int64_t total)> progress;  // target bytes; from one thread at a time; may be empty
};

struct ExecuteReport {
  std::filesystem::path path;  // what the sink committed
  int64_t copies = 0;          // made by this process
  int64_t bytes = 0;           // of targets
  int64_t kept_bytes = 0;      // of these, written by an earlier attempt (Sink::keep); this process
  double seconds = 0;
};

// Calls begin, write for everything that the sink wants, and commit. `targets` as for Planner. Source shards that no
// target needs are skipped (the caller decides what may be dropped). dtypes must be equal, or fp32, bf16 or fp16 on
// both sides (convert_elements). Throws what the planner, source and sink throw; the sink is then not committed.
ExecuteReport execute(Source& source, Sink& sink, const CheckpointInfo& info, const ShardTable& targets,
                      const ExecuteOptions& options);

// A piece of a rank's memory to fill from a checkpoint.
struct ShardTarget {
  core::ShardedTensor meta;
  std::byte* data = nullptr;  // dense, row-major, meta.local_shape of meta.dtype; not owned
};

// Fills one rank's shards from a checkpoint of any layout and checks the checksums of what it reads. Local: no
// communication.
// stopped: polled between reads; if true, throws kIo "interrupted". Throws kCorruptData naming the tensor if the source
// lacks it, what Source::read throws, and kInvalidArgument if a shape differs.
void load_shards(Source& source, std::span<const ShardTarget> targets, const std::function<bool()>& stopped = {});

// Converts count elements; a memcpy if from == to. Rounds to nearest even, NaN stays NaN. Throws kUnsupported for a
// pair that is not {fp32, bf16, fp16} x {fp32, bf16, fp16}, and kInvalidArgument if a finite value overflows fp16.
void convert_elements(const std::byte* source, core::DType from, std::byte* target, core::DType to, int64_t count);

}  // namespace ms::ckpt
