// A sink that hashes on the way: logical hashes of all that a conversion writes, without reading it again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/logical_hash.h"
#include "ckpt/sink.h"

namespace ms::ckpt {

struct WrittenTensor {
  std::string key;
  core::TensorRole role = core::TensorRole::kParam;
  core::DType dtype = core::DType::kFp32;
  core::Dims shape;
  // Nothing where a part of it was not written by this process, as one that an earlier attempt had finished, or where
  // the target stores it several times.
  std::optional<uint64_t> logical_xxh3;
};

class HashingSink final : public Sink {
 public:
  // `sink` is not owned. Memory: what cuts cells within a row (logical_hash.h) is held until the tensor is whole, up to
  // max_cut_bytes in all; tensors beyond that get no hash.
  explicit HashingSink(Sink& sink, int64_t max_cut_bytes = int64_t{16} << 20)
      : sink_(sink), max_cut_bytes_(max_cut_bytes) {}

  void begin(const CheckpointInfo& info, const ShardTable& targets) override;
  void write(int32_t target, int64_t first, int64_t count, const std::byte* data) override;
  bool keep(int32_t target, int64_t first, int64_t count, std::byte* scratch) override;
  int64_t page_offset(int32_t target, int64_t first) override { return sink_.page_offset(target, first); }
  bool wants(int32_t target) const override { return sink_.wants(target); }
  void agree(const std::function<void()>& writing) override { sink_.agree(writing); }
  void stop() override { sink_.stop(); }
  int64_t scratch_bytes() const override { return sink_.scratch_bytes(); }
  std::filesystem::path commit() override { return sink_.commit(); }
  int32_t file_of(int32_t target) const override { return sink_.file_of(target); }
  size_t files_at_once() const override { return sink_.files_at_once(); }
  int64_t chunk_elements(const core::ShardedTensor& target) const override { return sink_.chunk_elements(target); }

  // After the writing: every tensor of the targets, in their order.
  std::vector<WrittenTensor> tensors() const;

 private:
  struct State {
    int64_t missing = 0;  // elements
    bool hashed = true;   // still
    LogicalPartial partial;
    std::optional<uint64_t> hash;
  };

  // Nothing if these elements do not count: of a replica, or of another type than the tensor's.
  std::optional<LogicalPartial> partial_of(int32_t target, int64_t first, int64_t count, const std::byte* data) const;
  void add(int32_t target, int64_t count, const LogicalPartial& partial);

  Sink& sink_;
  const int64_t max_cut_bytes_;
  const ShardTable* targets_ = nullptr;
  std::vector<State> states_;  // of each tensor
  int64_t cut_bytes_ = 0;      // held
  mutable std::mutex mutex_;
};

}  // namespace ms::ckpt
