// Messages between the writer threads of several ranks, over a transport of their own: every wait has a limit, looks
// whether the peer lives and whether waiting has been given up, and names the peer when it fails.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ckpt/writer.h"
#include "core/comm/communicator.h"
#include "core/comm/transport.h"

namespace ms::ckpt {

// Whether the trainer's thread is to move the messages, and not the one that posts them. Throws kUnsupported if that is
// wanted and the transport does not allow it.
bool trainer_moves_messages(GatherProgress wanted, const core::Endpoint& endpoint);

// Waits for `done`, asked with the lock held, until `changed` or limit_s is over; messages that are the caller's to
// move (endpoint not null) go on meanwhile. False: not within limit_s.
bool wait_moving(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, core::Endpoint* endpoint,
                 const std::function<bool()>& done, double limit_s);

// Made and destroyed by the thread that the transport belongs to; used by one other.
class Mailbox {
 public:
  class Transfer;
  // give_up: asked while waiting; an error_text (save_job.h) ends the wait.
  Mailbox(std::unique_ptr<core::Transport> transport, std::function<std::string()> give_up);
  ~Mailbox();

  int rank() const { return transport_->rank(); }
  // Messages of one round never match those of another; all members go through the same ones.
  void next_round() { ++round_; }

  // memory: kept until the transfer is complete, whatever becomes of the caller; may be null.
  Transfer post_send(int peer, const std::byte* data, int64_t size_bytes, std::shared_ptr<const void> memory);
  Transfer post_receive(int peer, std::byte* data, int64_t size_bytes, std::shared_ptr<const void> memory);
  // A text of any length, in two messages.
  std::vector<Transfer> post_text(int peer, const std::string& text);
  void send_text(int peer, const std::string& text, double limit_s);
  std::string receive_text(int peer, double limit_s);

 private:
  // Requests that were given up before they were complete, with the memory that they may still fill.
  struct Abandoned {
    std::shared_ptr<const void> memory;
    std::unique_ptr<core::TransferRequest> request;
  };
  std::unique_ptr<core::Transport> transport_;
  std::function<std::string()> give_up_;
  std::vector<Abandoned> abandoned_;
  int32_t round_ = 0;
};

// One message under way. If it is dropped before it is complete its memory is kept with it.
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
