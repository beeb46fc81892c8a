// The collectives by direct exchange: every rank sends block j to rank j and adds what it receives in rank order, so
// the result does not depend on arrival order. Ring-optimal in bytes, one message per peer and phase. In a large group,
// small messages spread in rounds instead, so that each rank talks to few others: otherwise the collectives at the
// start of a job would open a connection between every two ranks.
#include <algorithm>
#include <cstring>

#include "core/comm/detail/operation.h"
#include "core/error.h"
#include "kernels/fp16.h"

namespace ms::core::detail {
namespace {

// Up to this size every rank sends its whole buffer to all and reduces locally: one message latency instead of two.
constexpr int64_t kSmallAllreduceBytes = 8192;
// Group size up to which every rank sends to every other, whatever the message size.
constexpr int kDirectMembers = 8;

// memcpy must not be given a null pointer, as an empty tensor has, not even for 0 bytes.
void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<kernels::bf16> {
  using type = float;  // 16-bit types are added in fp32 and rounded once
};
template <>
struct Accumulator<kernels::fp16> {
  using type = float;
};

template <class T>
void reduce_typed(const std::vector<const std::byte*>& inputs, std::byte* output, int64_t count, ReduceOp op) {
  using Sum = typename Accumulator<T>::type;
  constexpr int64_t kBlock = 1024;
  Sum sums[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const T* first = reinterpret_cast<const T*>(inputs[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<Sum>(first[i]);
    for (size_t r = 1; r < inputs.size(); ++r) {
      const T* values = reinterpret_cast<const T*>(inputs[r]) + begin;
      switch (op) {
        case ReduceOp::kSum:
          for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<Sum>(values[i]);
          break;
        case ReduceOp::kMax:
          for (int64_t i = 0; i < n; ++i) sums[i] = std::max(sums[i], static_cast<Sum>(values[i]));
          break;
        case ReduceOp::kMin:
          for (int64_t i = 0; i < n; ++i) sums[i] = std::min(sums[i], static_cast<Sum>(values[i]));
          break;
      }
    }
    T* out = reinterpret_cast<T*>(output) + begin;
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(sums[i]);
  }
}

// output = inputs[0] op inputs[1] op .., in this order; output may be one of the inputs.
void reduce(DType dtype, const std::vector<const std::byte*>& inputs, std::byte* output, int64_t count, ReduceOp op) {
  switch (dtype) {
    case DType::kFp32:
      return reduce_typed<float>(inputs, output, count, op);
    case DType::kFp64:
      return reduce_typed<double>(inputs, output, count, op);
    case DType::kBf16:
      return reduce_typed<kernels::bf16>(inputs, output, count, op);
    case DType::kFp16:
      return reduce_typed<kernels::fp16>(inputs, output, count, op);
    case DType::kInt32:
      return reduce_typed<int32_t>(inputs, output, count, op);
    case DType::kInt64:
      return reduce_typed<int64_t>(inputs, output, count, op);
    default:
      MS_CHECK(false, "no reduction for ", dtype_name(dtype));
  }
}

int64_t block_begin(int64_t count, int64_t block, int64_t blocks) { return count * block / blocks; }

class Allreduce final : public Operation {
 public:
  Allreduce(Communicator& comm, const OperationFacts& facts, const TensorView& data, ReduceOp op)
      : Operation(comm, facts),
        data_(data),
        op_(op),
        item_(size_of(data.dtype())),
        small_(data.size_bytes() <= kSmallAllreduceBytes) {}

  void begin() override {
    if (size() == 1) return;
    const int64_t own = small_ ? data_.size() : block(rank() + 1) - block(rank());
    received_ = arena().allocate(own * item_ * (size() - 1), MemoryTag::kComm);
    for (int peer = 0, slot = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      recv(received_.data() + slot++ * own * item_, own * item_, peer);
    }
    if (small_) {  // peers read a copy: the sum is written into data_ while sends may still be running
      copy_ = arena().allocate(data_.size_bytes(), MemoryTag::kComm);
      copy_bytes(copy_.data(), data_.bytes(), data_.size_bytes());
    }
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      if (small_) {
        send(copy_.data(), data_.size_bytes(), peer);
      } else {
        send(data_.bytes() + block(peer) * item_, (block(peer + 1) - block(peer)) * item_, peer);
      }
    }
  }

  bool next_phase() override {
    if (size() == 1 || gathered_) return true;
    const int64_t begin = small_ ? 0 : block(rank());
    const int64_t count = (small_ ? data_.size() : block(rank() + 1)) - begin;
    std::vector<const std::byte*> inputs;
    for (int peer = 0, slot = 0; peer < size(); ++peer) {
      inputs.push_back(peer == rank() ? data_.bytes() + begin * item_ : received_.data() + slot++ * count * item_);
    }
    reduce(data_.dtype(), inputs, data_.bytes() + begin * item_, count, op_);
    received_.release();
    if (small_) return true;
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      recv(data_.bytes() + block(peer) * item_, (block(peer + 1) - block(peer)) * item_, peer);
      send(data_.bytes() + begin * item_, count * item_, peer);
    }
    gathered_ = true;
    return false;
  }

 private:
  int64_t block(int index) const { return block_begin(data_.size(), index, size()); }
  TensorView data_;
  ReduceOp op_;
  int64_t item_;
  bool small_;
  bool gathered_ = false;
  Buffer received_, copy_;
};

class ReduceScatter final : public Operation {
 public:
  ReduceScatter(Communicator& comm, const OperationFacts& facts, const TensorView& input, const TensorView& output,
                ReduceOp op)
      : Operation(comm, facts), input_(input), output_(output), op_(op) {}

