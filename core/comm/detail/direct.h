// Collectives of ranks that address each other's memory (Transport::share): each rank reads and writes its part of the
// others' buffers itself, without messages that carry data and without scratch.
//
// First every rank tells the others where its buffer lies; a rank that has begun leaves the buffer alone until all are
// done, so the others may use it from then on. If one of the buffers lies outside of its rank's range, all ranks see
// that, and exchange messages instead.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "core/comm/detail/operation.h"

namespace ms::core::detail {

// Messages: the collective by messages, an Operation that also has
//   TensorView announced() const;               the buffer that the others read or write
//   int64_t direct_chunks() const;              number of parts of this rank's work
//   int64_t move(int64_t chunk, peers);         does one; peers: each rank's announced buffer, by rank. Returns the
//                                               bytes that were moved to or from each peer
template <class Messages>
class Direct final : public Messages {
 public:
  using Messages::Messages;

  void begin() override {
    const TensorView announced = this->announced();
    offsets_.assign(static_cast<size_t>(this->size()), -1);
    own() = this->shared_offset(announced);
    to_peers(&own(), sizeof(int64_t), [&](int peer) { return &offsets_[static_cast<size_t>(peer)]; });
  }

  bool next_phase() override {
    switch (phase_) {
      case kAnnounced:
        phase_ = find_buffers() ? kMoving : kMessages;
        if (phase_ == kMessages) Messages::begin();
        return false;
      case kMoving:
        if (chunk_ < this->direct_chunks()) {
          moved_ += this->move(chunk_++, buffers_);
          this->pause();
          return false;
        }
        phase_ = kDone;
        for (int peer = 0; peer < this->size(); ++peer) this->charge(peer, moved_);
        to_peers(&own(), 1, [&](int peer) { return &offsets_[static_cast<size_t>(peer)]; });
        return false;
      case kDone:
        return true;
      case kMessages:
        break;
    }
    return Messages::next_phase();
  }

 private:
  int64_t& own() { return offsets_[static_cast<size_t>(this->rank())]; }

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
};

}  // namespace ms::core::detail
