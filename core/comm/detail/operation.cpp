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
constexpr auto kLastDtype = static_cast<int32_t>(DType::kFp8E5M2Fnuz);
constexpr int kPollsBeforeYield = 64;  // more ranks than cores is normal: spinning would keep a peer off its core

// 31 bits: context 10, kind 5 (0: collective, 1..16: point-to-point tag), sequence 16 (collectives only).
constexpr int kMaxKind = 16, kMaxSequence = 0xffff;
int32_t make_tag(int context, int kind, int64_t sequence) {
  return static_cast<int32_t>((context << 21) | (kind << 16) |
                              static_cast<int>(kind == 0 ? sequence & kMaxSequence : 0));
}

}  // namespace

int32_t max_tag_of(int context) { return make_tag(context, kMaxKind, 0) | kMaxSequence; }

Operation::Operation(Communicator& comm, const OperationFacts& facts, int p2p_tag, int peer)
    : comm_(comm),
      facts_(facts),
      tag_(make_tag(comm.context_, p2p_tag + 1, facts.sequence)),
      peer_(peer),
      told_(comm.world_ranks_.size()),
      heard_(comm.world_ranks_.size()),
      has_told_(comm.world_ranks_.size()),
      has_heard_(comm.world_ranks_.size()),
      start_ns_(trace::now_ns()) {}

int64_t Operation::agreed_elements(int, bool) const { return std::max(facts_.in_elements, facts_.out_elements); }

Operation::Announcement Operation::announcement(int peer, bool receive) const {
  const CommOp op = facts_.op == CommOp::kRecv ? CommOp::kSend : facts_.op;  // the two ends of one message
  return {static_cast<int32_t>(op), static_cast<int32_t>(facts_.dtype), agreed_elements(peer, receive)};
}

void Operation::check_announcement(int peer) const {
  const Announcement &theirs = heard_[static_cast<size_t>(peer)], ours = announcement(peer, true);
  if (theirs == ours) return;
  const auto text = [](const Announcement& a) {
    const bool known = a.op >= 0 && a.op < kNumCommOps && a.dtype >= 0 && a.dtype <= kLastDtype;
    return known ? cat(comm_op_name(static_cast<CommOp>(a.op)), " of ", a.elements, " ",
                       dtype_name(static_cast<DType>(a.dtype)))
                 : std::string("an unknown operation");
  };
  throw Error(ErrorCode::kInternal,
              cat("operation ", facts_.sequence, " of group ", comm_.name(), ": rank ",
                  comm_.world_ranks_[static_cast<size_t>(comm_.rank())], " is in ", text(ours), ", rank ",
                  comm_.world_ranks_[static_cast<size_t>(peer)], " in ", text(theirs),
                  ". The ranks have different configurations, or this is a bug: please report it"));
}

void Operation::send(const void* data, int64_t size_bytes, int peer) {
  Transport& transport = *comm_.endpoint_.transport_;
  const auto at = static_cast<size_t>(peer);
  const int world = comm_.world_ranks_[at];
  if (!has_told_[at]) {
    has_told_[at] = true;
    told_[at] = announcement(peer, false);
    posted_.push_back({transport.isend(&told_[at], sizeof(Announcement), world, tag_), peer});
  }
  posted_.push_back({transport.isend(data, size_bytes, world, tag_), peer});
}

void Operation::recv(void* data, int64_t size_bytes, int peer) {
  Transport& transport = *comm_.endpoint_.transport_;
  const auto at = static_cast<size_t>(peer);
  const int world = comm_.world_ranks_[at];
  if (!has_heard_[at]) {
    has_heard_[at] = true;
    posted_.push_back({transport.irecv(&heard_[at], sizeof(Announcement), world, tag_), peer, true});
  }
  posted_.push_back({transport.irecv(data, size_bytes, world, tag_), peer});
}

bool Operation::completes(Posted& posted) const {
  if (!posted.request->test()) return false;
  if (posted.is_announcement) check_announcement(posted.peer);
  return true;
}

bool Operation::step() {
  if (done_) return true;
  while (true) {
    for (size_t i = 0; i < posted_.size();) {  // posted_ stays valid if completes() throws
      if (completes(posted_[i])) {
        posted_.erase(posted_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    if (!posted_.empty()) return false;
    if (arrived_ns_ == 0) arrived_ns_ = trace::now_ns();
    if (next_phase()) {
      finish();
      return true;
    }
  }
}

void Operation::count() {
  CommCounter& counter = comm_.mutable_counter(facts_.op);
  ++counter.calls;
  counter.payload_bytes += facts_.payload_bytes;
  counter.ring_bytes += facts_.ring_bytes;
}

void Operation::finish() {
  done_ = true;
  const int64_t end_ns = trace::now_ns();
  comm_.mutable_counter(facts_.op).seconds += static_cast<double>(end_ns - start_ns_) * 1e-9;
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
