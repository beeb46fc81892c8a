// Which algorithm a collective takes, and those of small ones. Large ones exchange blocks (exchange.h), in two levels
// where a group spans machines (level_collectives.h). In a large group, small messages spread in rounds, so that each
// rank talks to few others: otherwise the collectives at the start of a job would open a connection between every two
// ranks.
#include <algorithm>
#include <utility>

#include "core/comm/detail/exchange.h"
#include "core/comm/detail/level_collectives.h"
#include "core/comm/detail/mailed.h"
#include "core/comm/detail/operation.h"
#include "core/error.h"

namespace ms::core::detail {
namespace {

// Every rank sends all its data to every other, and adds up the whole: one message latency instead of two.
class SmallAllreduce final : public Operation {
 public:
  SmallAllreduce(Communicator& comm, const OperationFacts& facts, const TensorView& data, ReduceOp op)
      : Operation(comm, facts), data_(data), op_(op) {}

  void begin() override {
    if (size() == 1) return;
    const int64_t bytes = data_.size_bytes();
    received_ = arena().allocate(bytes * (size() - 1), MemoryTag::kComm);
    for (int peer = 0, slot = 0; peer < size(); ++peer) {
      if (peer != rank()) recv(received_.data() + slot++ * bytes, bytes, peer);
    }
    // Peers read a copy: the sum is written into data_ while sends may still be running.
    copy_ = arena().allocate(bytes, MemoryTag::kComm);
    copy_bytes(copy_.data(), data_.bytes(), bytes);
    for (int step = 1; step < size(); ++step) send(copy_.data(), bytes, (rank() + step) % size());
  }
  bool next_phase() override {
    if (size() == 1) return true;
    std::vector<const std::byte*> inputs;
    for (int peer = 0, slot = 0; peer < size(); ++peer) {
      inputs.push_back(peer == rank() ? data_.bytes() : received_.data() + slot++ * data_.size_bytes());
    }
    reduce(data_.dtype(), inputs, data_.bytes(), data_.size(), op_, nullptr);
    return true;
  }

 private:
  TensorView data_;
  ReduceOp op_;
  Buffer received_, copy_;
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
    reduce(data_.dtype(), inputs, data_.bytes(), data_.size(), op_, nullptr);
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

// An all-reduce of which every rank computes, or receives, the whole sum, and adds to it.
class AllreduceOnto final : public Operation {
 public:
  AllreduceOnto(Communicator& comm, const OperationFacts& facts, const TensorView& data, const TensorView& addend)
      : Operation(comm, facts), data_(data), addend_(addend), sum_(make_allreduce(comm, facts, data, ReduceOp::kSum)) {}

  void begin() override { begin_part(*sum_); }
  bool next_phase() override {
    add(data_.dtype(), data_.bytes(), addend_.bytes(), data_.size(), nullptr);
    return true;
  }
  std::vector<int> silent_ranks() const override { return sum_->silent_ranks(); }

 protected:
  bool others_have_come() override {
    if (!sum_->step()) return false;
    note_part(*sum_);
    return true;
  }

 private:
  TensorView data_, addend_;
  std::shared_ptr<Operation> sum_;
};

class Alltoall final : public Operation {
 public:
  Alltoall(Communicator& comm, const OperationFacts& facts, const TensorView& input, Blocks input_blocks,
           const TensorView& output, Blocks output_blocks)
      : Operation(comm, facts), sent_(input, std::move(input_blocks)), received_(output, std::move(output_blocks)) {}

  void begin() override {
    const int ranges = received_.blocks.ranges_per_rank();
    for (int i = 0; i < ranges; ++i)
      copy_bytes(received_.begin(rank(), i), sent_.begin(rank(), i), sent_.bytes(rank(), i));
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size();
      const int from = (rank() - step + size()) % size();
      for (int i = 0; i < ranges; ++i) {
        recv(received_.begin(from, i), received_.bytes(from, i), from);
        send(sent_.begin(to, i), sent_.bytes(to, i), to);
      }
    }
  }
  bool next_phase() override { return true; }
  int64_t agreed_elements(int peer, bool receive) const override {
    return (receive ? received_ : sent_).blocks.elements(peer);
  }

