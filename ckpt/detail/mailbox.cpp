#include "ckpt/detail/mailbox.h"

#include <sched.h>

#include <chrono>
#include <thread>
#include <utility>

#include "core/error.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using Clock = std::chrono::steady_clock;

constexpr int kPollsBeforeSleep = 64;
constexpr auto kSleep = std::chrono::microseconds(50);
constexpr auto kBetweenLooks = std::chrono::milliseconds(100);  // between checks of the peer and of give_up
constexpr int32_t kTags = 1 << 15;                              // MPI guarantees no more (MPI_TAG_UB)
constexpr int64_t kMaxTextBytes = int64_t{1} << 30;

constexpr double kMovingEveryS = 1e-4;

}  // namespace

bool wait_moving(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, core::Endpoint* endpoint,
                 const std::function<bool()>& done, double limit_s) {
  const std::chrono::duration<double> limit(limit_s);
  if (endpoint == nullptr) return changed.wait_for(lock, limit, done);
  const auto began = Clock::now();
  while (!changed.wait_for(lock, std::chrono::duration<double>(kMovingEveryS), done)) {
    if (Clock::now() - began > limit) return false;
    lock.unlock();
    endpoint->progress();
    lock.lock();
  }
  return true;
}

bool trainer_moves_messages(GatherProgress wanted, const core::Endpoint& endpoint) {
  if (wanted == GatherProgress::kWriter && !endpoint.any_thread()) {
    throw Error(ErrorCode::kUnsupported,
                "the writer thread cannot send messages: this MPI does not provide MPI_THREAD_MULTIPLE. Omit "
                "--ckpt-gather-progress");
  }
  return wanted == GatherProgress::kTrainer || !endpoint.any_thread();
}

Mailbox::Mailbox(std::unique_ptr<core::Transport> transport, GiveUp give_up)
    : transport_(std::move(transport)), give_up_(std::move(give_up)) {}

Mailbox::~Mailbox() = default;

Mailbox::Transfer::~Transfer() {
  if (request_ != nullptr) mailbox_->abandoned_.push_back({std::move(memory_), std::move(request_)});
}

void Mailbox::Transfer::wait(double limit_s) {
  const auto began = Clock::now();
  auto looked = began;
  for (int polls = 0; !test(); ++polls) {
    if (polls < kPollsBeforeSleep) {
      ::sched_yield();
      continue;
    }
    std::this_thread::sleep_for(kSleep);
    const auto now = Clock::now();
    if (now - looked < kBetweenLooks) continue;
    looked = now;
    if (const auto reason = mailbox_->give_up_()) throw *reason;
    if (!mailbox_->transport_->peer_lives(peer_)) {
      throw Error(ErrorCode::kPeerFailed, cat("rank ", peer_, " has died"));
    }
    if (std::chrono::duration<double>(now - began).count() > limit_s) {
      throw Error(ErrorCode::kPeerFailed,
                  cat("rank ", peer_, " silent for ", limit_s, " s (--ckpt-timeout); see its log"));
    }
  }
  request_.reset();
  memory_.reset();
}

bool Mailbox::Transfer::test() {
  try {
    return request_->test();
  } catch (const Error& e) {
    throw e.within(cat("rank ", peer_));
  }
}

Mailbox::Transfer Mailbox::post_send(int peer, const std::byte* data, int64_t size_bytes,
                                     std::shared_ptr<const void> memory) {
  return {*this, peer, transport_->isend(data, size_bytes, peer, round_ % kTags), std::move(memory)};
}

Mailbox::Transfer Mailbox::post_receive(int peer, std::byte* data, int64_t size_bytes,
                                        std::shared_ptr<const void> memory) {
  return {*this, peer, transport_->irecv(data, size_bytes, peer, round_ % kTags), std::move(memory)};
}

std::vector<Mailbox::Transfer> Mailbox::post_text(int peer, const std::string& text) {
  const auto kept = std::make_shared<std::pair<int64_t, std::string>>(static_cast<int64_t>(text.size()), text);
  std::vector<Transfer> posted;
  posted.push_back(post_send(peer, reinterpret_cast<const std::byte*>(&kept->first), sizeof kept->first, kept));
  if (!text.empty()) {
    posted.push_back(post_send(peer, reinterpret_cast<const std::byte*>(kept->second.data()), kept->first, kept));
  }
  return posted;
}

void Mailbox::send_text(int peer, const std::string& text, double limit_s) {
  for (Transfer& transfer : post_text(peer, text)) transfer.wait(limit_s);
}

std::string Mailbox::receive_text(int peer, double limit_s) {
  const auto kept = std::make_shared<std::pair<int64_t, std::string>>();
  post_receive(peer, reinterpret_cast<std::byte*>(&kept->first), sizeof kept->first, kept).wait(limit_s);
  MS_CHECK(kept->first >= 0 && kept->first <= kMaxTextBytes, "a text of ", kept->first, " bytes from rank ", peer);
  kept->second.resize(static_cast<size_t>(kept->first));
  if (kept->first > 0) {
    post_receive(peer, reinterpret_cast<std::byte*>(kept->second.data()), kept->first, kept).wait(limit_s);
  }
  return kept->second;
}

}  // namespace ms::ckpt
