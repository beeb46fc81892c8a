// A sink that computes logical hashes of everything a conversion writes while it is written, so that nothing is read
// again.
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
  // nullopt if this process did not write all of it (an earlier attempt had finished a part), or if the target stores
  // the tensor several times.
  std::optional<uint64_t> logical_xxh3;
};

class HashingSink final : public Sink {
 public:
  // `sink` is not owned. Memory: pieces of cells that a cut splits (logical_hash.h) are held until the tensor is
  // complete, up to max_cut_bytes in all; tensors beyond that get no hash.
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

  // Call after the writing. Returns every tensor of the targets, in their order.
  std::vector<WrittenTensor> tensors() const;

 private:
  struct State {
    int64_t missing = 0;  // elements
    bool hashed = true;   // false: max_cut_bytes was exceeded or the tensor is stored several times
    LogicalPartial partial;
    std::optional<uint64_t> hash;
  };

  // nullopt if these elements do not count: they belong to a replica, or their dtype is not the tensor's.
  std::optional<LogicalPartial> partial_of(int32_t target, int64_t first, int64_t count, const std::byte* data) const;
  void add(int32_t target, int64_t count, const LogicalPartial& partial);

  Sink& sink_;
  const int64_t max_cut_bytes_;
  const ShardTable* targets_ = nullptr;
  std::vector<State> states_;  // one per tensor
  int64_t cut_bytes_ = 0;      // held now
  mutable std::mutex mutex_;
};

}  // namespace ms::ckpt
