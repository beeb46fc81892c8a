// The state machines behind core::Work: one for each operation in progress, advanced by polling until it is done.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/detail/blocks.h"
#include "core/comm/detail/mailbox.h"

namespace ms::core::detail {

// What the counters and the trace record of an operation, and what its members must agree on.
struct OperationFacts {
  CommOp op;
  int64_t sequence;
  int64_t in_elements, out_elements;
  DType dtype;
  int64_t payload_bytes;
  int64_t ring_bytes;
};

// What a wait is for: an output may be complete while other ranks still read this one's input.
enum class Awaited : uint8_t { kOutput, kEnd };

class Operation {
 public:
  Operation(Communicator& comm, const OperationFacts& facts, int p2p_tag = -1, int peer = -1);
  virtual ~Operation();

  void record_post();        // in the flight recorder and the mailbox, before begin()
  virtual void begin() = 0;  // posts the first transfers
  void count();              // adds the call and its bytes to the group's counters
  bool step();               // advances; true when done
  bool done() const { return done_; }
  bool may_sleep() { return done_ || (posted_.empty() && awaits_members()); }
  void wait(double timeout_s, Awaited awaited = Awaited::kEnd);
  Endpoint& endpoint() const { return comm_.endpoint_; }
  virtual std::vector<int> silent_ranks() const;  // of the world: of whom something is missing

 protected:
  // All posted transfers are complete: posts more, or returns true when done. Called again at once if it has posted
  // nothing, and at the next step() if it has called pause().
  virtual bool next_phase() = 0;
  void pause() { pauses_ = true; }
  // Of what comes without a transfer: whether all of it has. next_phase() is not called before.
  virtual bool others_have_come() { return true; }
  // Whether it can go on only when other members have, who then wake this rank (mailbox.h).
  virtual bool awaits_members() { return false; }
  // The group ranks of whom some of it is missing.
  virtual std::vector<int> awaited_peers() const { return {}; }
  // Another operation, among some members of the group, as a part of this one: it is counted and recorded with it.
  void begin_part(Operation& part) const;
  void note_part(const Operation& part);  // when it is done
  // Call it when the output is complete and other ranks may still read the input.
  void note_output();
  // Call it when a peer's part has come.
  void note_arrival(int peer) {
    if (arrived_ns_ == 0) last_peer_ = peer;
  }

  // peer: group rank. The first message to a peer is preceded by operation, dtype and number of elements; a peer that
  // calls another operation, or with other sizes, throws kInternal, naming both.
  void send(const void* data, int64_t size_bytes, int peer);
  void recv(void* data, int64_t size_bytes, int peer);
  // The number of elements that this rank and the peer must agree on: of what is sent to the peer, or received from it.
  // The same for all unless overridden.
  virtual int64_t agreed_elements(int peer, bool receive) const;
  // Of memory that ranks of one machine share (transport.h), with peer as group rank.
  int64_t shared_offset(const TensorView& data) const {
    return comm_.endpoint_.transport_->shared_offset(data.bytes(), data.size_bytes());
  }
  std::byte* shared_address(int peer, int64_t offset) const {
    return comm_.endpoint_.transport_->shared_address(world(peer), offset);
  }
  void charge(int peer, int64_t size_bytes) const {
    if (peer != rank()) comm_.endpoint_.transport_->charge(world(peer), size_bytes);
  }
  int64_t arrival_ns(int peer, int64_t size_bytes) const {
    return comm_.endpoint_.transport_->arrival_ns(world(peer), size_bytes);
  }
  Mailbox& mailbox() const { return *comm_.mailbox_; }
  Announcement announcement(int peer, bool receive) const;
  // Throws if a peer is in another operation.
  void check_announcement(int peer, const Announcement& theirs) const;
  int size() const { return comm_.size(); }
  int rank() const { return comm_.rank(); }
  Arena& arena() const { return comm_.endpoint_.arena_; }
  ThreadPool* pool() const { return comm_.endpoint_.pool_; }

