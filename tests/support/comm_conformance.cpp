#include "tests/support/comm_conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <thread>

#include "core/comm/agree.h"
#include "core/rng.h"
#include "kernels/bf16.h"

namespace ms::test {
namespace {

using core::Communicator;
using core::DType;
using core::TensorView;

template <class T>
TensorView view(std::vector<T>& values) {
  return TensorView(values.data(), core::dtype_of<T>(), {static_cast<int64_t>(values.size())});
}

float value_at(int rank, int64_t i) { return core::Rng(7, "conformance").normal(static_cast<uint64_t>(i * 64 + rank)); }

// Of value_at(rank, i) of all ranks, in the order in which a reduction of `count` numbers adds: bits must be equal.
float sum_at(const Communicator& comm, int64_t count, int64_t i) {
  const auto add = [i](const std::vector<int>& ranks) {
    float sum = value_at(ranks.front(), i);
    for (size_t r = 1; r < ranks.size(); ++r) sum += value_at(ranks[r], i);
    return sum;
  };
  if (comm.levels() != nullptr && count * 4 > core::kSmallAllreduceBytes) {
    const auto& machines = comm.levels()->ranks.at;
    float sum = add(machines.front());
    for (size_t m = 1; m < machines.size(); ++m) sum += add(machines[m]);
    return sum;
  }
  std::vector<int> all(static_cast<size_t>(comm.size()));
  std::iota(all.begin(), all.end(), 0);
  return add(all);
}

void check_allreduce(Communicator& comm, int64_t count) {
  std::vector<float> data(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) data[static_cast<size_t>(i)] = value_at(comm.rank(), i);
  comm.allreduce(view(data));
  for (int64_t i = 0; i < count; ++i)
    ASSERT_EQ(data[static_cast<size_t>(i)], sum_at(comm, count, i)) << "element " << i << " of " << count;
}

// Alike on every rank.
float addend_at(int64_t i) { return value_at(1000, i); }

// T: the bits of a sum and an addition one after the other.
template <class T>
void check_allreduce_onto(Communicator& comm, int64_t count) {
  std::vector<T> data(static_cast<size_t>(count)), addend(data.size());
  for (int64_t i = 0; i < count; ++i) {
    data[static_cast<size_t>(i)] = T(value_at(comm.rank(), i));
    addend[static_cast<size_t>(i)] = T(addend_at(i));
  }
  std::vector<T> sum = data;
  const auto view_of = [&](std::vector<T>& values) {
    return TensorView(values.data(), sizeof(T) == 2 ? DType::kBf16 : DType::kFp32, {count});
  };
  comm.allreduce(view_of(sum));
  comm.iallreduce_onto(view_of(data), view_of(addend)).wait();
  for (size_t i = 0; i < data.size(); ++i)
    ASSERT_EQ(float(data[i]), float(T(float(sum[i]) + float(addend[i])))) << "element " << i << " of " << count;
}

void check_reduce_scatter_allgather(Communicator& comm, int64_t each) {
  const int n = comm.size();
  std::vector<int64_t> input(static_cast<size_t>(each * n)), part(static_cast<size_t>(each)),
      all(static_cast<size_t>(each * n));
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<int64_t>(i) * (comm.rank() + 1);
  comm.reduce_scatter(view(input), view(part));
  const int64_t factor = int64_t{n} * (n + 1) / 2;
  for (int64_t i = 0; i < each; ++i) ASSERT_EQ(part[static_cast<size_t>(i)], (comm.rank() * each + i) * factor);
  comm.allgather(view(part), view(all));
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int64_t>(i) * factor);
}

// Rank r has a block of r + 1 elements, every third rank none.
void check_uneven_blocks(Communicator& comm, int64_t unit) {
  std::vector<int64_t> counts, begins = {0};
  for (int r = 0; r < comm.size(); ++r) {
    counts.push_back(r % 3 == 2 ? 0 : unit * (r + 1));
    begins.push_back(begins.back() + counts.back());
  }
  const auto own = static_cast<size_t>(comm.rank());
  std::vector<int64_t> input(static_cast<size_t>(begins.back())), part(static_cast<size_t>(counts[own])), all(input);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<int64_t>(i) * (comm.rank() + 1);
  comm.ireduce_scatterv(view(input), counts, view(part)).wait();
  const int64_t factor = int64_t{comm.size()} * (comm.size() + 1) / 2;
  for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], (begins[own] + static_cast<int64_t>(i)) * factor);
  comm.iallgatherv(view(part), counts, view(all)).wait();
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int64_t>(i) * factor);

  // From rank r to rank j: (r + 2 j) % 4 units of the number 100 r + j.
  const auto elements = [&](int from, int to) { return unit * ((from + 2 * to) % 4); };
  std::vector<int64_t> sent_counts, received_counts;
  std::vector<int32_t> sent, expected;
  for (int peer = 0; peer < comm.size(); ++peer) {
    sent_counts.push_back(elements(comm.rank(), peer));
    received_counts.push_back(elements(peer, comm.rank()));
    sent.insert(sent.end(), static_cast<size_t>(sent_counts.back()), 100 * comm.rank() + peer);
    expected.insert(expected.end(), static_cast<size_t>(received_counts.back()), 100 * peer + comm.rank());
  }
  std::vector<int32_t> received(expected.size());
  comm.ialltoallv(view(sent), sent_counts, view(received), received_counts).wait();
  EXPECT_EQ(received, expected);
}

