// A source reads a checkpoint of any format as boxes of global tensors.
//
// reader.h implements the native format; convert/ implements the others (Hugging Face, Megatron, ..). If the model is
// known (CheckpointInfo::has_model) tensors are canonical: Megatron core's name with the global layer index, linear_qkv
// packed per group, linear_fc1 as [gate; up], vocabulary tensors with exactly vocab_size rows (padding rows are not
// part of a checkpoint). Otherwise names and shards are those of the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/shard_table.h"
#include "core/io/json.h"
#include "core/transformer_config.h"

namespace ms::ckpt {

// What a checkpoint contains besides its tensors.
struct CheckpointInfo {
  int64_t iteration = 0;
  bool has_model = true;  // false: a set of named tensors; model is unused and keys are not canonical
  nlohmann::json layout = nlohmann::json::object();       // as layout.h writes it; empty if the format has none
  core::TransformerConfig model;                          // resolved; vocab_size is the true size
  nlohmann::json model_extra = nlohmann::json::object();  // further keys of the manifest's "model", e.g. family
  nlohmann::json common = nlohmann::json::object();       // consumed_train_samples, scheduler, rng, step, ..
};

// Content of a checkpoint's files that is not read.
struct Leftover {
  std::string name;    // of the tensor or entry
  std::string place;   // its file
  std::string why;     // the reason: "the index names another file for it"
  bool again = false;  // a tensor of this name is read from elsewhere
};

class Source {
 public:
  virtual ~Source() = default;

  virtual const CheckpointInfo& info() const = 0;

  // All shards, in a stable order; the functions below take indices into this table. Valid as long as the source.
  virtual const ShardTable& shards() const = 0;

  // Reads the box [offset, offset + extent) of shard `shard` (elements, within the shard) to `out`: dense, row-major,
  // the shard's dtype, num_elements(extent) * size_of(dtype) bytes. Thread-safe. Scratch memory is bounded (<= 16 MiB).
  // Throws kCorruptData if the data contradicts its checksum or the file's size, kIo if it cannot be read; the text
  // names file, tensor and byte range.
  virtual void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) = 0;

  // As read, into a larger tensor: `out` is dense with out_shape, the box is stored at out_offset in it.
  virtual void read_into(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                         const core::Dims& out_shape, const core::Dims& out_offset);

  // Announces bulk reading: `threads` threads read at the same time, in an order that keeps neighbouring parts of a
  // tensor together. The source may cache up to cache_bytes. Returns whether it does; if not, the caller may.
  virtual bool expect_stream(int64_t /*cache_bytes*/, int /*threads*/) { return false; }

  // Allows the source to compare a checksum while parts of the data are read, instead of before: bytes that read()
  // returned are known to be right only when end_one_pass() returns. Call it after the last read(). It reads the rest
  // of data that was read in part, or with `all` of everything that the source lists, and throws as read().
  virtual void begin_one_pass() {}
  virtual void end_one_pass(bool /*all*/) {}

  // Upper bound of additional memory that a thread keeps between reads.
  virtual int64_t scratch_bytes() const { return 0; }

  // File and location of a shard, for messages: "iter_0000100/rank_00003.h5:/model/decoder.final_layernorm.weight".
  virtual std::string describe(int32_t shard) const = 0;

  // Content that is not read, so that a conversion loses it.
  virtual std::vector<Leftover> leftovers() const { return {}; }

  // The tensor's logical hash (logical_hash.h) if the format stores it.
  virtual std::optional<uint64_t> logical_xxh3(const std::string& /*key*/, core::TensorRole /*role*/) const {
    return std::nullopt;
  }
};

// For operations that need the model's structure: throws kUnsupported if the source is a set of named tensors. what: "a
// native checkpoint", "--target-tensor-parallel-size".
void require_model(const CheckpointInfo& info, std::string_view what);

// True if a box of this extent is contiguous in a dense row-major tensor of this shape.
bool is_one_run(const core::Dims& extent, const core::Dims& shape);

// True if the source has a tensor of this role.
bool has_role(const Source& source, core::TensorRole role);

}  // namespace ms::ckpt
