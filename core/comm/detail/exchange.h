// The large collectives by direct exchange: every rank sends block j to rank j and adds what it receives in rank order,
// so that the result does not depend on who comes first. Ring-optimal in bytes. Each also moves its data without
// messages where the ranks address each other's memory (direct.h).
#pragma once

#include <memory>
#include <vector>

#include "core/comm/detail/blocks.h"
#include "core/comm/detail/direct.h"
#include "core/comm/detail/operation.h"

namespace ms::core::detail {

// What a rank moves directly between two polls of its other operations.
inline constexpr int64_t kDirectChunkBytes = int64_t{256} << 10;

// A reduction of this rank's block of `input`, which every rank has whole. Blocks move in chunks: while one is added,
// the next one of each peer arrives. Two chunks of each peer are in memory at most, whatever the blocks' size.
class ChunkedReduction : public Operation {
 protected:
  // output: where element `output_begin` of the buffer goes; may be its place in `input`. Of each peer's block the
  // parts that have been sent are not read again. addend: what is added to the reduction of the whole buffer; null:
  // nothing.
  ChunkedReduction(Communicator& comm, const OperationFacts& facts, const TensorView& input, Blocks blocks,
                   std::byte* output, int64_t output_begin, ReduceOp op, const std::byte* addend = nullptr);

  void begin_reduction();
  // Call it when all posted transfers are complete. False: more is under way.
  bool reduction_is_done();

  // The same where the inputs of all ranks can be read, for one of direct_chunks(), whose range it returns.
  Range reduce_directly(int64_t chunk, const std::vector<std::byte*>& inputs) const;
  int64_t direct_chunks() const { return blocks_.chunks(kDirectChunkBytes / item_); }
  const TensorView& input() const { return input_; }
  const TensorView& announced() const { return input_; }
  const Blocks& blocks() const { return blocks_; }
  int64_t item() const { return item_; }

 private:
  int64_t longest_chunk() const;  // of this rank, elements
  std::byte* received(int64_t chunk, int slot) const;
  std::byte* output(const Range& own) const { return output_ + (own.begin - output_begin_) * item_; }
  void post(int64_t chunk);
  void reduce_chunk(const Range& own, const std::vector<const std::byte*>& inputs) const;

  TensorView input_;
  Blocks blocks_;
  std::byte* output_;
  int64_t output_begin_;
  ReduceOp op_;
  const std::byte* addend_;
  int64_t item_, chunk_elems_, num_chunks_;
  int64_t chunk_ = 0;  // the next to be added
  // [chunk % 2][peer][element]; until the operation has been waited for: what a rank holds at most does not depend on
  // when others answer.
  Buffer scratch_;
};

class ReduceScatter : public ChunkedReduction {
 public:
  // output: this rank's block, one range.
  ReduceScatter(Communicator& comm, const OperationFacts& facts, const TensorView& input, Blocks blocks,
                const TensorView& output, ReduceOp op)
      : ChunkedReduction(comm, facts, input, blocks, output.bytes(), blocks.range(comm.rank()).begin, op) {}
  // Into this rank's places in `data`.
  ReduceScatter(Communicator& comm, const OperationFacts& facts, const TensorView& data, Blocks blocks, ReduceOp op)
      : ChunkedReduction(comm, facts, data, std::move(blocks), data.bytes(), 0, op) {}

  void begin() override { begin_reduction(); }
  bool next_phase() override { return reduction_is_done(); }

 protected:
  static constexpr bool kOthersWrite = false;
  int64_t move(int64_t chunk, const std::vector<std::byte*>& inputs) const {
    return reduce_directly(chunk, inputs).count * item();
  }
};

// A reduce-scatter and an all-gather.
class LargeAllreduce : public ChunkedReduction {
 public:
  // addend: Communicator::iallreduce_onto; null: none.
  LargeAllreduce(Communicator& comm, const OperationFacts& facts, const TensorView& data, ReduceOp op,
                 const std::byte* addend = nullptr)
      : ChunkedReduction(comm, facts, data, Blocks::even(data.size(), comm.size()), data.bytes(), 0, op, addend),
        data_(data) {}

  void begin() override { begin_reduction(); }
  bool next_phase() override;

 protected:
  static constexpr bool kOthersWrite = true;
  int64_t move(int64_t chunk, const std::vector<std::byte*>& buffers) const;

 private:
  TensorView data_;
  bool gathers_ = false;
};

class Allgather : public Operation {
 public:
  // input: this rank's block, one range; may be its place in output.
  Allgather(Communicator& comm, const OperationFacts& facts, const TensorView& input, Blocks blocks,
            const TensorView& output)
      : Operation(comm, facts), input_(input), blocks_(std::move(blocks)), output_(output), is_whole_(false) {}
  // Of what is in its places in `data`.
  Allgather(Communicator& comm, const OperationFacts& facts, const TensorView& data, Blocks blocks)
      : Operation(comm, facts), input_(data), blocks_(std::move(blocks)), output_(data), is_whole_(true) {}

  void begin() override;
  bool next_phase() override { return true; }

 protected:
  static constexpr bool kOthersWrite = false;
  const TensorView& announced() const { return input_; }
  // As many of each rank's block, beginning with this one's.
  int64_t direct_chunks() const { return size() * chunks_of_rank(); }
  int64_t move(int64_t chunk, const std::vector<std::byte*>& inputs) const;

 private:
  std::byte* place(const Range& range) const { return output_.bytes() + range.begin * item(); }
  int64_t item() const { return size_of(output_.dtype()); }
  int64_t chunks_of_rank() const;
  TensorView input_;
  Blocks blocks_;
  TensorView output_;
  bool is_whole_;  // input: the buffer, and not this rank's block
};

// Whether collectives of so many bytes go through each other's memory: smaller ones take longer to announce than to
// send.
bool moves_directly(const Communicator& comm, int64_t bytes);

// Operation by messages, or in each other's memory where that can be addressed.
template <class Collective, class... Arguments>
std::shared_ptr<Operation> make_exchange(int64_t bytes, Communicator& comm, const Arguments&... arguments) {
  if (moves_directly(comm, bytes)) return std::make_shared<Direct<Collective>>(comm, arguments...);
  return std::make_shared<Collective>(comm, arguments...);
}

}  // namespace ms::core::detail
