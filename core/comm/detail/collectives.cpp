// The collectives by direct exchange: every rank sends block j to rank j and adds what it receives in rank order, so
// the result does not depend on arrival order. Ring-optimal in bytes. In a large group,
// small messages spread in rounds instead, so that each rank talks to few others: otherwise the collectives at the
// start of a job would open a connection between every two ranks.
#include <algorithm>
#include <cstring>

#include "core/comm/detail/direct.h"
#include "core/comm/detail/mailed.h"
#include "core/comm/detail/operation.h"
#include "core/error.h"

namespace ms::core::detail {
namespace {

// Group size up to which every rank sends to every other, whatever the message size.
constexpr int kDirectMembers = 8;

// memcpy must not be given a null pointer, as an empty tensor has, not even for 0 bytes.
void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Where each rank's block begins, in elements, and where the last one ends.
std::vector<int64_t> begins_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins = {0};
  for (const int64_t count : counts) begins.push_back(begins.back() + count);
  return begins;
}

// Equal blocks of `count` elements, or nearly so.
std::vector<int64_t> even_counts(int64_t count, int blocks) {
  std::vector<int64_t> counts;
  for (int block = 0; block < blocks; ++block) counts.push_back(count * (block + 1) / blocks - count * block / blocks);
  return counts;
}

// What a rank moves directly between two polls of its other operations.
constexpr int64_t kDirectChunkBytes = int64_t{256} << 10;
int64_t chunks_of(int64_t bytes) { return (bytes + kDirectChunkBytes - 1) / kDirectChunkBytes; }

// Where each rank's buffer can be addressed by all; smaller ones take longer to announce than to send.
constexpr int64_t kSmallestDirectBytes = int64_t{32} << 10;
bool moves_directly(const Communicator& comm, int64_t bytes) {
  return comm.shares_memory() && bytes >= kSmallestDirectBytes;
}

// A reduction of this rank's block of `input`, which every rank has whole. Blocks move in chunks: while one is added,
// the next one of each peer arrives. Two chunks of each peer are in memory at most, whatever the blocks' size.
class ChunkedReduction : public Operation {
 protected:
  // output: this rank's block; may be its place in `input`. Of each peer's block the parts that have been sent are not
  // read again.
  ChunkedReduction(Communicator& comm, const OperationFacts& facts, const TensorView& input, std::byte* output,
                   const std::vector<int64_t>& counts, ReduceOp op)
      : Operation(comm, facts),
        input_(input),
        output_(output),
        begins_(begins_of(counts)),
        op_(op),
        item_(size_of(input.dtype())),
        chunk_elems_(std::max<int64_t>(1, kReductionChunkBytes / item_)),
        num_chunks_((*std::max_element(counts.begin(), counts.end()) + chunk_elems_ - 1) / chunk_elems_) {}

  void begin_reduction() {
    const int64_t slots = std::min<int64_t>(num_chunks_, 2);
    scratch_ = arena().allocate(slots * slot_bytes(), MemoryTag::kComm);
    if (num_chunks_ > 0) post(0);
  }
  // Call it when all posted transfers are complete. False: more is under way.
  bool reduction_is_done() {
    if (chunk_ == num_chunks_) return true;
    if (chunk_ + 1 < num_chunks_) post(chunk_ + 1);
    const Range own = range(rank(), chunk_);
    std::vector<const std::byte*> inputs;
    for (int peer = 0, slot = 0; peer < size(); ++peer) {
      inputs.push_back(peer == rank() ? input_.bytes() + own.begin * item_ : received(chunk_, slot++));
    }
    reduce(input_.dtype(), inputs, output_ + (own.begin - begins_[static_cast<size_t>(rank())]) * item_, own.count, op_,
           pool());
    return ++chunk_ == num_chunks_;
  }

  struct Range {
    int64_t begin, count;
  };
  // The same where the inputs of all ranks can be read, for one chunk of this rank's block, whose range it returns.
  Range reduce_directly(int64_t chunk, const std::vector<std::byte*>& inputs) const {
    const Range part = range(rank(), chunk, kDirectChunkBytes / item_);
    std::vector<const std::byte*> parts;
    for (const std::byte* input : inputs) parts.push_back(input + part.begin * item_);
    reduce(input_.dtype(), parts, output_ + (part.begin - block_begin(rank())) * item_, part.count, op_, pool());
    return part;
  }
  const TensorView& input() const { return input_; }
  int64_t block_begin(int of_rank) const { return begins_[static_cast<size_t>(of_rank)]; }
  int64_t block_count(int of_rank) const { return block_begin(of_rank + 1) - block_begin(of_rank); }
  int64_t item() const { return item_; }

