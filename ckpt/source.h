// Where tensors come from: a checkpoint of any format, seen as boxes of global tensors.
//
// The native reader (reader.h) is one; convert/ implements the others (Hugging Face, Megatron). Where the model is
// known (CheckpointInfo::has_model) tensors are canonical: mcore name with the global layer index, linear_qkv packed
// per group, linear_fc1 as [gate; up], vocabulary tensors with exactly vocab_size rows (padding rows are not part of a
// checkpoint). Else they are called and cut as their files have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/shard_table.h"
#include "core/transformer_config.h"

namespace ms::ckpt {

// What a checkpoint says besides its tensors.
struct CheckpointInfo {
  int64_t iteration = 0;
  bool has_model = true;  // false: a set of named tensors; model means nothing and keys are not canonical
  nlohmann::json layout = nlohmann::json::object();       // as layout.h writes it; empty when the format has none
  core::TransformerConfig model;                          // resolved; vocab_size is the true size
  nlohmann::json model_extra = nlohmann::json::object();  // further keys of the manifest's "model", e.g. family
  nlohmann::json common = nlohmann::json::object();       // consumed_train_samples, scheduler, rng, step, ..
};

// What a checkpoint's files hold besides its tensors.
struct Leftover {
  std::string name;    // of the tensor or entry
  std::string place;   // the file it is in
  std::string why;     // it is left out: "the index names another file for it"
  bool again = false;  // a tensor of this name is read from elsewhere
};

class Source {
 public:
  virtual ~Source() = default;

  virtual const CheckpointInfo& info() const = 0;

  // All shards, in a stable order; an index into this table names a shard below. Valid as long as the source.
  virtual const ShardTable& shards() const = 0;

  // Reads the box [offset, offset + extent) of shard `shard` (elements, within the shard) to `out`: dense, row-major,
  // the shard's dtype, num_elements(extent) * size_of(dtype) bytes. Thread-safe. Scratch memory is bounded (<= 16 MiB).
  // Throws kCorruptData if what was read contradicts its checksum or the file's size, kIo if it cannot be read; the
  // text names file, tensor and byte range.
  virtual void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) = 0;

  // The same into a larger tensor: `out` is dense of out_shape, the box goes to out_offset in it.
  virtual void read_into(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                         const core::Dims& out_shape, const core::Dims& out_offset);

  // From now on many threads read much, in an order where what is near in a tensor is asked for together: up to so many
  // bytes may be held for it. `threads`: as many read at a time.
  virtual void expect_stream(int64_t /*cache_bytes*/, int /*threads*/) {}

  // From now on a checksum of a whole may be compared as its parts are read, instead of before: bytes that read() has
  // returned are known to be right when end_one_pass() returns. It comes after the last read(), reads the rest of what
  // was read in part, or if `all` of everything that the source lists, and throws as read().
  virtual void begin_one_pass() {}
  virtual void end_one_pass(bool /*all*/) {}

  // Memory that a thread holds from read to read besides, at most.
  virtual int64_t scratch_bytes() const { return 0; }

  // File and place of a shard, for messages: "iter_0000100/rank_00003.h5:/model/decoder.final_layernorm.weight".
  virtual std::string describe(int32_t shard) const = 0;

  // Not read, and lost by a conversion.
  virtual std::vector<Leftover> leftovers() const { return {}; }

  // The tensor's logical hash (logical_hash.h) if the format stores it.
  virtual std::optional<uint64_t> logical_xxh3(const std::string& /*key*/, core::TensorRole /*role*/) const {
    return std::nullopt;
  }
};

// For what depends on the model's structure: throws kUnsupported if the source is a set of named tensors. what: "a
// native checkpoint", "--target-tensor-parallel-size".
void require_model(const CheckpointInfo& info, std::string_view what);

// Does a box of this extent lie in a dense row-major tensor of this shape as one run?
bool is_one_run(const core::Dims& extent, const core::Dims& shape);

// True if the source holds any tensor of this role.
bool has_role(const Source& source, core::TensorRole role);

}  // namespace ms::ckpt