// From blocks in the order of ranks to halves at the front and the back, and again to blocks.
void check_halves_of_blocks(Communicator& comm, int64_t half) {
  using enum core::BlockOrder;
  const int ranks = comm.size();
  // From rank r to rank j: halves of the numbers 100 r + 2 j and 100 r + 2 j + 1.
  std::vector<int32_t> by_rank, expected(static_cast<size_t>(2 * ranks * half));
  for (int peer = 0; peer < ranks; ++peer) {
    for (const int which : {0, 1}) {
      by_rank.insert(by_rank.end(), static_cast<size_t>(half), 100 * comm.rank() + 2 * peer + which);
      const int64_t part = which == 0 ? peer : 2 * ranks - 1 - peer;
      std::fill_n(expected.begin() + part * half, half, 100 * peer + 2 * comm.rank() + which);
    }
  }
  std::vector<int32_t> halves(expected.size()), back(expected.size());
  const int64_t bytes = comm.counter(core::CommOp::kAlltoall).ring_bytes;
  comm.ialltoall(view(by_rank), view(halves), kByRank, kFrontBack).wait();
  EXPECT_EQ(halves, expected);
  EXPECT_EQ(comm.counter(core::CommOp::kAlltoall).ring_bytes - bytes, 2 * half * (ranks - 1) * 4);
  comm.ialltoall(view(halves), view(back), kFrontBack, kByRank).wait();
  EXPECT_EQ(back, by_rank);
}

// Twelve chunks and a bit for every rank, of which two from each peer are in memory; none where memory is shared.
void check_chunks(Communicator& comm) {
  const int64_t count = comm.size() * (12 * core::kReductionChunkBytes / 4 + 5);
  std::vector<float> data(static_cast<size_t>(count), static_cast<float>(comm.rank() + 1));
  core::Arena& arena = comm.endpoint().arena();
  arena.reset_peaks();
  comm.allreduce(view(data));
  const auto sum = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  EXPECT_EQ(std::count(data.begin(), data.end(), sum), count);
  const int64_t most = core::reduction_scratch_bytes(core::CommOp::kAllreduce, count * 4, comm.size());
  if (comm.levels() == nullptr) {
    EXPECT_EQ(arena.peak_bytes(core::MemoryTag::kComm), comm.shares_memory() ? 0 : most);
  } else {
    EXPECT_LT(arena.peak_bytes(core::MemoryTag::kComm), most);
  }
}

