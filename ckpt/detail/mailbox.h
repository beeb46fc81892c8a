// Messages between the writer threads of several ranks, over their own transport. Every wait has a time limit, checks
// whether the peer is alive and whether the save was given up, and names the peer in errors.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ckpt/detail/outcome.h"
#include "ckpt/writer.h"
#include "core/comm/communicator.h"
#include "core/comm/transport.h"

namespace ms::ckpt {

// True if the trainer's thread must move the messages, not the thread that posts them. Throws kUnsupported if the
// transport does not support the requested mode.
bool trainer_moves_messages(GatherProgress wanted, const core::Endpoint& endpoint);

// Waits until done() is true (called with the lock held), for at most limit_s; wakes up on `changed`. If endpoint is
// not null, the caller moves messages meanwhile. Returns false on timeout.
bool wait_moving(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, core::Endpoint* endpoint,
                 const std::function<bool()>& done, double limit_s);

// Created and destroyed by the thread that owns the transport; used by one other thread.
class Mailbox {
 public:
  class Transfer;
  Mailbox(std::unique_ptr<core::Transport> transport, GiveUp give_up);
  ~Mailbox();

  int rank() const { return transport_->rank(); }
  // Messages of one round never match those of another; all members must advance together.
  void next_round() { ++round_; }

  // memory: kept alive until the transfer is complete, even if the caller is gone; may be null.
  Transfer post_send(int peer, const std::byte* data, int64_t size_bytes, std::shared_ptr<const void> memory);
  Transfer post_receive(int peer, std::byte* data, int64_t size_bytes, std::shared_ptr<const void> memory);
  // Sends a text of any length as two messages.
  std::vector<Transfer> post_text(int peer, const std::string& text);
  void send_text(int peer, const std::string& text, double limit_s);
  std::string receive_text(int peer, double limit_s);

 private:
  // Requests that were abandoned before they were complete, with the memory that they may still write to.
  struct Abandoned {
    std::shared_ptr<const void> memory;
    std::unique_ptr<core::TransferRequest> request;
  };
  std::unique_ptr<core::Transport> transport_;
  GiveUp give_up_;
  std::vector<Abandoned> abandoned_;
  int32_t round_ = 0;
};

// One message in flight. If it is destroyed before it is complete, the mailbox keeps its memory.
class Mailbox::Transfer {
 public:
  Transfer(Mailbox& mailbox, int peer, std::unique_ptr<core::TransferRequest> request,
           std::shared_ptr<const void> memory)
      : mailbox_(&mailbox), peer_(peer), request_(std::move(request)), memory_(std::move(memory)) {}
  Transfer(Transfer&& other) noexcept = default;
  Transfer& operator=(Transfer&&) = delete;
  ~Transfer();
  void wait(double limit_s);  // throws kPeerFailed, and names the peer

 private:
  bool test();
  Mailbox* mailbox_;
  int peer_;
  std::unique_ptr<core::TransferRequest> request_;
  std::shared_ptr<const void> memory_;
};

}  // namespace ms::ckpt
