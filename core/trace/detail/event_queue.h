// A queue of events from one thread to the writer: lock-free, never blocks, grows by blocks up to a bound, beyond which
// events are dropped and counted.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "core/trace/event.h"

namespace ms::core::trace::detail {

class EventQueue {
 public:
  EventQueue() : tail_(new Block), head_(tail_) {}
  ~EventQueue() {
    delete spare_.load();
    while (head_ != nullptr) delete std::exchange(head_, head_->next.load());
  }
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // Producer thread only.
  void push(const Event& event) {
    uint32_t used = tail_->used.load(std::memory_order_relaxed);
    if (used == kBlockEvents) {
      if (!grow()) return;
      used = 0;
    }
    tail_->events[used] = event;
    tail_->used.store(used + 1, std::memory_order_release);
  }

  // Consumer only: moves what has been published to the end of `out`.
  void drain(std::vector<Event>& out) {
    while (true) {
      const uint32_t used = head_->used.load(std::memory_order_acquire);
      out.insert(out.end(), head_->events.begin() + taken_, head_->events.begin() + used);
      taken_ = used;
      Block* next = used == kBlockEvents ? head_->next.load(std::memory_order_acquire) : nullptr;
      if (next == nullptr) return;
      Block* empty = std::exchange(head_, next);
      taken_ = 0;
      blocks_.fetch_sub(1, std::memory_order_relaxed);
      empty->used.store(0, std::memory_order_relaxed);
      empty->next.store(nullptr, std::memory_order_relaxed);
      delete spare_.exchange(empty, std::memory_order_acq_rel);
    }
  }

  int64_t take_dropped() { return dropped_.exchange(0, std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kBlockEvents = 4096;
  static constexpr int kMaxBlocks = 512;  // 150 MB that a thread may be ahead of the writer
  struct Block {
    std::array<Event, kBlockEvents> events;
    std::atomic<uint32_t> used{0};
    std::atomic<Block*> next{nullptr};
  };

  bool grow() {
    if (blocks_.load(std::memory_order_relaxed) >= kMaxBlocks) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    Block* block = spare_.exchange(nullptr, std::memory_order_acq_rel);
    if (block == nullptr) block = new Block;
    blocks_.fetch_add(1, std::memory_order_relaxed);
    tail_->next.store(block, std::memory_order_release);
    tail_ = block;
    return true;
  }

  Block* tail_;         // producer's
  Block* head_;         // consumer's
  uint32_t taken_ = 0;  // of head_
  std::atomic<Block*> spare_{nullptr};
  std::atomic<int> blocks_{1};
  std::atomic<int64_t> dropped_{0};
};

}  // namespace ms::core::trace::detail
