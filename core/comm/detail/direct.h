// Collectives of ranks that address each other's memory (Transport::share): each rank reads and writes its part of the
// others' buffers itself, without messages that carry data and without scratch.
//
// First every rank tells the others where its buffer lies; a rank that has begun leaves the buffer alone until all are
// done, so the others may use it from then on. If one of the buffers lies outside of its rank's range, all ranks see
// that, and exchange messages instead. Ranks of a group with mailboxes tell each other by notices there, those of a
// level (two_levels.h), which has none, by messages.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "core/comm/detail/operation.h"
#include "core/trace/recorder.h"

namespace ms::core::detail {

// Messages: the collective by messages, an Operation that also has
//   static constexpr bool kOthersWrite;         whether the others write into this rank's buffer; else they read it
//   TensorView announced() const;               that buffer
//   int64_t direct_chunks() const;              number of parts of this rank's work
//   int64_t move(int64_t chunk, peers);         does one; peers: each rank's announced buffer, by rank. Returns the
//                                               bytes that were moved to or from each peer
template <class Messages>
class Direct final : public Messages {
 public:
  template <class... Arguments>
  explicit Direct(Communicator& comm, const Arguments&... arguments)
      : Messages(comm, arguments...), is_mailed_(comm.has_mailbox()) {
    if (is_mailed_) number_ = this->mailbox().next_notice();
  }

  void begin() override {
    const TensorView announced = this->announced();
    offsets_.assign(static_cast<size_t>(this->size()), -1);
    own() = this->shared_offset(announced);
    if (is_mailed_) return await_all(sizeof(int64_t));
    to_peers(&own(), sizeof(int64_t), [&](int peer) { return &offsets_[static_cast<size_t>(peer)]; });
  }

  bool next_phase() override {
    switch (phase_) {
      case kAnnounced:
        phase_ = find_buffers() ? kMoving : kMessages;
        if (phase_ == kMoving) return false;
        if (is_mailed_) this->mailbox().end_notice(number_);
        Messages::begin();
        return false;
      case kMoving:
        if (chunk_ < this->direct_chunks()) {
          moved_ += this->move(chunk_++, buffers_);
          this->pause();
          return false;
        }
        phase_ = kDone;
        tell_end();
        return false;
      case kDone:
        return true;
      case kMessages:
        break;
    }
    return Messages::next_phase();
  }

 protected:
  bool others_have_come() override {
    if (!meets()) return Messages::others_have_come();
    if (!is_told_ && (due_ns_ == 0 || trace::now_ns() >= due_ns_)) is_told_ = tell();
    if (!is_told_ || !this->mailbox().have_all(point(), number_)) return false;
    if (phase_ == kAnnounced) hear_all();
    return true;
  }

  bool awaits_members() override { return meets() && is_told_ && !this->mailbox().have_all(point(), number_); }

  // Before it has told, one of them keeps the place of the notice.
  std::vector<int> awaited_peers() const override {
    if (!is_mailed_) return Messages::awaited_peers();
    std::vector<int> peers;
    for (int peer = 0; meets() && peer < this->size(); ++peer) {
      if (peer != this->rank() && !(is_told_ && has_come(peer))) peers.push_back(peer);
    }
    return peers;
  }

 private:
  int64_t& own() { return offsets_[static_cast<size_t>(this->rank())]; }

  // Whether all ranks wait for each other at a point of the mailbox.
  bool meets() const { return is_mailed_ && (phase_ == kAnnounced || phase_ == kDone); }
  NoticePoint point() const { return phase_ == kDone ? NoticePoint::kEnded : NoticePoint::kPosted; }
  bool has_come(int peer) const {
    return phase_ == kDone ? this->mailbox().has_ended_notice(peer, number_)
                           : this->mailbox().notice_of(peer, number_) != nullptr;
  }

  // What this rank is about to tell arrives at the others when a slow link would have carried so many bytes.
  void await_all(int64_t size_bytes) {
    is_told_ = false;
    for (int peer = 0; peer < this->size(); ++peer) {
      if (peer != this->rank()) due_ns_ = std::max(due_ns_, this->arrival_ns(peer, size_bytes));
    }
  }
  bool tell() {
    if (phase_ == kAnnounced)
      return this->mailbox().post_notice(number_, this->announcement(this->rank(), false), own());
    this->mailbox().end_notice(number_);
    return true;
  }
  // All have posted their notices.
  void hear_all() {
    for (int peer = 0; peer < this->size(); ++peer) {
      if (peer == this->rank()) continue;
      const Notice& notice = *this->mailbox().notice_of(peer, number_);
      this->check_announcement(peer, notice.announcement);
      offsets_[static_cast<size_t>(peer)] = notice.offset;
    }
    const int last = this->mailbox().last_to(NoticePoint::kPosted, number_);
    if (last != this->rank()) this->note_arrival(last);
  }

  void tell_end() {
    if (is_mailed_) {
      await_all(moved_);
      if (!Messages::kOthersWrite && due_ns_ == 0) this->note_output();
      return;
    }
    for (int peer = 0; peer < this->size(); ++peer) this->charge(peer, moved_);
    to_peers(&own(), 1, [&](int peer) { return &offsets_[static_cast<size_t>(peer)]; });
  }
  template <class Place>
  void to_peers(const void* data, int64_t size_bytes, const Place& place) {
    for (int step = 1; step < this->size(); ++step) {
      const int peer = (this->rank() + step) % this->size();
      this->recv(place(peer), size_bytes, peer);
      this->send(data, size_bytes, peer);
    }
  }

  bool find_buffers() {
    if (std::ranges::any_of(offsets_, [](int64_t offset) { return offset < 0; })) return false;
    for (int peer = 0; peer < this->size(); ++peer) {
      buffers_.push_back(peer == this->rank() ? this->announced().bytes()
                                              : this->shared_address(peer, offsets_[static_cast<size_t>(peer)]));
    }
    return true;
  }

  enum : uint8_t { kAnnounced, kMoving, kDone, kMessages } phase_ = kAnnounced;
  std::vector<int64_t> offsets_;     // of each rank's buffer in its range; -1: outside
  std::vector<std::byte*> buffers_;  // by rank
  int64_t chunk_ = 0, moved_ = 0;
  const bool is_mailed_;
  // With mailboxes: the number of its notices, when it may tell what it has to, and whether it has.
  uint64_t number_ = 0;
  int64_t due_ns_ = 0;
  bool is_told_ = false;
};

}  // namespace ms::core::detail