  void begin() override {
    const int64_t bytes = output_.size_bytes();
    received_ = arena().allocate(bytes * (size() - 1), MemoryTag::kComm);
    for (int peer = 0, slot = 0; peer < size(); ++peer) {
      if (peer != rank()) recv(received_.data() + slot++ * bytes, bytes, peer);
    }
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      send(input_.bytes() + peer * bytes, bytes, peer);
    }
  }

  bool next_phase() override {
    const int64_t bytes = output_.size_bytes();
    std::vector<const std::byte*> inputs;
    for (int peer = 0, slot = 0; peer < size(); ++peer) {
      inputs.push_back(peer == rank() ? input_.bytes() + peer * bytes : received_.data() + slot++ * bytes);
    }
    reduce(input_.dtype(), inputs, output_.bytes(), output_.size(), op_);
    received_.release();
    return true;
  }

 private:
  TensorView input_, output_;
  ReduceOp op_;
  Buffer received_;
};

class Allgather final : public Operation {
 public:
  Allgather(Communicator& comm, const OperationFacts& facts, const TensorView& input, const TensorView& output)
      : Operation(comm, facts), input_(input), output_(output) {}

  void begin() override {
    const int64_t bytes = input_.size_bytes();
    std::byte* own = output_.bytes() + rank() * bytes;
    if (own != input_.bytes()) copy_bytes(own, input_.bytes(), bytes);
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size();
      const int from = (rank() - step + size()) % size();
      recv(output_.bytes() + from * bytes, bytes, from);
      send(own, bytes, to);
    }
  }
  bool next_phase() override { return true; }

 private:
  TensorView input_, output_;
};

// Collects a block of every rank on every rank in ceil(log2 n) rounds of one message each (Bruck et al. 1997): before
// round k a rank has its own block and those of the 2^k - 1 ranks after it; it sends them to the rank 2^k before it.
class Spreading : public Operation {
 public:
  Spreading(Communicator& comm, const OperationFacts& facts, const std::byte* own, int64_t block_bytes)
      : Operation(comm, facts), block_bytes_(block_bytes) {
    blocks_ = arena().allocate(block_bytes * size(), MemoryTag::kComm);
    copy_bytes(blocks_.data(), own, block_bytes);
  }
  void begin() override { post_round(); }
  bool next_phase() override {
    held_ = std::min(2 * held_, size());
    if (held_ < size()) {
      post_round();
      return false;
    }
    spread();
    return true;
  }

 protected:
  virtual void spread() = 0;  // called when all blocks have arrived
  const std::byte* block(int of_rank) const {
    return blocks_.data() + (of_rank - rank() + size()) % size() * block_bytes_;
  }

 private:
  void post_round() {
    const int64_t bytes = std::min(held_, size() - held_) * block_bytes_;
    recv(blocks_.data() + held_ * block_bytes_, bytes, (rank() + held_) % size());
    send(blocks_.data(), bytes, (rank() - held_ + size()) % size());
  }

  int64_t block_bytes_;
  int held_ = 1;  // number of blocks present: those of this rank and of the ranks after it
  Buffer blocks_;
};

class SpreadingAllreduce final : public Spreading {
 public:
  SpreadingAllreduce(Communicator& comm, const OperationFacts& facts, const TensorView& data, ReduceOp op)
      : Spreading(comm, facts, data.bytes(), data.size_bytes()), data_(data), op_(op) {}

 private:
  void spread() override {
    std::vector<const std::byte*> inputs;
    for (int peer = 0; peer < size(); ++peer) inputs.push_back(block(peer));
    reduce(data_.dtype(), inputs, data_.bytes(), data_.size(), op_);
  }
  TensorView data_;
  ReduceOp op_;
};

class SpreadingAllgather final : public Spreading {
 public:
  SpreadingAllgather(Communicator& comm, const OperationFacts& facts, const TensorView& input, const TensorView& output)
      : Spreading(comm, facts, input.bytes(), input.size_bytes()), output_(output) {}