 private:
  struct Places {
    Places(const TensorView& of, Blocks in_blocks) : buffer(of), blocks(std::move(in_blocks)) {}
    std::byte* begin(int of_rank, int i) const { return buffer.bytes() + blocks.range(of_rank, i).begin * item(); }
    int64_t bytes(int of_rank, int i) const { return blocks.range(of_rank, i).count * item(); }
    int64_t item() const { return size_of(buffer.dtype()); }

    TensorView buffer;
    Blocks blocks;
  };
  Places sent_, received_;
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

// Whether each rank of a group reduces a block of an all-reduce for the others, in one level.
bool reduces_in_blocks(const Communicator& comm, int64_t bytes) {
  return bytes > kSmallAllreduceBytes && comm.size() > 1 && comm.levels() == nullptr;
}

}  // namespace

std::shared_ptr<Operation> make_allreduce(Communicator& comm, const OperationFacts& facts, const TensorView& data,
                                          ReduceOp op) {
  if (is_mailed(comm, data.size_bytes())) return make_mailed_allreduce(comm, facts, data, op);
  const bool small = data.size_bytes() <= kSmallAllreduceBytes;
  if (small && comm.size() > kDirectMembers) return std::make_shared<SpreadingAllreduce>(comm, facts, data, op);
  if (small || comm.size() == 1) return std::make_shared<SmallAllreduce>(comm, facts, data, op);
  if (comm.levels() != nullptr) return make_level_allreduce(comm, facts, data, op);
  return make_exchange<LargeAllreduce>(data.size_bytes(), comm, facts, data, op);
}
std::shared_ptr<Operation> make_allreduce_onto(Communicator& comm, const OperationFacts& facts, const TensorView& data,
                                               const TensorView& addend) {
  if (reduces_in_blocks(comm, data.size_bytes()))
    return make_exchange<LargeAllreduce>(data.size_bytes(), comm, facts, data, ReduceOp::kSum, addend.bytes());
  return std::make_shared<AllreduceOnto>(comm, facts, data, addend);
}
std::shared_ptr<Operation> make_reduce_scatter(Communicator& comm, const OperationFacts& facts, const TensorView& input,
                                               const std::vector<int64_t>& counts, const TensorView& output,
                                               ReduceOp op) {
  const Blocks blocks = Blocks::in_order(counts);
  if (comm.levels() != nullptr) return make_level_reduce_scatter(comm, facts, input, blocks, output, op);
  return make_exchange<ReduceScatter>(input.size_bytes(), comm, facts, input, blocks, output, op);
}
std::shared_ptr<Operation> make_allgather(Communicator& comm, const OperationFacts& facts, const TensorView& input,
                                          std::vector<int64_t> counts, const TensorView& output) {
  if (is_mailed(comm, *std::ranges::max_element(counts) * size_of(input.dtype())))
    return make_mailed_allgather(comm, facts, input, std::move(counts), output);
  const bool even = std::ranges::all_of(counts, [&](int64_t count) { return count == counts.front(); });
  if (even && comm.size() > kDirectMembers && input.size_bytes() <= kSmallAllreduceBytes)
    return std::make_shared<SpreadingAllgather>(comm, facts, input, output);
  const Blocks blocks = Blocks::in_order(counts);
  if (comm.levels() != nullptr) return make_level_allgather(comm, facts, input, blocks, output);
  return make_exchange<Allgather>(output.size_bytes(), comm, facts, input, blocks, output);
}
std::shared_ptr<Operation> make_bcast(Communicator& comm, const OperationFacts& facts, const TensorView& data,
                                      int root) {
  if (is_mailed(comm, data.size_bytes())) return make_mailed_bcast(comm, facts, data, root);
  return std::make_shared<Bcast>(comm, facts, data, root);
}
std::shared_ptr<Operation> make_alltoall(Communicator& comm, const OperationFacts& facts, const TensorView& input,
                                         const Blocks& input_blocks, const TensorView& output,
                                         const Blocks& output_blocks) {
  return std::make_shared<Alltoall>(comm, facts, input, input_blocks, output, output_blocks);
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
