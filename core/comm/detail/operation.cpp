#include "core/comm/detail/operation.h"

#include <sched.h>

#include <utility>

#include "core/comm/flight_recorder.h"
#include "core/comm/watchdog.h"
#include "core/error.h"
#include "core/signals.h"

namespace ms::core::detail {
namespace {

// When a rank dies, mpirun sends SIGTERM to the others and kills them about 2 s later; a wait for the dead rank must
// report it before that. A wait for a live rank continues after a signal: the step is finished, and the run ends after
// it.
constexpr double kGraceAfterSignalS = 0.7;
constexpr auto kLastDtype = static_cast<int32_t>(DType::kFp8E5M2Fnuz);
// More ranks than cores is normal: polling would keep a peer off its core. A yield that takes longer has let one run,
// and after it this rank sleeps. Where nobody else can run, it polls on for a while: to wake a core that has halted
// takes longer than most waits.
constexpr int kMostPollsBeforeYield = 64;
constexpr int64_t kIdleYieldNs = 1000;
constexpr int64_t kLongestIdlePollingNs = 100'000;

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
      start_ns_(trace::now_ns()) {}

// What is still posted is cancelled, which is a call of the transport.
Operation::~Operation() {
  if (posted_.empty()) return;
  const auto turn = comm_.endpoint_.turn();
  posted_.clear();
}

void Operation::record_post() {
  if (comm_.mailbox_ != nullptr && peer_ < 0) comm_.mailbox_->call(facts_.sequence, called());
  trace::Recorder* const recorder = comm_.endpoint_.options_.recorder;
  is_muted_ = recorder != nullptr && recorder->active() && recorder->is_this_thread_muted();
  FlightRecorder* const flight = comm_.endpoint_.flight();
  if (flight == nullptr) return;
  if (comm_.flight_group_ < 0) {
    comm_.flight_group_ = flight->group(comm_.name(), comm_.context_, comm_.world_ranks());
  }
  const bool message = peer_ >= 0;
  const int tag = (tag_ >> 16 & 31) - 1;
  number_ =
      flight->post({.op = facts_.op,
                    .dtype = facts_.dtype,
                    .tag = static_cast<uint8_t>(message ? tag : 0),
                    .group = comm_.flight_group_,
                    .peer = message ? comm_.world_ranks()[static_cast<size_t>(peer_)] : -1,
                    .sequence = message ? comm_.next_message(peer_, tag, facts_.op == CommOp::kRecv) : facts_.sequence,
                    .in_elements = facts_.in_elements,
                    .out_elements = facts_.out_elements,
                    .payload_bytes = facts_.payload_bytes,
                    .posted_ns = start_ns_});
}

int64_t Operation::agreed_elements(int, bool) const { return std::max(facts_.in_elements, facts_.out_elements); }

Operation::Talk& Operation::talk(int peer) {
  if (talks_.empty()) talks_.resize(comm_.world_ranks_.size());
  return talks_[static_cast<size_t>(peer)];
}

// What all members of the group say of this collective. Those of an all-to-all agree in pairs only.
Announcement Operation::called() const {
  const int64_t elements = facts_.op == CommOp::kAlltoall ? 0 : std::max(facts_.in_elements, facts_.out_elements);
  return {static_cast<int32_t>(facts_.op), static_cast<int32_t>(facts_.dtype), elements};
}

// Of peers that call another collective nothing may ever come: they do not write where this one reads.
void Operation::check_calls() const {
  if (comm_.mailbox_ == nullptr || peer_ >= 0) return;
  for (int peer = 0; peer < size(); ++peer) {
    Announcement theirs;
    if (peer != rank() && comm_.mailbox_->has_called(peer, facts_.sequence, theirs) && theirs != called())
      report_mismatch(peer, called(), theirs);
  }
}

Announcement Operation::announcement(int peer, bool receive) const {
  const CommOp op = facts_.op == CommOp::kRecv ? CommOp::kSend : facts_.op;  // the two ends of one message
  return {static_cast<int32_t>(op), static_cast<int32_t>(facts_.dtype), agreed_elements(peer, receive)};
}

void Operation::check_announcement(int peer, const Announcement& theirs) const {
  const Announcement ours = announcement(peer, true);
  if (theirs != ours) report_mismatch(peer, ours, theirs);
}

void Operation::report_mismatch(int peer, const Announcement& ours, const Announcement& theirs) const {
  const auto text = [](const Announcement& a) {
    const bool known = a.op >= 0 && a.op < kNumCommOps && a.dtype >= 0 && a.dtype <= kLastDtype;
    return known ? cat(comm_op_name(static_cast<CommOp>(a.op)), " of ", a.elements, " ",
                       dtype_name(static_cast<DType>(a.dtype)))
                 : std::string("an unknown operation");
  };
  const std::string seen = cat("operation ", facts_.sequence, " of group ", comm_.name(), ": rank ",
                               comm_.world_ranks_[static_cast<size_t>(comm_.rank())], " is in ", text(ours), ", rank ",
                               comm_.world_ranks_[static_cast<size_t>(peer)], " in ", text(theirs));
  throw Error(ErrorCode::kInternal, explain_mismatch(comm_.endpoint_, number_, seen));
}

void Operation::send(const void* data, int64_t size_bytes, int peer) {
  Transport& transport = *comm_.endpoint_.transport_;
  Talk& talk = this->talk(peer);
  if (!std::exchange(talk.has_told, true)) {
    talk.told = announcement(peer, false);
    posted_.push_back({transport.isend(&talk.told, sizeof(Announcement), world(peer), tag_), peer});
  }
  posted_.push_back({transport.isend(data, size_bytes, world(peer), tag_), peer});
}

void Operation::recv(void* data, int64_t size_bytes, int peer) {
  Transport& transport = *comm_.endpoint_.transport_;
  Talk& talk = this->talk(peer);
  if (!std::exchange(talk.hears, true)) {
    posted_.push_back({transport.irecv(&talk.heard, sizeof(Announcement), world(peer), tag_), peer, true});
  }
  posted_.push_back({transport.irecv(data, size_bytes, world(peer), tag_), peer, false, true});
}

bool Operation::completes(Posted& posted) {
  Talk& talk = this->talk(posted.peer);
  if (posted.is_receive && !talk.has_checked) return false;  // data of another size would be an error of the transport
  if (!posted.request->test()) return false;
  if (posted.is_announcement) {
    check_announcement(posted.peer, talk.heard);
    talk.has_checked = true;
  }
  return true;
}

bool Operation::step() {
  if (done_) return true;
  pauses_ = false;
  while (true) {
    bool first = true;
    for (size_t i = 0; i < posted_.size();) {  // posted_ stays valid if completes() throws
      if (completes(posted_[i])) {
        if (arrived_ns_ == 0) last_peer_ = first || last_peer_ == posted_[i].peer ? posted_[i].peer : -1;
        first = false;
        posted_.erase(posted_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    if (!posted_.empty() || !others_have_come()) return false;
    if (arrived_ns_ == 0) arrived_ns_ = trace::now_ns();
    if (next_phase()) {
      finish();
      return true;
    }
    if (pauses_) return false;
  }
}

void Operation::count() {
  CommCounter& counter = comm_.mutable_counter(facts_.op);
  ++counter.calls;
  counter.payload_bytes += facts_.payload_bytes;
  counter.ring_bytes += facts_.ring_bytes;
}

void Operation::begin_part(Operation& part) const {
  part.is_part_ = true;
  part.number_ = number_;
  part.begin();
}

// Of its parts' waits the longest is the one that the whole has waited.
void Operation::note_part(const Operation& part) {
  const int64_t arrived_ns = start_ns_ + part.arrived_ns_ - part.start_ns_;
  if (arrived_ns <= arrived_ns_) return;
  arrived_ns_ = arrived_ns;
  const auto found = part.last_peer_ < 0 ? comm_.world_ranks_.end()
                                         : std::ranges::find(comm_.world_ranks_, part.world(part.last_peer_));
  last_peer_ = found == comm_.world_ranks_.end() ? -1 : static_cast<int>(found - comm_.world_ranks_.begin());
}

void Operation::note_output() {
  output_ns_ = trace::now_ns();
  has_output_ = true;
}

void Operation::finish() {
  if (!is_part_) record_end();
  done_ = true;  // the last: from now on the waiting thread may free what the operation uses
}

void Operation::record_end() {
  const int64_t now_ns = trace::now_ns(), end_ns = output_ns_ != 0 ? output_ns_ : now_ns;
  comm_.mutable_counter(facts_.op).seconds += static_cast<double>(end_ns - start_ns_) * 1e-9;
  if (FlightRecorder* const flight = comm_.endpoint_.flight(); flight != nullptr && number_ != 0)
    flight->complete(number_, arrived_ns_, now_ns);
  trace::Recorder* recorder = comm_.endpoint_.options_.recorder;
  if (recorder == nullptr || !recorder->active() || is_muted_) return;
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

std::vector<int> Operation::silent_ranks() const {
  std::vector<int> peers = awaited_peers(), ranks;
  for (const Posted& posted : posted_) peers.push_back(posted.peer);
  for (const int peer : peers) {
    if (std::ranges::find(ranks, world(peer)) == ranks.end()) ranks.push_back(world(peer));
  }
  return ranks;
}

// A wait from began_ns on has ended: it was for the peer whose part came last.
void Operation::note_wait(int64_t began_ns) {
  const double waited_s = static_cast<double>(arrived_ns_ - began_ns) * 1e-9;
  if (last_peer_ < 0 || waited_s <= 0) return;
  Endpoint::Waits& waits = comm_.endpoint_.waits_;
  waits.total_s += waited_s;
  waits.for_rank_s[static_cast<size_t>(comm_.world_ranks_[static_cast<size_t>(last_peer_)])] += waited_s;
}

void Operation::give_up(double waited_s, double timeout_s, int signal) {
  const auto turn = comm_.endpoint_.turn();
  comm_.endpoint_.peer_failed_ = true;
  const SilentWait wait{.operation = comm_op_name(facts_.op),
                        .sequence = facts_.sequence,
                        .group = comm_.name(),
                        .members = comm_.world_ranks(),
                        .silent = silent_ranks(),
                        .number = number_,
                        .waited_s = waited_s,
                        .timeout_s = timeout_s,
                        .signal = signal};
  throw Error(ErrorCode::kPeerFailed, explain_silence(comm_.endpoint_, wait));
}

Operation::Slept Operation::sleep() {
  const Endpoint& endpoint = comm_.endpoint_;
  if (!endpoint.may_sleep()) return Slept::kNot;
  return comm_.mailbox_->sleep([&] { return endpoint.may_sleep(); }) ? Slept::kWoken : Slept::kNotWoken;
}

void Operation::wait(double timeout_s, Awaited awaited) {
  const auto has_come = [&] { return done_ || (awaited == Awaited::kOutput && has_output_); };
  if (has_come()) return;
  const int64_t began_ns = trace::now_ns();
  blocking_ = blocking_ || began_ns - start_ns_ < 20'000;  // waited for at once: nothing was computed in between
  FlightRecorder* const flight = number_ != 0 ? comm_.endpoint_.flight() : nullptr;
  if (flight != nullptr) flight->wait_begins(number_, began_ns);
  int& polls_before_yield = comm_.endpoint_.polls_before_yield_;
  bool yields = false, lets_run = false, has_yielded = false;
  int64_t others_ran_ns = 0;
  for (int64_t polls = 0;; ++polls) {
    comm_.endpoint_.progress();
    if (has_come()) break;
    if (pauses_ || polls < polls_before_yield) continue;
    yields = true;
    const int64_t yields_ns = trace::now_ns();
    Slept slept = Slept::kNot;
    if (lets_run && (has_yielded || yields_ns - others_ran_ns > kLongestIdlePollingNs)) slept = sleep();
    if (slept == Slept::kNot) ::sched_yield();
    const int64_t now_ns = trace::now_ns();
    has_yielded = slept == Slept::kNot && now_ns - yields_ns > kIdleYieldNs;
    lets_run = lets_run || has_yielded;
    if (slept != Slept::kNot || has_yielded) others_ran_ns = now_ns;
    if (slept != Slept::kNotWoken && polls % kMostPollsBeforeYield != 0) continue;
    {
      const auto turn = comm_.endpoint_.turn();
      check_calls();
      if (posted_.empty()) comm_.endpoint_.transport_->check_world();  // transfers would throw themselves
    }
    const double waited_s = static_cast<double>(now_ns - began_ns) * 1e-9;
    const int signal = termination_signal();
    const bool ended = signal != 0 && waited_s > kGraceAfterSignalS &&
                       seconds_since_termination() > kGraceAfterSignalS && comm_.endpoint_.any_rank_has_died();
    if (waited_s >= timeout_s || ended) give_up(waited_s, timeout_s, ended ? signal : 0);
  }
  if (yields) polls_before_yield = lets_run ? 1 : std::min(2 * polls_before_yield, kMostPollsBeforeYield);
  if (flight != nullptr) flight->wait_ends(trace::now_ns());
  note_wait(began_ns);
}

}  // namespace ms::core::detail
