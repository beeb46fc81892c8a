#include "core/comm/detail/exchange.h"

#include <algorithm>
#include <utility>

namespace ms::core::detail {
namespace {

constexpr int64_t kSmallestDirectBytes = int64_t{32} << 10;

}  // namespace

bool moves_directly(const Communicator& comm, int64_t bytes) {
  return comm.shares_memory() && bytes >= kSmallestDirectBytes;
}

ChunkedReduction::ChunkedReduction(Communicator& comm, const OperationFacts& facts, const TensorView& input,
                                   Blocks blocks, std::byte* output, int64_t output_begin, ReduceOp op,
                                   const std::byte* addend)
    : Operation(comm, facts),
      input_(input),
      blocks_(std::move(blocks)),
      output_(output),
      output_begin_(output_begin),
      op_(op),
      addend_(addend),
      item_(size_of(input.dtype())),
      chunk_elems_(std::max<int64_t>(1, kReductionChunkBytes / item_)),
      num_chunks_(blocks_.chunks(chunk_elems_)) {}

int64_t ChunkedReduction::longest_chunk() const {
  int64_t most = 0;
  for (int i = 0; i < blocks_.ranges_per_rank(); ++i) most = std::max(most, blocks_.range(rank(), i).count);
  return std::min(chunk_elems_, most);
}

std::byte* ChunkedReduction::received(int64_t chunk, int slot) const {
  return scratch_.data() + (chunk % 2 * (size() - 1) + slot) * longest_chunk() * item_;
}

void ChunkedReduction::begin_reduction() {
  const int64_t slots = std::min<int64_t>(num_chunks_, 2);
  scratch_ = arena().allocate(slots * (size() - 1) * longest_chunk() * item_, MemoryTag::kComm);
  if (num_chunks_ > 0) post(0);
}

bool ChunkedReduction::reduction_is_done() {
  if (chunk_ == num_chunks_) return true;
  if (chunk_ + 1 < num_chunks_) post(chunk_ + 1);
  const Range own = blocks_.chunk(rank(), chunk_, chunk_elems_);
  std::vector<const std::byte*> inputs;
  for (int peer = 0, slot = 0; peer < size(); ++peer)
    inputs.push_back(peer == rank() ? input_.bytes() + own.begin * item_ : received(chunk_, slot++));
  reduce_chunk(own, inputs);
  return ++chunk_ == num_chunks_;
}

void ChunkedReduction::reduce_chunk(const Range& own, const std::vector<const std::byte*>& inputs) const {
  reduce(input_.dtype(), inputs, output(own), own.count, op_, pool());
  if (addend_ != nullptr) add(input_.dtype(), output(own), addend_ + own.begin * item_, own.count, pool());
}

Range ChunkedReduction::reduce_directly(int64_t chunk, const std::vector<std::byte*>& inputs) const {
  const Range own = blocks_.chunk(rank(), chunk, kDirectChunkBytes / item_);
  std::vector<const std::byte*> parts;
  for (const std::byte* input : inputs) parts.push_back(input + own.begin * item_);
  reduce_chunk(own, parts);
  return own;
}

void ChunkedReduction::post(int64_t chunk) {
  const int64_t own = blocks_.chunk(rank(), chunk, chunk_elems_).count;
  for (int peer = 0, slot = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    if (own > 0) recv(received(chunk, slot), own * item_, peer);
    ++slot;
  }
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    const Range sent = blocks_.chunk(peer, chunk, chunk_elems_);
    if (sent.count > 0) send(input_.bytes() + sent.begin * item_, sent.count * item_, peer);
  }
}

bool LargeAllreduce::next_phase() {
  if (gathers_) return true;
  if (!reduction_is_done()) return false;
  gathers_ = true;
  const Range& own = blocks().range(rank());
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    const Range& theirs = blocks().range(peer);
    recv(data_.bytes() + theirs.begin * item(), theirs.count * item(), peer);
    send(data_.bytes() + own.begin * item(), own.count * item(), peer);
  }
  return false;
}

int64_t LargeAllreduce::move(int64_t chunk, const std::vector<std::byte*>& buffers) const {
  const Range part = reduce_directly(chunk, buffers);
  for (int peer = 0; peer < size(); ++peer) {
    std::byte* const buffer = buffers[static_cast<size_t>(peer)];
    if (peer != rank())
      copy_bytes(buffer + part.begin * item(), data_.bytes() + part.begin * item(), part.count * item());
  }
  return 2 * part.count * item();
}

void Allgather::begin() {
  for (int i = 0; i < blocks_.ranges_per_rank(); ++i) {
    const Range& own = blocks_.range(rank(), i);
    if (!is_whole_ && place(own) != input_.bytes()) copy_bytes(place(own), input_.bytes(), input_.size_bytes());
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size();
      const int from = (rank() - step + size()) % size();
      const Range& theirs = blocks_.range(from, i);
      recv(place(theirs), theirs.count * item(), from);
      send(place(own), own.count * item(), to);
    }
  }
}

// Of an empty buffer one, too, so that no chunk is of nobody.
int64_t Allgather::chunks_of_rank() const { return std::max<int64_t>(1, blocks_.chunks(kDirectChunkBytes / item())); }

int64_t Allgather::move(int64_t chunk, const std::vector<std::byte*>& inputs) const {
  const int from = static_cast<int>((rank() + chunk / chunks_of_rank()) % size());
  if (blocks_.longest() == 0) return 0;
  const Range part = blocks_.chunk(from, chunk % chunks_of_rank(), kDirectChunkBytes / item());
  const int64_t before = part.begin - (is_whole_ ? 0 : blocks_.range(from).begin);
  const std::byte* const source = inputs[static_cast<size_t>(from)] + before * item();
  if (place(part) != source) copy_bytes(place(part), source, part.count * item());
  return from == rank() ? 0 : part.count * item() / (size() - 1);
}

}  // namespace ms::core::detail
