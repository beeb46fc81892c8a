#include "core/comm/detail/operation.h"

#include <sched.h>

#include "core/error.h"
#include "core/signals.h"

namespace ms::core::detail {
namespace {

// When a rank dies, mpirun sends SIGTERM to the others and kills them about 2 s later; a wait for the dead rank must
// report it before that. A wait for a live rank continues after a signal: the step is finished, and the run ends after
// it.
constexpr double kGraceAfterSignalS = 0.7;
constexpr int kPollsBeforeYield = 64;  // more ranks than cores is normal: spinning would keep a peer off its core

// 31 bits: context 10, kind 5 (0: collective, 1..16: point-to-point tag), sequence 16 (collectives only).
int32_t make_tag(int context, int kind, int64_t sequence) {
  return static_cast<int32_t>((context << 21) | (kind << 16) | static_cast<int>(kind == 0 ? sequence & 0xffff : 0));
}

}  // namespace

Operation::Operation(Communicator& comm, const OperationFacts& facts, int p2p_tag, int peer)
    : comm_(comm),
      facts_(facts),
      tag_(make_tag(comm.context_, p2p_tag + 1, facts.sequence)),
      peer_(peer),
      start_ns_(trace::now_ns()) {}

void Operation::send(const void* data, int64_t size_bytes, int peer) {
  const int world = comm_.world_ranks_[static_cast<size_t>(peer)];
  posted_.push_back({comm_.endpoint_.transport_->isend(data, size_bytes, world, tag_), peer, false});
}

void Operation::recv(void* data, int64_t size_bytes, int peer) {
  const int world = comm_.world_ranks_[static_cast<size_t>(peer)];
  posted_.push_back({comm_.endpoint_.transport_->irecv(data, size_bytes, world, tag_), peer, true});
}

bool Operation::step() {
  if (done_) return true;
  while (true) {
    std::erase_if(posted_, [](Posted& posted) { return posted.request->test(); });
    if (!posted_.empty()) return false;
    if (arrived_ns_ == 0) arrived_ns_ = trace::now_ns();
    if (next_phase()) {
      finish();
      return true;
    }
  }
}

void Operation::finish() {
  done_ = true;
  const int64_t end_ns = trace::now_ns();
  CommCounter& counter = comm_.mutable_counter(facts_.op);
  ++counter.calls;
  counter.payload_bytes += facts_.payload_bytes;
  counter.ring_bytes += facts_.ring_bytes;
  counter.seconds += static_cast<double>(end_ns - start_ns_) * 1e-9;
  trace::Recorder* recorder = comm_.endpoint_.options_.recorder;
  if (recorder == nullptr || !recorder->active()) return;
  trace::CommEvent event;
  event.op = comm_op_name(facts_.op);
  event.group = comm_.name();
  event.ranks = &comm_.world_ranks();
  event.sequence = facts_.sequence;
  event.in_elements = facts_.in_elements;
  event.out_elements = facts_.out_elements;
  event.dtype = facts_.dtype;
  event.peer = peer_ < 0 ? -1 : comm_.world_ranks()[static_cast<size_t>(peer_)];
  event.start_ns = start_ns_;
  event.end_ns = end_ns;
  event.wait_ns = arrived_ns_ - start_ns_;
  event.blocking = blocking_;
  recorder->comm(event);
}

std::string Operation::silent_peers() const {
  std::vector<int> ranks;
  for (const Posted& posted : posted_) {
    const int world = comm_.world_ranks_[static_cast<size_t>(posted.peer)];
    if (std::find(ranks.begin(), ranks.end(), world) == ranks.end()) ranks.push_back(world);
  }
  return cat(ranks.size() == 1 ? "rank " : "ranks ", ranks);
}

bool Operation::waits_for_the_dead() const {
  return std::any_of(posted_.begin(), posted_.end(), [&](const Posted& posted) {
    return !comm_.endpoint_.transport_->peer_lives(comm_.world_ranks_[static_cast<size_t>(posted.peer)]);
  });
}

void Operation::wait(double timeout_s) {
  if (done_) return;
  blocking_ = trace::now_ns() - start_ns_ < 20'000;  // waited for at once: nothing was computed in between
  const int64_t began_ns = trace::now_ns();
  for (int64_t polls = 0; !done_; ++polls) {
    comm_.endpoint_.progress();
    if (done_) return;
    if (polls < kPollsBeforeYield) continue;
    ::sched_yield();
    if (polls % 64 != 0) continue;
    const double waited_s = static_cast<double>(trace::now_ns() - began_ns) * 1e-9;
    const int signal = termination_signal();
    const bool ended = signal != 0 && waited_s > kGraceAfterSignalS &&
                       seconds_since_termination() > kGraceAfterSignalS && waits_for_the_dead();
    if (waited_s < timeout_s && !ended) continue;
    comm_.endpoint_.peer_failed_ = true;
    throw Error(ErrorCode::kPeerFailed,
                cat(comm_op_name(facts_.op), " ", facts_.sequence, " in group ", comm_.name(), " ", comm_.world_ranks(),
                    ": ", silent_peers(), " silent for ", waited_s, " s, ",
                    ended ? cat("and signal ", signal, " has come: a rank of the job has died")
                          : cat("the limit is ", timeout_s,
                                " s: it has died or is stuck; see its own log, or raise "
                                "--distributed-timeout-minutes")));
  }
}

}  // namespace ms::core::detail
