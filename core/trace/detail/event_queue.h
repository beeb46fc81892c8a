// A queue of events from one thread to the writer: lock-free, never blocks, grows by blocks up to a limit, beyond which
// events are dropped and counted.
//
// Events are stored as words, without the fields that an event does not have: a kernel's span takes 24 bytes of the
// cache that the training step needs, while an Event takes 72.
#pragma once

#include <algorithm>
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
    if (used_ > kBlockWords - kMaxWords && !grow()) return;
    uint64_t* word = tail_->words.data() + used_;
    *word++ = event.name | static_cast<uint64_t>(event.lane) << 32 | static_cast<uint64_t>(event.kind) << 48 |
              static_cast<uint64_t>(event.flags) << 56;
    *word++ = static_cast<uint64_t>(event.start_ns);
    *word++ = static_cast<uint64_t>(event.dur_ns);
    visit(event, [&](auto value) { *word++ = static_cast<uint64_t>(value); });
    publish(word);
  }
  // push for an event without optional fields other than flops and bytes.
  void push_span(uint32_t name, uint16_t lane, EventKind kind, uint8_t flags, int64_t start, int64_t dur, int64_t flops,
                 int64_t bytes) {
    if (used_ > kBlockWords - kMaxWords && !grow()) return;
    uint64_t* word = tail_->words.data() + used_;
    *word++ = name | static_cast<uint64_t>(lane) << 32 | static_cast<uint64_t>(kind) << 48 |
              static_cast<uint64_t>(flags) << 56;
    *word++ = static_cast<uint64_t>(start);
    *word++ = static_cast<uint64_t>(dur);
    if (flags & kHasFlops) *word++ = static_cast<uint64_t>(flops);
    if (flags & kHasBytes) *word++ = static_cast<uint64_t>(bytes);
    publish(word);
  }

  // Consumer only: appends what has been published to `out`.
  void drain(std::vector<Event>& out) {
    while (true) {
      Block* next = head_->next.load(std::memory_order_acquire);  // read before `used`, which is then final
      const uint32_t used = head_->used.load(std::memory_order_acquire);
      const uint64_t* word = head_->words.data() + taken_;
      for (const uint64_t* end = head_->words.data() + used; word != end;) {
        Event& event = out.emplace_back();
        event.name = static_cast<uint32_t>(*word);
        event.lane = static_cast<uint16_t>(*word >> 32);
        event.kind = static_cast<EventKind>(*word >> 48 & 0xff);
        event.flags = static_cast<uint8_t>(*word++ >> 56);
        event.start_ns = static_cast<int64_t>(*word++);
        event.dur_ns = static_cast<int64_t>(*word++);
        visit(event, [&](auto& value) { value = static_cast<std::remove_reference_t<decltype(value)>>(*word++); });
      }
      taken_ = used;
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
  static constexpr uint32_t kBlockWords = 16384;
  static constexpr uint32_t kMaxWords = 12;  // of one event
  static constexpr int kMaxBlocks = 1200;    // 150 MB that a thread may be ahead of the writer
  struct Block {
    std::array<uint64_t, kBlockWords> words;
    std::atomic<uint32_t> used{0};
    std::atomic<Block*> next{nullptr};
  };

  // Visits the fields of this event after its first three words, in order.
  template <class EventRef, class Visit>
  static void visit(EventRef& event, Visit&& at) {
    if (event.flags & kHasFlops) at(event.values[0]);
    if (event.flags & kHasBytes) at(event.values[1]);
    if (event.flags & kHasCorrelation) at(event.correlation);
    if (event.flags & kHasStack) at(event.stack);
    if (event.flags & kHasShape || event.kind == EventKind::kComm) at(event.ref);
    const int values = event.kind == EventKind::kComm      ? 4
                       : event.kind == EventKind::kMemory  ? 3
                       : event.kind == EventKind::kCounter ? 1
                                                           : 0;
    for (int i = 0; i < values; ++i) at(event.values[static_cast<size_t>(i)]);
  }

  void publish(const uint64_t* end) {
    used_ = static_cast<uint32_t>(end - tail_->words.data());
    tail_->used.store(used_, std::memory_order_release);
  }

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
    used_ = 0;
    return true;
  }

  Block* tail_;         // producer
  uint32_t used_ = 0;   // of tail_; producer
  Block* head_;         // consumer
  uint32_t taken_ = 0;  // of head_
  std::atomic<Block*> spare_{nullptr};
  std::atomic<int> blocks_{1};
  std::atomic<int64_t> dropped_{0};
};

}  // namespace ms::core::trace::detail
