#include "core/comm/detail/mailed.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/comm/detail/mailbox.h"
#include "core/error.h"

namespace ms::core::detail {
namespace {

// Each rank that writes() puts its part into its slot; a rank that awaits() another's ends when that is there.
class Mailed : public Operation {
 public:
  Mailed(Communicator& comm, const OperationFacts& facts)
      : Operation(comm, facts), place_(mailbox().next()), parts_(static_cast<size_t>(comm.size())) {}

  void begin() override {
    for (int peer = 0; peer < size(); ++peer) missing_ += awaits(peer) ? 1 : 0;
    if (!writes()) is_released_ = true;
    write();
  }

  bool next_phase() override {
    read();
    mailbox().end(place_);
    return true;
  }

 protected:
  virtual bool writes() const { return true; }
  virtual bool awaits(int peer) const { return peer != rank(); }
  virtual TensorView own_part() const = 0;
  virtual void read() = 0;  // all that was awaited has come
  const std::byte* part(int peer) const { return parts_[static_cast<size_t>(peer)]; }

  bool others_have_come() override {
    if (!is_released_) write();
    for (int peer = 0; missing_ > 0 && peer < size(); ++peer) {
      if (!awaits(peer) || part(peer) != nullptr) continue;
      const MailSlot* const slot = mailbox().readable(peer, place_);
      if (slot == nullptr) continue;
      check_announcement(peer, slot->announcement);
      parts_[static_cast<size_t>(peer)] = slot->data.data();
      note_arrival(peer);
      --missing_;
    }
    return missing_ == 0 && is_released_ && mailbox().is_next_to_end(place_);
  }

  bool awaits_members() override {
    for (int peer = 0; missing_ > 0 && peer < size(); ++peer) {
      if (awaits(peer) && part(peer) == nullptr && mailbox().readable(peer, place_) != nullptr) return false;
    }
    return is_released_ && missing_ > 0;
  }

  std::vector<int> awaited_peers() const override {
    std::vector<int> peers;
    for (int peer = 0; peer < size(); ++peer) {
      const bool keeps_slot = missing_ == 0 && !is_released_ && peer != rank();
      if (keeps_slot || (awaits(peer) && part(peer) == nullptr)) peers.push_back(peer);
    }
    return peers;
  }

 private:
  void write() {
    if (is_released_) return;
    if (!is_written_) {
      MailSlot* const slot = mailbox().writable(place_);
      if (slot == nullptr) return;
      const TensorView own = own_part();
      slot->announcement = announcement(rank(), false);
      copy_bytes(slot->data.data(), own.bytes(), own.size_bytes());
      is_written_ = true;
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != rank()) due_ns_ = std::max(due_ns_, arrival_ns(peer, own.size_bytes()));
      }
    }
    if (due_ns_ != 0 && trace::now_ns() < due_ns_) return;
    mailbox().release(place_);
    is_released_ = true;
  }

  uint64_t place_;                       // among the mailed operations of the group
  std::vector<const std::byte*> parts_;  // of each rank; null: not there yet, or not awaited
  int missing_ = 0;
  int64_t due_ns_ = 0;  // when a slow link would have carried it
  bool is_written_ = false, is_released_ = false;
};

class MailedAllreduce final : public Mailed {
 public:
  MailedAllreduce(Communicator& comm, const OperationFacts& facts, const TensorView& data, ReduceOp op)
      : Mailed(comm, facts), data_(data), op_(op) {}

 private:
  TensorView own_part() const override { return data_; }
  void read() override {
    std::vector<const std::byte*> inputs;
    inputs.reserve(static_cast<size_t>(size()));
    for (int peer = 0; peer < size(); ++peer) inputs.push_back(peer == rank() ? data_.bytes() : part(peer));
    reduce(data_.dtype(), inputs, data_.bytes(), data_.size(), op_, nullptr);
  }
  TensorView data_;
  ReduceOp op_;
};

class MailedAllgather final : public Mailed {
 public:
  MailedAllgather(Communicator& comm, const OperationFacts& facts, const TensorView& input, std::vector<int64_t> counts,
                  const TensorView& output)
      : Mailed(comm, facts), input_(input), counts_(std::move(counts)), output_(output) {}

 private:
  TensorView own_part() const override { return input_; }
  void read() override {
    std::byte* block = output_.bytes();
    for (int peer = 0; peer < size(); ++peer) {
      const int64_t bytes = counts_[static_cast<size_t>(peer)] * size_of(output_.dtype());
      if (peer != rank()) {
        copy_bytes(block, part(peer), bytes);
      } else if (block != input_.bytes()) {
        copy_bytes(block, input_.bytes(), bytes);
      }
      block += bytes;
    }
  }
  TensorView input_;
  std::vector<int64_t> counts_;
  TensorView output_;
};

class MailedBcast final : public Mailed {
 public:
  MailedBcast(Communicator& comm, const OperationFacts& facts, const TensorView& data, int root)
      : Mailed(comm, facts), data_(data), root_(root) {}

 private:
  bool writes() const override { return rank() == root_; }
  bool awaits(int peer) const override { return peer == root_ && rank() != root_; }
  TensorView own_part() const override { return data_; }
  void read() override {
    if (rank() != root_) copy_bytes(data_.bytes(), part(root_), data_.size_bytes());
  }
  TensorView data_;
  int root_;
};

}  // namespace

bool is_mailed(const Communicator& comm, int64_t bytes) { return comm.has_mailbox() && bytes <= kSmallAllreduceBytes; }

std::shared_ptr<Operation> make_mailed_allreduce(Communicator& comm, const OperationFacts& facts,
                                                 const TensorView& data, ReduceOp op) {
  return std::make_shared<MailedAllreduce>(comm, facts, data, op);
}

std::shared_ptr<Operation> make_mailed_allgather(Communicator& comm, const OperationFacts& facts,
                                                 const TensorView& input, std::vector<int64_t> counts,
                                                 const TensorView& output) {
  return std::make_shared<MailedAllgather>(comm, facts, input, std::move(counts), output);
}

std::shared_ptr<Operation> make_mailed_bcast(Communicator& comm, const OperationFacts& facts, const TensorView& data,
                                             int root) {
  return std::make_shared<MailedBcast>(comm, facts, data, root);
}

}  // namespace ms::core::detail