 private:
  void spread() override {
    const int64_t bytes = output_.size_bytes() / size();
    for (int peer = 0; peer < size(); ++peer) {
      copy_bytes(output_.bytes() + peer * bytes, block(peer), bytes);
    }
  }
  TensorView output_;
};

class Alltoall final : public Operation {
 public:
  Alltoall(Communicator& comm, const OperationFacts& facts, const TensorView& input, const TensorView& output)
      : Operation(comm, facts), input_(input), output_(output) {}

  void begin() override {
    const int64_t bytes = input_.size_bytes() / size();
    copy_bytes(output_.bytes() + rank() * bytes, input_.bytes() + rank() * bytes, bytes);
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size();
      const int from = (rank() - step + size()) % size();
      recv(output_.bytes() + from * bytes, bytes, from);
      send(input_.bytes() + to * bytes, bytes, to);
    }
  }
  bool next_phase() override { return true; }

 private:
  TensorView input_, output_;
};

// Binomial tree, in ranks relative to the root: rank r receives from r with its lowest set bit cleared.
class Bcast final : public Operation {
 public:
  Bcast(Communicator& comm, const OperationFacts& facts, const TensorView& data, int root)
      : Operation(comm, facts), data_(data), root_(root) {}

  void begin() override {
    const int relative = (rank() - root_ + size()) % size();
    if (relative != 0) recv(data_.bytes(), data_.size_bytes(), absolute(relative & (relative - 1)));
  }
  bool next_phase() override {
    if (forwarded_) return true;
    forwarded_ = true;
    const int relative = (rank() - root_ + size()) % size();
    const int lowest = relative == 0 ? size() : relative & -relative;
    for (int bit = 1; bit < lowest && relative + bit < size(); bit <<= 1) {
      send(data_.bytes(), data_.size_bytes(), absolute(relative + bit));
    }
    return false;
  }

 private:
  int absolute(int relative) const { return (relative + root_) % size(); }
  TensorView data_;
  int root_;
  bool forwarded_ = false;
};

class PointToPoint final : public Operation {
 public:
  PointToPoint(Communicator& comm, const OperationFacts& facts, const TensorView& data, int peer, int tag, bool receive)
      : Operation(comm, facts, tag, peer), data_(data), to_(peer), receive_(receive) {}
  void begin() override {
    if (receive_) {
      recv(data_.bytes(), data_.size_bytes(), to_);
    } else {
      send(data_.bytes(), data_.size_bytes(), to_);
    }
  }
  bool next_phase() override { return true; }

 private:
  TensorView data_;
  int to_;
  bool receive_;
};

}  // namespace

std::shared_ptr<Operation> make_allreduce(Communicator& comm, const OperationFacts& facts, const TensorView& data,
                                          ReduceOp op) {
  if (comm.size() > kDirectMembers && data.size_bytes() <= kSmallAllreduceBytes) {
    return std::make_shared<SpreadingAllreduce>(comm, facts, data, op);
  }
  return std::make_shared<Allreduce>(comm, facts, data, op);
}
std::shared_ptr<Operation> make_reduce_scatter(Communicator& comm, const OperationFacts& facts, const TensorView& input,
                                               const TensorView& output, ReduceOp op) {
  return std::make_shared<ReduceScatter>(comm, facts, input, output, op);
}
std::shared_ptr<Operation> make_allgather(Communicator& comm, const OperationFacts& facts, const TensorView& input,
                                          const TensorView& output) {
  if (comm.size() > kDirectMembers && input.size_bytes() <= kSmallAllreduceBytes) {
    return std::make_shared<SpreadingAllgather>(comm, facts, input, output);
  }
  return std::make_shared<Allgather>(comm, facts, input, output);
}
std::shared_ptr<Operation> make_bcast(Communicator& comm, const OperationFacts& facts, const TensorView& data,
                                      int root) {
  return std::make_shared<Bcast>(comm, facts, data, root);
}
std::shared_ptr<Operation> make_alltoall(Communicator& comm, const OperationFacts& facts, const TensorView& input,
                                         const TensorView& output) {
  return std::make_shared<Alltoall>(comm, facts, input, output);
}
std::shared_ptr<Operation> make_send(Communicator& comm, const OperationFacts& facts, const TensorView& data, int peer,
                                     int tag) {
  return std::make_shared<PointToPoint>(comm, facts, data, peer, tag, false);
}
std::shared_ptr<Operation> make_recv(Communicator& comm, const OperationFacts& facts, const TensorView& data, int peer,
                                     int tag) {
  return std::make_shared<PointToPoint>(comm, facts, data, peer, tag, true);
}

}  // namespace ms::core::detail