void check_point_to_point(Communicator& comm) {
  if (comm.size() == 1) return;
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  std::vector<int32_t> first = {comm.rank(), 1}, second = {comm.rank(), 2}, a(2), b(2), c(1);
  std::vector<int32_t> tagged = {comm.rank() * 10};
  core::Work receives[3] = {comm.irecv(view(a), previous), comm.irecv(view(b), previous),
                            comm.irecv(view(c), previous, 3)};
  comm.isend(view(tagged), next, 3).wait();
  comm.send(view(first), next);
  comm.send(view(second), next);
  for (auto& receive : receives) receive.wait();
  EXPECT_EQ(a, (std::vector<int32_t>{previous, 1}));
  EXPECT_EQ(b, (std::vector<int32_t>{previous, 2}));
  EXPECT_EQ(c[0], previous * 10);
}

void check_collectively(Communicator& comm) {
  core::collectively(comm, "quiet phase", [] {});
  const int bad = comm.size() - 1;
  try {
    core::collectively(comm, "loud phase", [&] {
      if (comm.rank() == bad) throw core::Error(core::ErrorCode::kCorruptData, "bad shard");
    });
    FAIL() << "no rank may pass";
  } catch (const core::AgreedError& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kCorruptData);
    EXPECT_NE(std::string(e.what()).find("loud phase"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("bad shard"), std::string::npos);
  }
}

void check_overlapping_operations(Communicator& comm) {
  std::vector<float> a(5000, 1.0f), b(3000, 2.0f);
  core::Work first = comm.iallreduce(view(a));
  core::Work second = comm.iallreduce(view(b));
  second.wait();  // completes in another order than started
  first.wait();
  EXPECT_EQ(a[4999], static_cast<float>(comm.size()));
  EXPECT_EQ(b[2999], 2.0f * static_cast<float>(comm.size()));
}

// More small ones at once than a mailbox has slots, of several kinds.
void check_many_small_operations(Communicator& comm) {
  constexpr int kMany = 25;
  const int n = comm.size();
  std::vector<std::vector<int64_t>> sums, parts, gathered, told;
  for (int i = 0; i < kMany; ++i) {
    sums.emplace_back(static_cast<size_t>(i) * 7 % 50, comm.rank() + i);
    parts.emplace_back(2, 100 * i + comm.rank());
    gathered.emplace_back(static_cast<size_t>(2 * n));
    told.emplace_back(3, comm.rank() == i % n ? i : -1);
  }
  std::vector<core::Work> works;
  for (size_t i = 0; i < kMany; ++i) {
    works.push_back(comm.iallreduce(view(sums[i])));
    works.push_back(comm.ibcast(view(told[i]), static_cast<int>(i) % n));
    works.push_back(comm.iallgather(view(parts[i]), view(gathered[i])));
  }
  while (!works.empty()) {
    works.back().wait();
    works.pop_back();
  }
  for (int i = 0; i < kMany; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t sum = int64_t{n} * (n - 1) / 2 + int64_t{i} * n;
    EXPECT_EQ(sums[at], std::vector<int64_t>(sums[at].size(), sum)) << i;
    EXPECT_EQ(told[at], std::vector<int64_t>(3, i)) << i;
    for (int r = 0; r < n; ++r) EXPECT_EQ(gathered[at][static_cast<size_t>(2 * r + 1)], 100 * i + r) << i;
  }
}

void check_counters(Communicator& comm) {
  for (const int64_t count : {4096, 256}) {
    comm.reset_counters();
    std::vector<float> data(static_cast<size_t>(count));
    comm.allreduce(view(data));
    const auto& counter = comm.counter(core::CommOp::kAllreduce);
    const int64_t n = comm.size();
    EXPECT_EQ(counter.calls, 1);
    EXPECT_EQ(counter.payload_bytes, count * 4);
    EXPECT_EQ(counter.ring_bytes, 2 * (n - 1) * count * 4 / n);
  }
}

