// A sink that keeps nothing, for sources that are holes: it takes every element's place, and sees that they are zeros.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <utility>

#include "ckpt/sink.h"

namespace ms::bench {

class NullSink final : public ckpt::Sink {
 public:
  // file_of: as the sink has it that would write.
  explicit NullSink(std::function<int32_t(int32_t target)> file_of) : file_of_(std::move(file_of)) {}
  void begin(const ckpt::CheckpointInfo&, const ckpt::ShardTable& targets) override { targets_ = &targets; }
  void write(int32_t target, int64_t, int64_t count, const std::byte* data) override {
    const int64_t bytes = count * core::size_of(targets_->dtype_of(static_cast<size_t>(target)));
    bool zero = true;
    for (int64_t i = 0; i < bytes; i += 4096) zero = zero && data[i] == std::byte{0};
    if (!zero) wrong_ = true;
    elements_ += count;
  }
  std::filesystem::path commit() override { return "nowhere"; }
  int32_t file_of(int32_t target) const override { return file_of_(target); }
  int64_t elements() const { return wrong_ ? -1 : elements_.load(); }  // that were zeros; -1: some were not

 private:
  std::function<int32_t(int32_t)> file_of_;
  const ckpt::ShardTable* targets_ = nullptr;
  std::atomic<int64_t> elements_{0};
  std::atomic<bool> wrong_{false};
};

}  // namespace ms::bench
