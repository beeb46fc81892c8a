// A group of ranks and its operations: blocking and asynchronous collectives and point-to-point.
//
// Collectives are implemented here, over transport.h. Reductions add in group-rank order 0, 1, .., n-1 whatever arrives
// first, so a result depends only on the values and the group. Large ones of a group that spans machines add up each
// machine's ranks in that order, then the machines' sums (two_levels.h). Creating a group is local: no message, no
// connection.
// Counters hold ring-equivalent bytes sent per rank, whatever the actual algorithm.
//
// All members must call the operations of a group in the same order and with the same sizes; ranks that do not throw
// kInternal, naming both calls. Asynchronous operations advance whenever any Work of the same Endpoint is tested or
// waited for, and all the time with a progress thread (Endpoint::start_progress_thread). One thread posts, tests and
// waits.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/comm/comm_op.h"
#include "core/comm/transport.h"
#include "core/comm/two_levels.h"
#include "core/tensor.h"
#include "core/trace/recorder.h"

namespace ms::core {

class Communicator;
class FlightRecorder;

// A call of a communicator's operation.
struct OperationCall {
  CommOp op;
  int64_t elements = 0;  // of the full buffer
  DType dtype = DType::kFp32;
  int peer = -1, tag = 0;  // of a message
};
class ThreadPool;

// kMean: the sum divided by the number of ranks, rounded once on each level (two_levels.h).
enum class ReduceOp { kSum, kMean, kMax, kMin };

// Where the blocks of n ranks lie in a buffer of all of them. kFrontBack: the first half of block r is the r-th of 2n
// parts from the front, its second half the r-th from the back.
enum class BlockOrder : uint8_t { kByRank, kFrontBack };

// Calls and bytes count from the post on, seconds when an operation completes.
struct CommCounter {
  int64_t calls = 0;
  int64_t payload_bytes = 0;  // logical: the full buffer of the call
  int64_t ring_bytes = 0;     // sent by this rank (comm_op.h)
  double seconds = 0;         // from post to completion on this rank
};

class Endpoint;
struct CommunicatorLevels;
namespace detail {
class Blocks;     // of a buffer: detail/blocks.h
class Operation;  // a state machine: call advance() until done
struct OperationFacts;
class Pump;     // of a side channel: pumped_transport.h
class Mailbox;  // of a group: detail/mailbox.h
class Mailboxes;
class ProgressThread;  // detail/progress_thread.h
}  // namespace detail

// A handle of a running operation. Destroying an unfinished Work waits for it and swallows its error, so its buffers
// are safe. Exceptions: after a wait of this endpoint has timed out it does not wait, and while an error unwinds it
// waits for one second at most; then the transfers are cancelled.
class Work {
 public:
  Work() = default;
  Work(Work&&) noexcept = default;
  Work& operator=(Work&&) noexcept;
  ~Work();
  bool test();  // makes progress; true when complete (also if empty)
  // Throws kPeerFailed after the endpoint's timeout, naming operation, group, sequence and the silent ranks.
  void wait();
  // Waits until the output is complete. Other ranks may still read the input, which must not change before wait()
  // returns. Only an all-gather or reduce-scatter in shared memory completes its output earlier than its end; for
  // others this is wait(). Throws as wait() does.
  void wait_for_output();

 private:
  friend class Communicator;
  explicit Work(std::shared_ptr<detail::Operation> operation) : operation_(std::move(operation)) {}
  static void abandon(std::shared_ptr<detail::Operation>& operation);
  std::shared_ptr<detail::Operation> operation_;
};

// One rank's end of the transport, shared by its groups. Owns the transport and the running operations.
class Endpoint {
 public:
  struct Options {
    double timeout_s = 600;               // --distributed-timeout-minutes
    trace::Recorder* recorder = nullptr;  // not owned
    FlightRecorder* flight = nullptr;     // flight_recorder.h; not owned, may be opened later
    bool uses_levels = true;              // large collectives of groups that span machines go in two levels
    // Called before each operation is posted, for tests: it may call another one of the same group first.
    std::function<void(Communicator&, const OperationCall&)> at_operation = {};
  };
  Endpoint(std::unique_ptr<Transport> transport, Options options);
  ~Endpoint();
  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  double timeout_s() const { return options_.timeout_s; }
  Arena& arena() { return arena_; }  // receive buffers of reductions, tag comm
  // Lets large reductions run on the threads of a pool; null: on the thread that makes progress. Not owned. No thread
  // of the pool may call progress().
  void use_threads(ThreadPool* pool) { pool_ = pool; }

  // Collective over the world: ranks of one machine then read and write each other's buffers that lie in these ranges
  // (core/arena.h) themselves, in groups that are made afterwards and have no other ranks.
  // Their small collectives go through memory, too, that all of them have mapped. With ranges of no bytes only these
  // do.
  void share_memory(const std::optional<SharedRange>& own);