 private:
  // The part of a rank's block that its chunk of so many elements holds; the last ones may be empty.
  Range range(int of_rank, int64_t chunk, int64_t elems) const {
    const int64_t before = std::min(chunk * elems, block_count(of_rank));
    return {block_begin(of_rank) + before, std::min(elems, block_count(of_rank) - before)};
  }
  Range range(int of_rank, int64_t chunk) const { return range(of_rank, chunk, chunk_elems_); }
  int64_t slot_bytes() const { return (size() - 1) * std::min(chunk_elems_, block_count(rank())) * item_; }
  std::byte* received(int64_t chunk, int slot) const {
    return scratch_.data() + chunk % 2 * slot_bytes() + slot * std::min(chunk_elems_, block_count(rank())) * item_;
  }
  void post(int64_t chunk) {
    const int64_t own = range(rank(), chunk).count;
    for (int peer = 0, slot = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      if (own > 0) recv(received(chunk, slot), own * item_, peer);
      ++slot;
    }
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      const Range sent = range(peer, chunk);
      if (sent.count > 0) send(input_.bytes() + sent.begin * item_, sent.count * item_, peer);
    }
  }

  TensorView input_;
  std::byte* output_;
  std::vector<int64_t> begins_;  // of each rank's block, and the end
  ReduceOp op_;
  int64_t item_, chunk_elems_, num_chunks_;
  int64_t chunk_ = 0;  // the next to be added
  // [chunk % 2][peer][element]; until the operation has been waited for: what a rank holds at most does not depend on
  // when others answer.
  Buffer scratch_;
};

class ReduceScatter : public ChunkedReduction {
 public:
  ReduceScatter(Communicator& comm, const OperationFacts& facts, const TensorView& input,
                const std::vector<int64_t>& counts, const TensorView& output, ReduceOp op)
      : ChunkedReduction(comm, facts, input, output.bytes(), counts, op) {}

  void begin() override { begin_reduction(); }
  bool next_phase() override { return reduction_is_done(); }

 protected:
  const TensorView& announced() const { return input(); }
  int64_t direct_chunks() const { return chunks_of(block_count(rank()) * item()); }
  int64_t move(int64_t chunk, const std::vector<std::byte*>& inputs) const {
    return reduce_directly(chunk, inputs).count * item();
  }
};

// A reduce-scatter and an all-gather.
class LargeAllreduce : public ChunkedReduction {
 public:
  LargeAllreduce(Communicator& comm, const OperationFacts& facts, const TensorView& data, ReduceOp op)
      : ChunkedReduction(
            comm, facts, data,
            data.bytes() + even_counts_begin(data.size(), comm.rank(), comm.size()) * size_of(data.dtype()),
            even_counts(data.size(), comm.size()), op),
        data_(data) {}

  void begin() override { begin_reduction(); }
  bool next_phase() override {
    if (gathers_) return true;
    if (!reduction_is_done()) return false;
    gathers_ = true;
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      recv(data_.bytes() + block_begin(peer) * item(), block_count(peer) * item(), peer);
      send(data_.bytes() + block_begin(rank()) * item(), block_count(rank()) * item(), peer);
    }
    return false;
  }

 protected:
  const TensorView& announced() const { return data_; }
  int64_t direct_chunks() const { return chunks_of(block_count(rank()) * item()); }
  int64_t move(int64_t chunk, const std::vector<std::byte*>& buffers) const {
    const Range part = reduce_directly(chunk, buffers);
    for (int peer = 0; peer < size(); ++peer) {
      std::byte* const buffer = buffers[static_cast<size_t>(peer)];
      if (peer != rank())
        copy_bytes(buffer + part.begin * item(), data_.bytes() + part.begin * item(), part.count * item());
    }
    return 2 * part.count * item();
  }

 private:
  static int64_t even_counts_begin(int64_t count, int rank, int size) { return count * rank / size; }
  TensorView data_;
  bool gathers_ = false;
};

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

class Allgather : public Operation {
 public:
  Allgather(Communicator& comm, const OperationFacts& facts, const TensorView& input,
            const std::vector<int64_t>& counts, const TensorView& output)
      : Operation(comm, facts), input_(input), begins_(begins_of(counts)), output_(output) {}

  void begin() override {
    std::byte* own = block(rank());
    if (own != input_.bytes()) copy_bytes(own, input_.bytes(), input_.size_bytes());
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size();
      const int from = (rank() - step + size()) % size();
      recv(block(from), block(from + 1) - block(from), from);
      send(own, input_.size_bytes(), to);
    }
  }
  bool next_phase() override { return true; }

 protected:
  const TensorView& announced() const { return input_; }
  // As many of each rank's block, beginning with this one's.
  int64_t direct_chunks() const { return size() * chunks_of_block(); }
  int64_t move(int64_t chunk, const std::vector<std::byte*>& inputs) const {
    const int from = static_cast<int>((rank() + chunk / chunks_of_block()) % size());
    const int64_t size_bytes = block(from + 1) - block(from);
    const int64_t begin = std::min(chunk % chunks_of_block() * kDirectChunkBytes, size_bytes);
    const int64_t bytes = std::min(kDirectChunkBytes, size_bytes - begin);
    const std::byte* const input = inputs[static_cast<size_t>(from)];
    if (block(from) != input) copy_bytes(block(from) + begin, input + begin, bytes);
    return from == rank() ? 0 : bytes / (size() - 1);
  }

 private:
  std::byte* block(int of_rank) const {
    return output_.bytes() + begins_[static_cast<size_t>(of_rank)] * size_of(output_.dtype());
  }
  int64_t chunks_of_block() const {
    int64_t most = 0;
    for (int from = 0; from < size(); ++from) most = std::max<int64_t>(most, block(from + 1) - block(from));
    return std::max<int64_t>(1, chunks_of(most));
  }
  TensorView input_;
  std::vector<int64_t> begins_;
  TensorView output_;
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

