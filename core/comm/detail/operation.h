// The state machines behind core::Work: one for each operation in progress, advanced by polling until it is done.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "core/comm/communicator.h"

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

class Operation {
 public:
  Operation(Communicator& comm, const OperationFacts& facts, int p2p_tag = -1, int peer = -1);
  virtual ~Operation() = default;

  void record_post();        // in the flight recorder, before begin()
  virtual void begin() = 0;  // posts the first transfers
  void count();              // adds the call and its bytes to the group's counters
  bool step();               // advances; true when done
  bool done() const { return done_; }
  void wait(double timeout_s);
  Endpoint& endpoint() const { return comm_.endpoint_; }

 protected:
  // All posted transfers are complete: posts more, or returns true when done. Called again at once if it has posted
  // nothing, and at the next step() if it has called pause().
  virtual bool next_phase() = 0;
  void pause() { pauses_ = true; }

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
  int size() const { return comm_.size(); }
  int rank() const { return comm_.rank(); }
  Arena& arena() const { return comm_.endpoint_.arena_; }
  ThreadPool* pool() const { return comm_.endpoint_.pool_; }

 private:
  // Precedes the first message of an operation to each peer.
  struct Announcement {
    int32_t op = 0, dtype = 0;
    int64_t elements = 0;
    bool operator==(const Announcement&) const = default;
  };
  struct Posted {
    std::unique_ptr<TransferRequest> request;
    int peer;
    bool is_announcement = false;  // a received one
    bool is_receive = false;       // of data, which is of no use before the peer's announcement has been checked
  };
  Announcement announcement(int peer, bool receive) const;
  void check_announcement(int peer) const;
  int world(int peer) const { return comm_.world_ranks_[static_cast<size_t>(peer)]; }
  bool completes(Posted& posted);
  void finish();
  void note_wait(int64_t began_ns);
  std::vector<int> silent_ranks() const;
  [[noreturn]] void give_up(double waited_s, double timeout_s, int signal);

  Communicator& comm_;
  OperationFacts facts_;
  int32_t tag_;
  int peer_;
  std::vector<Posted> posted_;
  std::vector<Announcement> told_, heard_;                // to and from each peer; empty until the first message
  std::vector<bool> has_told_, has_heard_, has_checked_;  // has_heard_: the receive is posted
  int64_t start_ns_;
  int64_t arrived_ns_ = 0;  // when the first phase's transfers were complete,
  int last_peer_ = -1;      // and the group rank with whom the last of them was; -1: several at once, or none
  uint64_t number_ = 0;     // in the flight recorder; 0: it is off
  bool done_ = false, pauses_ = false;
  bool blocking_ = false;
};

// The largest tag that operations of a group with this context number use.
int32_t max_tag_of(int context);

// output = inputs[0] op inputs[1] op .., in this order; output may be one of the inputs. Large ones on `pool`, if there
// is one.
void reduce(DType dtype, const std::vector<const std::byte*>& inputs, std::byte* output, int64_t count, ReduceOp op,
            ThreadPool* pool);

// counts: elements of each rank's block.
std::shared_ptr<Operation> make_allreduce(Communicator&, const OperationFacts&, const TensorView& data, ReduceOp);
std::shared_ptr<Operation> make_reduce_scatter(Communicator&, const OperationFacts&, const TensorView& input,
                                               std::vector<int64_t> counts, const TensorView& output, ReduceOp);
std::shared_ptr<Operation> make_allgather(Communicator&, const OperationFacts&, const TensorView& input,
                                          std::vector<int64_t> counts, const TensorView& output);
std::shared_ptr<Operation> make_bcast(Communicator&, const OperationFacts&, const TensorView& data, int root);
std::shared_ptr<Operation> make_alltoall(Communicator&, const OperationFacts&, const TensorView& input,
                                         std::vector<int64_t> input_counts, const TensorView& output,
                                         std::vector<int64_t> output_counts);
std::shared_ptr<Operation> make_send(Communicator&, const OperationFacts&, const TensorView& data, int peer, int tag);
std::shared_ptr<Operation> make_recv(Communicator&, const OperationFacts&, const TensorView& data, int peer, int tag);

}  // namespace ms::core::detail