  // Advances running operations without waiting; call it during long computations. Every test and wait calls it too.
  // Between any two steps of others those of groups with high priority take theirs.
  void progress();
  // The same, for kernels to call between panels (kernels/progress.h): uses no thread of the pool, which they occupy.
  // Nothing is left to do for it where a thread makes progress.
  void progress_within_kernel();
  // From now on a thread of its own advances the operations, too. It polls while there are any, so it needs a core that
  // nothing else uses. Requires takes_turns(): that the transport may be called by several threads, one at a time. An
  // error on it is thrown by the next test or wait.
  void start_progress_thread();
  bool takes_turns() const { return transport_->takes_turns(); }

  // The flight recorder, once it is open; else null. flight_recorder(): as given, open or not.
  FlightRecorder* flight() const;
  FlightRecorder* flight_recorder() const { return options_.flight; }

  // Time that this rank has spent in waits since the last call, in all and for each other rank: for those whose part of
  // an operation came last. Ranks that wait for a rank which itself waits pass the blame on: a rank's blame by all
  // others, less its own waits, is what it delays the job.
  struct Waits {
    double total_s = 0;
    std::vector<double> for_rank_s;  // by world rank
  };
  Waits take_waits();

  // Whether a rank of this machine has died, as far as the transport can know.
  bool any_rank_has_died() const;

  // A separate transport for another thread, whose messages never match those of this one. kOwnThread: that thread
  // advances its transfers itself; requires Transport::any_thread. kThisThread: this thread's progress() advances them,
  // whatever the transport supports. Collective.
  enum class SideProgress : uint8_t { kOwnThread, kThisThread };
  std::unique_ptr<Transport> side_channel(SideProgress progress);
  bool any_thread() const { return transport_->any_thread(); }

 private:
  friend class Communicator;
  friend class Work;
  friend class detail::Operation;
  friend class detail::ProgressThread;
  using Pending = std::list<std::weak_ptr<detail::Operation>>;
  static void step(Pending& pending);
  void advance();           // the operations, once; holding the turn
  void advance_unpooled();  // the same, using no thread of the pool
  // Whether all that is under way here goes on only when other ranks wake this one.
  bool may_sleep() const;
  // What it guards, one thread at a time may use: operations, the transport, the flight recorder. Without a progress
  // thread there is nothing to guard.
  std::unique_lock<std::recursive_mutex> turn() const;

  std::unique_ptr<Transport> transport_;
  Options options_;
  Arena arena_;
  ThreadPool* pool_ = nullptr;
  Pending pending_, urgent_;                      // urgent_: of groups with high priority
  std::list<std::weak_ptr<detail::Pump>> pumps_;  // of side channels
  bool peer_failed_ = false;                      // a wait has timed out
  Waits waits_;
  std::unique_ptr<detail::Mailboxes> mailboxes_;             // null: no memory is shared
  int polls_before_yield_ = 64;                              // in waits
  std::unique_ptr<detail::ProgressThread> progress_thread_;  // the last: ends before what it uses
};

class Communicator {
 public:
  // world_ranks: members in group-rank order, including this rank. context: the same number on all members, different
  // from that of any other group with which they share two ranks (< 1024).
  Communicator(Endpoint& endpoint, std::string name, std::vector<int> world_ranks, int context);

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }  // within the group
  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  // Whether all its ranks address each other's memory (Endpoint::share_memory).
  bool shares_memory() const { return shares_memory_; }
  // Of a group that spans machines; null: its collectives have one level.
  CommunicatorLevels* levels() const { return levels_.get(); }
  // Whether its small collectives go through memory.
  bool has_mailbox() const { return mailbox_ != nullptr; }
  Endpoint& endpoint() const { return endpoint_; }
  // Its operations advance before those of other groups (Endpoint::progress).
  void set_high_priority() { has_high_priority_ = true; }