// Messages on a side channel, from another thread, at the same time as messages of this thread.
void check_side_channel(core::Endpoint& endpoint, core::Endpoint::SideProgress progress) {
  const auto side = endpoint.side_channel(progress), other = endpoint.side_channel(progress);
  const int n = endpoint.size(), next = (endpoint.rank() + 1) % n, previous = (endpoint.rank() + n - 1) % n;
  EXPECT_EQ(side->rank(), endpoint.rank());
  EXPECT_TRUE(side->peer_lives(next));
  std::atomic<bool> done{false};
  std::vector<int32_t> sent(100'000, endpoint.rank()), received(sent.size(), -1), others = sent,
                                                                                  received_by_other = sent;
  for (int32_t& value : others) value += 1000;
  std::thread thread([&] {
    const auto bytes = static_cast<int64_t>(sent.size()) * 4;
    std::vector<std::unique_ptr<core::TransferRequest>> requests;
    requests.push_back(other->isend(others.data(), bytes, next, 7));  // the same peer and tag
    requests.push_back(side->irecv(received.data(), bytes, previous, 7));
    requests.push_back(other->irecv(received_by_other.data(), bytes, previous, 7));
    requests.push_back(side->isend(sent.data(), bytes, next, 7));
    for (const auto& request : requests) {
      while (!request->test()) std::this_thread::yield();
    }
    done = true;
  });
  std::vector<int> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  Communicator world(endpoint, "beside", all, 3);
  for (int i = 0; i < 20; ++i) check_allreduce(world, 1000);
  while (!done) endpoint.progress();
  thread.join();
  EXPECT_EQ(received, std::vector<int32_t>(sent.size(), previous));
  EXPECT_EQ(received_by_other, std::vector<int32_t>(sent.size(), previous + 1000));
}

// Collectives of `count` numbers of each rank in buffers of `arena`; of rank `outside` in memory of its own.
void check_in_arena(Communicator& comm, core::Arena& arena, int64_t count, int outside) {
  const int n = comm.size();
  const auto size = static_cast<size_t>(count);
  const bool shares = comm.rank() != outside;
  // Buffers of the ranks begin at different places.
  const core::Buffer before = arena.allocate((comm.rank() + 1) * (int64_t{128} << 10), core::MemoryTag::kGrad);
  std::vector<float> own(size), gathered_own(size), addend(size);
  for (int64_t i = 0; i < count; ++i) addend[static_cast<size_t>(i)] = addend_at(i);
  core::Tensor tensor(arena, DType::kFp32, {count}, core::MemoryTag::kGrad);
  core::Tensor gathered_tensor(arena, DType::kFp32, {count}, core::MemoryTag::kParam);
  const TensorView data = shares ? tensor.view() : view(own);
  const TensorView gathered = shares ? gathered_tensor.view() : view(gathered_own);
  const auto fill = [&] {
    for (int64_t i = 0; i < count; ++i) data.data<float>()[i] = value_at(comm.rank(), i);
  };
  for (int again = 0; again < 2; ++again) {
    fill();
    comm.allreduce(data);
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(data.data<float>()[i], sum_at(comm, count, i)) << "element " << i;

    fill();
    comm.iallreduce_onto(data, view(addend)).wait();
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(data.data<float>()[i], sum_at(comm, count, i) + addend_at(i)) << "element " << i;

    // Uneven blocks, in place, and back.
    std::vector<int64_t> counts;
    for (int r = 0, left = n; r < n; ++r, --left) counts.push_back(count * (r + 1) / n - count * r / n);
    if (n > 1) std::swap(counts.front(), counts.back());
    const int64_t begin = std::accumulate(counts.begin(), counts.begin() + comm.rank(), int64_t{0});
    const int64_t end = begin + counts[static_cast<size_t>(comm.rank())];
    fill();
    comm.ireduce_scatterv(data, counts, data.rows(begin, end)).wait();
    for (int64_t i = begin; i < end; ++i) ASSERT_EQ(data.data<float>()[i], sum_at(comm, count, i)) << "element " << i;
    comm.iallgatherv(data.rows(begin, end), counts, gathered).wait();
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(gathered.data<float>()[i], sum_at(comm, count, i)) << "element " << i;
  }
}

}  // namespace