class Alltoall final : public Operation {
 public:
  Alltoall(Communicator& comm, const OperationFacts& facts, const TensorView& input,
           const std::vector<int64_t>& input_counts, const TensorView& output,
           const std::vector<int64_t>& output_counts)
      : Operation(comm, facts),
        input_(input),
        output_(output),
        input_begins_(begins_of(input_counts)),
        output_begins_(begins_of(output_counts)) {}

  void begin() override {
    copy_bytes(received(rank()), sent(rank()), sent(rank() + 1) - sent(rank()));
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size();
      const int from = (rank() - step + size()) % size();
      recv(received(from), received(from + 1) - received(from), from);
      send(sent(to), sent(to + 1) - sent(to), to);
    }
  }
  bool next_phase() override { return true; }
  int64_t agreed_elements(int peer, bool receive) const override {
    const std::vector<int64_t>& begins = receive ? output_begins_ : input_begins_;
    return begins[static_cast<size_t>(peer) + 1] - begins[static_cast<size_t>(peer)];
  }

 private:
  std::byte* sent(int to) const {
    return input_.bytes() + input_begins_[static_cast<size_t>(to)] * size_of(input_.dtype());
  }
  std::byte* received(int from) const {
    return output_.bytes() + output_begins_[static_cast<size_t>(from)] * size_of(output_.dtype());
  }
  TensorView input_, output_;
  std::vector<int64_t> input_begins_, output_begins_;
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
  if (is_mailed(comm, data.size_bytes())) return make_mailed_allreduce(comm, facts, data, op);
  const bool small = data.size_bytes() <= kSmallAllreduceBytes;
  if (small && comm.size() > kDirectMembers) return std::make_shared<SpreadingAllreduce>(comm, facts, data, op);
  if (small || comm.size() == 1) return std::make_shared<SmallAllreduce>(comm, facts, data, op);
  if (moves_directly(comm, data.size_bytes())) return std::make_shared<Direct<LargeAllreduce>>(comm, facts, data, op);
  return std::make_shared<LargeAllreduce>(comm, facts, data, op);
}
std::shared_ptr<Operation> make_reduce_scatter(Communicator& comm, const OperationFacts& facts, const TensorView& input,
                                               std::vector<int64_t> counts, const TensorView& output, ReduceOp op) {
  if (moves_directly(comm, input.size_bytes()))
    return std::make_shared<Direct<ReduceScatter>>(comm, facts, input, counts, output, op);
  return std::make_shared<ReduceScatter>(comm, facts, input, counts, output, op);
}
std::shared_ptr<Operation> make_allgather(Communicator& comm, const OperationFacts& facts, const TensorView& input,
                                          std::vector<int64_t> counts, const TensorView& output) {
  if (is_mailed(comm, *std::ranges::max_element(counts) * size_of(input.dtype())))
    return make_mailed_allgather(comm, facts, input, std::move(counts), output);
  const bool even = std::ranges::all_of(counts, [&](int64_t count) { return count == counts.front(); });
  if (even && comm.size() > kDirectMembers && input.size_bytes() <= kSmallAllreduceBytes)
    return std::make_shared<SpreadingAllgather>(comm, facts, input, output);
  if (moves_directly(comm, output.size_bytes()))
    return std::make_shared<Direct<Allgather>>(comm, facts, input, counts, output);
  return std::make_shared<Allgather>(comm, facts, input, counts, output);
}
std::shared_ptr<Operation> make_bcast(Communicator& comm, const OperationFacts& facts, const TensorView& data,
                                      int root) {
  if (is_mailed(comm, data.size_bytes())) return make_mailed_bcast(comm, facts, data, root);
  return std::make_shared<Bcast>(comm, facts, data, root);
}
std::shared_ptr<Operation> make_alltoall(Communicator& comm, const OperationFacts& facts, const TensorView& input,
                                         std::vector<int64_t> input_counts, const TensorView& output,
                                         std::vector<int64_t> output_counts) {
  return std::make_shared<Alltoall>(comm, facts, input, input_counts, output, output_counts);
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