  // Reduces element-wise over all ranks, in place, result on every rank. fp32, fp64, bf16 (added in fp32, rounded
  // once, of several machines once a level), int32, int64.
  Work iallreduce(const TensorView& data, ReduceOp op = ReduceOp::kSum);
  // The sum over all ranks, rounded, plus addend, which every rank has alike (a residual) and must not change until
  // done: the same bits as an addition afterwards. Where ranks reduce a block each, each adds that of its block, so
  // that the group adds once. fp32, bf16 or fp16.
  Work iallreduce_onto(const TensorView& data, const TensorView& addend);
  // input [n * k] on every rank; rank r receives block r of the reduction in output [k]. input must not change until
  // done; in a group that spans machines its other blocks are undefined then.
  Work ireduce_scatter(const TensorView& input, const TensorView& output, ReduceOp op = ReduceOp::kSum);
  // The same with blocks of counts[r] elements, which all ranks give alike.
  Work ireduce_scatterv(const TensorView& input, const std::vector<int64_t>& counts, const TensorView& output,
                        ReduceOp op = ReduceOp::kSum);
  // output [n * k] receives the inputs [k] in rank order. input may be block `rank` of output.
  Work iallgather(const TensorView& input, const TensorView& output);
  // The same with inputs of counts[r] elements, which all ranks give alike.
  Work iallgatherv(const TensorView& input, std::vector<int64_t> counts, const TensorView& output);
  Work ibcast(const TensorView& data, int root);
  // Any dtype. Block j of input is sent to rank j, which stores it as block `rank` of its output. With kFrontBack for
  // either, blocks have halves.
  Work ialltoall(const TensorView& input, const TensorView& output, BlockOrder input_order = BlockOrder::kByRank,
                 BlockOrder output_order = BlockOrder::kByRank);
  // The same with blocks of input_counts[j] elements to rank j, and output_counts[j] from it: what rank j sends here.
  Work ialltoallv(const TensorView& input, const std::vector<int64_t>& input_counts, const TensorView& output,
                  const std::vector<int64_t>& output_counts);
  // peer: rank in the group. tag: 0..15, distinguishes kinds of messages between two ranks.
  Work isend(const TensorView& data, int peer, int tag = 0);
  Work irecv(const TensorView& data, int peer, int tag = 0);

  void allreduce(const TensorView& data, ReduceOp op = ReduceOp::kSum) { iallreduce(data, op).wait(); }
  void reduce_scatter(const TensorView& input, const TensorView& output) { ireduce_scatter(input, output).wait(); }
  void allgather(const TensorView& input, const TensorView& output) { iallgather(input, output).wait(); }
  void bcast(const TensorView& data, int root) { ibcast(data, root).wait(); }
  void send(const TensorView& data, int peer, int tag = 0) { isend(data, peer, tag).wait(); }
  void recv(const TensorView& data, int peer, int tag = 0) { irecv(data, peer, tag).wait(); }
  void barrier();

  // For values on the host.
  double allreduce(double value, ReduceOp op = ReduceOp::kSum);
  int64_t allreduce(int64_t value, ReduceOp op = ReduceOp::kSum);
  void allreduce(std::span<double> values, ReduceOp op = ReduceOp::kSum);
  std::string bcast_string(const std::string& text, int root);          // returns root's text everywhere
  std::vector<std::string> allgather_strings(const std::string& text);  // in rank order

  CommCounter counter(CommOp op) const;
  void reset_counters();

 private:
  friend class detail::Operation;
  friend struct CommunicatorLevels;
  // Some members of `whole`, by their ranks in it, for a level of its collectives.
  Communicator(const Communicator& whole, const std::vector<int>& members);
  // Sets world_ranks_, rank_ and what else depends on them.
  void set_members(std::vector<int> world_ranks);
  Work start(std::shared_ptr<detail::Operation> operation);
  Work start_alltoall(const TensorView& input, const detail::Blocks& input_blocks, const TensorView& output,
                      const detail::Blocks& output_blocks);
  void before(const OperationCall& call);  // of every operation
  detail::OperationFacts allreduce_facts(const TensorView& data);
  // The next number of a message to (or from) a peer with this tag, for the flight recorder.
  int64_t next_message(int peer, int tag, bool receive);
  void check_counts(const char* operation, const std::vector<int64_t>& counts, const TensorView& whole,
                    int64_t own) const;
  std::vector<int64_t> even_counts(int64_t each) const { return std::vector<int64_t>(world_ranks_.size(), each); }
  CommCounter& mutable_counter(CommOp op) { return counters_[static_cast<size_t>(op)]; }
  Endpoint& endpoint_;
  std::string name_;
  std::vector<int> world_ranks_;
  int rank_ = 0;
  int context_ = 0;
  bool shares_memory_ = false, has_high_priority_ = false;
  // Shared only because their types are incomplete here; may be null.
  std::shared_ptr<detail::Mailbox> mailbox_;
  std::shared_ptr<CommunicatorLevels> levels_;
  int64_t sequence_ = 0;                                // of collectives
  std::vector<int64_t> send_sequence_, recv_sequence_;  // of point-to-point, per peer
  std::vector<int32_t> message_numbers_;                // [peer][tag][send, receive]; empty before the first message
  int32_t flight_group_ = -1;                           // in the flight recorder
  std::array<CommCounter, kNumCommOps> counters_{};
};

struct CommunicatorLevels {
  CommunicatorLevels(const Communicator& whole, TwoLevels levels)
      : ranks(std::move(levels)), within(whole, ranks.within), across(whole, ranks.across) {}
  TwoLevels ranks;
  Communicator within, across;
};

}  // namespace ms::core