void check_shared_memory(core::Endpoint& endpoint, core::Arena& arena) {
  std::vector<int> all(static_cast<size_t>(endpoint.size()));
  std::iota(all.begin(), all.end(), 0);
  Communicator world(endpoint, "world", all, 0);
  const bool spans_machines = world.levels() != nullptr;
  ASSERT_EQ(world.shares_memory(), endpoint.size() > 1 && !spans_machines);
  endpoint.arena().reset_peaks();
  const auto received_bytes = [&] { return endpoint.arena().peak_bytes(core::MemoryTag::kComm); };
  for (int64_t count : {20'000, 300'001}) check_in_arena(world, arena, count, /*outside=*/-1);
  if (!spans_machines) EXPECT_EQ(received_bytes(), 0);
  if (endpoint.size() == 1) return;
  check_in_arena(world, arena, 50'000, /*outside=*/0);
  EXPECT_GT(received_bytes(), 0);
}

void check_communicator(core::Endpoint& endpoint) {
  std::vector<int> all(static_cast<size_t>(endpoint.size()));
  std::iota(all.begin(), all.end(), 0);
  Communicator world(endpoint, "world", all, 0);
  for (int64_t count : {0, 1, 3, 1000, 2049, 100'003}) {
    check_allreduce(world, count);
    check_allreduce_onto<float>(world, count);
    check_allreduce_onto<kernels::bf16>(world, count);
  }
  for (int64_t each : {0, 1, 7, 4099}) check_reduce_scatter_allgather(world, each);
  for (int64_t unit : {0, 1, 5, 3001}) check_uneven_blocks(world, unit);
  for (int64_t half : {0, 1, 5, 3001}) check_halves_of_blocks(world, half);
  check_chunks(world);
  check_point_to_point(world);
  check_collectively(world);
  check_overlapping_operations(world);
  check_many_small_operations(world);
  check_counters(world);
  EXPECT_EQ(world.allreduce(int64_t{world.rank()}, core::ReduceOp::kMax), world.size() - 1);
  for (int root = 0; root < world.size(); ++root) {
    EXPECT_EQ(world.bcast_string(world.rank() == root ? core::cat("from ", root) : "", root), core::cat("from ", root));
  }
  EXPECT_EQ(world.allgather_strings(std::string(static_cast<size_t>(world.rank()), 'x')).back().size(), all.size() - 1);
  std::vector<int32_t> out(all.size()), in(all.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = world.rank() * 100 + static_cast<int32_t>(i);
  world.ialltoall(view(in), view(out)).wait();
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<int32_t>(i) * 100 + world.rank());
  world.barrier();
  if (endpoint.size() > 1) {
    check_side_channel(endpoint, core::Endpoint::SideProgress::kThisThread);
    if (endpoint.any_thread()) check_side_channel(endpoint, core::Endpoint::SideProgress::kOwnThread);
  }
  // Groups that share ranks must not receive each other's messages: halves of the world beside the world.
  if (endpoint.size() % 2 == 0) {
    const int half = endpoint.size() / 2;
    const bool upper = endpoint.rank() >= half;
    Communicator part(endpoint, "half",
                      std::vector<int>(all.begin() + (upper ? half : 0), all.begin() + (upper ? 2 * half : half)), 1);
    check_allreduce(part, 10'000);
    check_collectively(part);
  }
}

}  // namespace ms::test
