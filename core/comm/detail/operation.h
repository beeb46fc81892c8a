// The state machines behind core::Work: one for each operation in progress, advanced by polling until it is done.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "core/comm/communicator.h"

namespace ms::core::detail {

// What the counters and the trace record of an operation.
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

  virtual void begin() = 0;  // posts the first transfers
  bool step();               // advances; true when done
  bool done() const { return done_; }
  void wait(double timeout_s);
  Endpoint& endpoint() const { return comm_.endpoint_; }

 protected:
  virtual bool next_phase() = 0;  // all posted transfers are complete: posts more, or returns true when done

  void send(const void* data, int64_t size_bytes, int peer);  // peer: group rank
  void recv(void* data, int64_t size_bytes, int peer);
  int size() const { return comm_.size(); }
  int rank() const { return comm_.rank(); }
  Arena& arena() const { return comm_.endpoint_.arena_; }

 private:
  struct Posted {
    std::unique_ptr<TransferRequest> request;
    int peer;
    bool receive;
  };
  void finish();
  std::string silent_peers() const;
  bool waits_for_the_dead() const;

  Communicator& comm_;
  OperationFacts facts_;
  int32_t tag_;
  int peer_;
  std::vector<Posted> posted_;
  int64_t start_ns_;
  int64_t arrived_ns_ = 0;  // when the first phase's receives were complete
  bool done_ = false;
  bool blocking_ = false;
};

std::shared_ptr<Operation> make_allreduce(Communicator&, const OperationFacts&, const TensorView& data, ReduceOp);
std::shared_ptr<Operation> make_reduce_scatter(Communicator&, const OperationFacts&, const TensorView& input,
                                               const TensorView& output, ReduceOp);
std::shared_ptr<Operation> make_allgather(Communicator&, const OperationFacts&, const TensorView& input,
                                          const TensorView& output);
std::shared_ptr<Operation> make_bcast(Communicator&, const OperationFacts&, const TensorView& data, int root);
std::shared_ptr<Operation> make_alltoall(Communicator&, const OperationFacts&, const TensorView& input,
                                         const TensorView& output);
std::shared_ptr<Operation> make_send(Communicator&, const OperationFacts&, const TensorView& data, int peer, int tag);
std::shared_ptr<Operation> make_recv(Communicator&, const OperationFacts&, const TensorView& data, int peer, int tag);

}  // namespace ms::core::detail