 private:
  struct Posted {
    std::unique_ptr<TransferRequest> request;
    int peer;
    bool is_announcement = false;  // a received one
    bool is_receive = false;       // of data, which is of no use before the peer's announcement has been checked
  };
  // What precedes the first message to and from a peer.
  struct Talk {
    Announcement told, heard;
    bool has_told = false, hears = false, has_checked = false;  // hears: the receive is posted
  };
  Talk& talk(int peer);
  Announcement called() const;
  void check_calls() const;
  [[noreturn]] void report_mismatch(int peer, const Announcement& ours, const Announcement& theirs) const;
  int world(int peer) const { return comm_.world_ranks_[static_cast<size_t>(peer)]; }
  bool completes(Posted& posted);
  // Sleeps until a member wakes this rank, or for a millisecond. kNot: members do not wake it, it must poll.
  enum class Slept : uint8_t { kNot, kWoken, kNotWoken };
  Slept sleep();
  void finish();
  void record_end();  // in counters, flight recorder and trace
  void note_wait(int64_t began_ns);
  [[noreturn]] void give_up(double waited_s, double timeout_s, int signal);

  Communicator& comm_;
  OperationFacts facts_;
  int32_t tag_;
  int peer_;
  std::vector<Talk> talks_;  // with each peer; empty until the first message. Transfers of posted_ refer to it
  std::vector<Posted> posted_;
  int64_t start_ns_;
  int64_t output_ns_ = 0;   // when the output was complete, if before the end
  int64_t arrived_ns_ = 0;  // when the first phase's transfers were complete,
  int last_peer_ = -1;      // and the group rank with whom the last of them was; -1: several at once, or none
  uint64_t number_ = 0;     // in the flight recorder; 0: it is off
  // Read by a waiting thread while another one advances the operation.
  std::atomic<bool> done_ = false, has_output_ = false;
  std::atomic<bool> pauses_ = false;  // next_phase() has more to do at once, after a step of the other operations
  bool is_part_ = false;
  bool is_muted_ = false;               // in the trace, by the thread that has posted it
  std::atomic<bool> blocking_ = false;  // waited for at once
};

// memcpy must not be given a null pointer, as an empty tensor has, not even for 0 bytes.
inline void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// The largest tag that operations of a group with this context number use.
int32_t max_tag_of(int context);

// output = inputs[0] op inputs[1] op .., in this order; output may be one of the inputs. Large ones on `pool`, if there
// is one.
void reduce(DType dtype, const std::vector<const std::byte*>& inputs, std::byte* output, int64_t count, ReduceOp op,
            ThreadPool* pool);
// sum += addend, rounded.
void add(DType dtype, std::byte* sum, const std::byte* addend, int64_t count, ThreadPool* pool);

// counts: elements of each rank's block.
std::shared_ptr<Operation> make_allreduce(Communicator&, const OperationFacts&, const TensorView& data, ReduceOp);
// Communicator::iallreduce_onto
std::shared_ptr<Operation> make_allreduce_onto(Communicator&, const OperationFacts&, const TensorView& data,
                                               const TensorView& addend);
std::shared_ptr<Operation> make_reduce_scatter(Communicator&, const OperationFacts&, const TensorView& input,
                                               const std::vector<int64_t>& counts, const TensorView& output, ReduceOp);
std::shared_ptr<Operation> make_allgather(Communicator&, const OperationFacts&, const TensorView& input,
                                          std::vector<int64_t> counts, const TensorView& output);
std::shared_ptr<Operation> make_bcast(Communicator&, const OperationFacts&, const TensorView& data, int root);
// Both have as many ranges of a rank; the i-th of those to a rank is stored as the i-th of those from this one.
std::shared_ptr<Operation> make_alltoall(Communicator&, const OperationFacts&, const TensorView& input,
                                         const Blocks& input_blocks, const TensorView& output,
                                         const Blocks& output_blocks);
std::shared_ptr<Operation> make_send(Communicator&, const OperationFacts&, const TensorView& data, int peer, int tag);
std::shared_ptr<Operation> make_recv(Communicator&, const OperationFacts&, const TensorView& data, int peer, int tag);

}  // namespace ms::core::detail
