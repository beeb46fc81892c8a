#include "core/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include "core/comm/detail/blocks.h"
#include "core/comm/detail/mailbox.h"
#include "core/comm/detail/operation.h"
#include "core/comm/detail/progress_thread.h"
#include "core/comm/flight_recorder.h"
#include "core/comm/pumped_transport.h"
#include "core/error.h"

namespace ms::core {
namespace {

constexpr double kUnwindingWaitS = 1;
constexpr int kNumTags = 16;  // of messages

// Whether all machines have as many ranks. Else groups that must add in the same order, such as those of the two stages
// that have an embedding, could differ in whether they have levels.
bool machines_are_even(const Transport& transport) {
  std::map<int, int> ranks;
  for (int rank = 0; rank < transport.size(); ++rank) ++ranks[transport.machine_of(rank)];
  return std::ranges::all_of(ranks, [&](const auto& machine) { return machine.second == ranks.begin()->second; });
}

}  // namespace

Endpoint::Endpoint(std::unique_ptr<Transport> transport, Options options)
    : transport_(std::move(transport)), options_(std::move(options)) {
  waits_.for_rank_s.resize(static_cast<size_t>(size()));
}

Endpoint::~Endpoint() = default;

FlightRecorder* Endpoint::flight() const {
  return options_.flight != nullptr && options_.flight->active() ? options_.flight : nullptr;
}

Endpoint::Waits Endpoint::take_waits() {
  Waits taken = waits_;
  waits_.total_s = 0;
  std::ranges::fill(waits_.for_rank_s, 0.0);
  return taken;
}

bool Endpoint::any_rank_has_died() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank() && !transport_->peer_lives(peer)) return true;
  }
  return false;
}

void Endpoint::share_memory(const std::optional<SharedRange>& own) {
  const auto turn = this->turn();
  transport_->share(own);
  if (mailboxes_ == nullptr) mailboxes_ = std::make_unique<detail::Mailboxes>(*transport_);
}

std::unique_lock<std::recursive_mutex> Endpoint::turn() const {
  return progress_thread_ == nullptr ? std::unique_lock<std::recursive_mutex>() : progress_thread_->turn();
}

void Endpoint::step(Pending& pending) {
  std::erase_if(pending, [](const std::weak_ptr<detail::Operation>& entry) {
    const auto operation = entry.lock();
    return operation == nullptr || operation->step();
  });
}

void Endpoint::advance() {
  step(urgent_);
  std::erase_if(pending_, [this](const std::weak_ptr<detail::Operation>& entry) {
    const auto operation = entry.lock();
    const bool done = operation == nullptr || operation->step();
    if (!urgent_.empty()) step(urgent_);
    return done;
  });
  std::erase_if(pumps_, [](const std::weak_ptr<detail::Pump>& entry) {
    const auto pump = entry.lock();
    if (pump != nullptr) pump->advance();
    return pump == nullptr;
  });
}

bool Endpoint::may_sleep() const {
  if (progress_thread_ != nullptr || !pumps_.empty()) return false;
  const auto sleeps = [](const std::weak_ptr<detail::Operation>& pending) {
    const std::shared_ptr<detail::Operation> operation = pending.lock();
    return operation == nullptr || operation->may_sleep();
  };
  return std::ranges::all_of(urgent_, sleeps) && std::ranges::all_of(pending_, sleeps);
}

void Endpoint::advance_unpooled() {
  const auto give_back = [this](ThreadPool* pool) { pool_ = pool; };
  const std::unique_ptr<ThreadPool, decltype(give_back)> pool(std::exchange(pool_, nullptr), give_back);
  advance();
}

void Endpoint::progress() {
  const auto turn = this->turn();
  if (progress_thread_ != nullptr) progress_thread_->rethrow();
  advance();
}

void Endpoint::progress_within_kernel() {
  if (progress_thread_ == nullptr) advance_unpooled();
}

void Endpoint::start_progress_thread() {
  MS_CHECK(takes_turns(), "this transport is for one thread");
  if (progress_thread_ == nullptr) progress_thread_ = std::make_unique<detail::ProgressThread>(*this);
}

std::unique_ptr<Transport> Endpoint::side_channel(SideProgress progress) {
  const auto turn = this->turn();
  auto own = transport_->duplicate();
  if (progress == SideProgress::kOwnThread) {
    MS_CHECK(transport_->any_thread(), "this transport is for one thread");
    return own;
  }
  auto pumped = std::make_unique<PumpedTransport>(std::move(own));
  pumps_.push_back(pumped->pump());
  return pumped;
}

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    Work finished(std::move(*this));  // its destructor waits
    operation_ = std::move(other.operation_);
  }
  return *this;
}

Work::~Work() {
  if (operation_ == nullptr || operation_->done()) return;
  if (!operation_->endpoint().peer_failed_) {
    try {
      // While an error unwinds, peers may never come: wait for a short time only.
      operation_->wait(std::uncaught_exceptions() > 0 ? kUnwindingWaitS : operation_->endpoint().timeout_s());
    } catch (const std::exception&) {
      // Already unwinding, or a peer has died: the error is reported by the group's next operation.
    }
  }
  abandon(operation_);
}

// Nobody advances it any more, so that its buffers and its group may go.
void Work::abandon(std::shared_ptr<detail::Operation>& operation) {
  if (operation->done()) return;
  const auto turn = operation->endpoint().turn();
  operation.reset();
}

bool Work::test() {
  if (operation_ == nullptr || operation_->done()) return true;
  operation_->endpoint().progress();
  return operation_->done();
}

void Work::wait() {
  if (operation_ == nullptr) return;
  auto operation = std::move(operation_);  // if its wait throws, the destructor does not wait again
  try {
    operation->wait(operation->endpoint().timeout_s());
  } catch (...) {
    abandon(operation);
    throw;
  }
}

void Work::wait_for_output() {
  if (operation_ == nullptr) return;
  try {
    operation_->wait(operation_->endpoint().timeout_s(), detail::Awaited::kOutput);
  } catch (...) {
    abandon(operation_);
    operation_.reset();
    throw;
  }
}

Communicator::Communicator(Endpoint& endpoint, std::string name, std::vector<int> world_ranks, int context)
    : endpoint_(endpoint), name_(std::move(name)), context_(context) {
  MS_CHECK(context >= 0 && context < 1024, "context ", context);
  const int32_t needed = detail::max_tag_of(context), allowed = endpoint.transport_->max_tag();
  if (needed > allowed) {
    throw Error(ErrorCode::kUnsupported, cat("group ", name_, " needs message tags up to ", needed,
                                             ", but this MPI allows ", allowed, " (MPI_TAG_UB): use another MPI"));
  }
  set_members(std::move(world_ranks));
  if (shares_memory_ && endpoint.mailboxes_ != nullptr) mailbox_ = endpoint.mailboxes_->open(context, world_ranks_);
  if (!endpoint.options_.uses_levels || !machines_are_even(*endpoint.transport_)) return;
  std::vector<int> machines;
  for (const int world_rank : world_ranks_) machines.push_back(endpoint.transport_->machine_of(world_rank));
  if (auto levels = two_levels_of(machines, rank_)) levels_ = std::make_shared<CommunicatorLevels>(*this, *levels);
}

Communicator::Communicator(const Communicator& whole, const std::vector<int>& members)
    : endpoint_(whole.endpoint_), name_(whole.name_), context_(whole.context_) {
  std::vector<int> world_ranks;
  for (const int member : members) world_ranks.push_back(whole.world_ranks_[static_cast<size_t>(member)]);
  set_members(std::move(world_ranks));
}

void Communicator::set_members(std::vector<int> world_ranks) {
  world_ranks_ = std::move(world_ranks);
  rank_ = -1;
  for (int i = 0; i < size(); ++i) {
    const int world_rank = world_ranks_[static_cast<size_t>(i)];
    MS_CHECK(world_rank >= 0 && world_rank < endpoint_.size(), "group ", name_, ": world rank ", world_rank);
    if (world_rank == endpoint_.rank()) rank_ = i;
  }
  MS_CHECK(rank_ >= 0, "rank ", endpoint_.rank(), " is not a member of group ", name_);
  shares_memory_ = size() > 1 && std::ranges::all_of(world_ranks_, [&](int world_rank) {
                     return world_rank == endpoint_.rank() || endpoint_.transport_->shares_with(world_rank);
                   });
  send_sequence_.resize(world_ranks_.size());
  recv_sequence_.resize(world_ranks_.size());
}

void Communicator::before(const OperationCall& call) {
  if (endpoint_.options_.at_operation) endpoint_.options_.at_operation(*this, call);
}

int64_t Communicator::next_message(int peer, int tag, bool receive) {
  if (message_numbers_.empty()) message_numbers_.resize(world_ranks_.size() * kNumTags * 2);
  return message_numbers_[(static_cast<size_t>(peer) * kNumTags + static_cast<size_t>(tag)) * 2 + (receive ? 1 : 0)]++;
}

CommCounter Communicator::counter(CommOp op) const {
  const auto turn = endpoint_.turn();
  return counters_[static_cast<size_t>(op)];
}

void Communicator::reset_counters() {
  const auto turn = endpoint_.turn();
  counters_ = {};
}

Work Communicator::start(std::shared_ptr<detail::Operation> operation) {
  const auto turn = endpoint_.turn();
  operation->count();
  operation->record_post();
  operation->begin();
  if (!operation->step()) {
    (has_high_priority_ ? endpoint_.urgent_ : endpoint_.pending_).push_back(operation);
    if (endpoint_.progress_thread_ != nullptr) endpoint_.progress_thread_->wake();
  }
  return Work(std::move(operation));
}

// counts: blocks of `whole`, of which this rank's has `own` elements.
void Communicator::check_counts(const char* operation, const std::vector<int64_t>& counts, const TensorView& whole,
                                int64_t own) const {
  int64_t sum = 0;
  for (const int64_t count : counts) {
    MS_CHECK(count >= 0, operation, " in group ", name_, ": a block of ", count);
    sum += count;
  }
  MS_CHECK(counts.size() == world_ranks_.size() && sum == whole.size() && counts[static_cast<size_t>(rank_)] == own,
           operation, " in group ", name_, ": blocks of ", counts, " in ", whole.shape(), ", of which rank ", rank_,
           " has ", own);
}

Work Communicator::iallreduce(const TensorView& data, ReduceOp op) {
  before({CommOp::kAllreduce, data.size(), data.dtype()});
  return start(detail::make_allreduce(*this, allreduce_facts(data), data, op));
}

detail::OperationFacts Communicator::allreduce_facts(const TensorView& data) {
  return {CommOp::kAllreduce,
          sequence_++,
          data.size(),
          data.size(),
          data.dtype(),
          data.size_bytes(),
          ring_bytes(CommOp::kAllreduce, data.size_bytes(), size())};
}

Work Communicator::iallreduce_onto(const TensorView& data, const TensorView& addend) {
  MS_CHECK(addend.dtype() == data.dtype() && addend.size() == data.size(), "all-reduce onto another dtype or size");
  before({CommOp::kAllreduce, data.size(), data.dtype()});
  return start(detail::make_allreduce_onto(*this, allreduce_facts(data), data, addend));
}

Work Communicator::ireduce_scatter(const TensorView& input, const TensorView& output, ReduceOp op) {
  return ireduce_scatterv(input, even_counts(output.size()), output, op);
}

Work Communicator::ireduce_scatterv(const TensorView& input, const std::vector<int64_t>& counts,
                                    const TensorView& output, ReduceOp op) {
  before({CommOp::kReduceScatter, input.size(), input.dtype()});
  check_counts("reduce_scatter", counts, input, output.size());
  MS_CHECK(input.dtype() == output.dtype(), "reduce_scatter in group ", name_, ": of two dtypes");
  const int64_t others = (input.size() - output.size()) * size_of(input.dtype());
  return start(detail::make_reduce_scatter(
      *this,
      {CommOp::kReduceScatter, sequence_++, input.size(), output.size(), input.dtype(), input.size_bytes(), others},
      input, counts, output, op));
}

Work Communicator::iallgather(const TensorView& input, const TensorView& output) {
  return iallgatherv(input, even_counts(input.size()), output);
}

Work Communicator::iallgatherv(const TensorView& input, std::vector<int64_t> counts, const TensorView& output) {
  before({CommOp::kAllgather, output.size(), output.dtype()});
  check_counts("allgather", counts, output, input.size());
  MS_CHECK(input.dtype() == output.dtype(), "allgather in group ", name_, ": of two dtypes");
  const int64_t others = (output.size() - input.size()) * size_of(output.dtype());
  return start(detail::make_allgather(
      *this, {CommOp::kAllgather, sequence_++, input.size(), output.size(), input.dtype(), output.size_bytes(), others},
      input, std::move(counts), output));
}

Work Communicator::ibcast(const TensorView& data, int root) {
  before({CommOp::kBcast, data.size(), data.dtype()});
  MS_CHECK(root >= 0 && root < size(), "bcast root ", root);
  return start(
      detail::make_bcast(*this,
                         {CommOp::kBcast, sequence_++, data.size(), data.size(), data.dtype(), data.size_bytes(),
                          rank_ == root ? ring_bytes(CommOp::kBcast, data.size_bytes(), size()) : 0},
                         data, root));
}

Work Communicator::ialltoall(const TensorView& input, const TensorView& output, BlockOrder input_order,
                             BlockOrder output_order) {
  const bool has_halves = input_order == BlockOrder::kFrontBack || output_order == BlockOrder::kFrontBack;
  const int64_t ranges = has_halves ? 2 : 1, n = size() * ranges;
  MS_CHECK(input.size_bytes() == output.size_bytes() && input.size() % n == 0, "alltoall in group ", name_, ": ",
           input.shape(), " to ", output.shape(), " in ", n, " parts");
  const auto blocks = [&](BlockOrder order) {
    const int64_t count = input.size() / n;
    if (order == BlockOrder::kFrontBack) return detail::Blocks::front_back(count, size());
    return detail::Blocks::by_rank(count, size(), static_cast<int>(ranges));
  };
  return start_alltoall(input, blocks(input_order), output, blocks(output_order));
}

Work Communicator::ialltoallv(const TensorView& input, const std::vector<int64_t>& input_counts,
                              const TensorView& output, const std::vector<int64_t>& output_counts) {
  const int64_t own = input_counts.at(static_cast<size_t>(rank_));
  check_counts("alltoall", input_counts, input, own);
  check_counts("alltoall", output_counts, output, own);
  return start_alltoall(input, detail::Blocks::in_order(input_counts), output, detail::Blocks::in_order(output_counts));
}

Work Communicator::start_alltoall(const TensorView& input, const detail::Blocks& input_blocks, const TensorView& output,
                                  const detail::Blocks& output_blocks) {
  before({CommOp::kAlltoall, input.size(), input.dtype()});
  const int64_t sent = (input.size() - input_blocks.elements(rank_)) * size_of(input.dtype());
  return start(detail::make_alltoall(
      *this, {CommOp::kAlltoall, sequence_++, input.size(), output.size(), input.dtype(), input.size_bytes(), sent},
      input, input_blocks, output, output_blocks));
}

Work Communicator::isend(const TensorView& data, int peer, int tag) {
  before({CommOp::kSend, data.size(), data.dtype(), peer, tag});
  MS_CHECK(peer >= 0 && peer < size() && peer != rank_ && tag >= 0 && tag < 16, "send to ", peer, " tag ", tag);
  return start(detail::make_send(*this,
                                 {CommOp::kSend, send_sequence_[static_cast<size_t>(peer)]++, data.size(), data.size(),
                                  data.dtype(), data.size_bytes(), data.size_bytes()},
                                 data, peer, tag));
}

Work Communicator::irecv(const TensorView& data, int peer, int tag) {
  before({CommOp::kRecv, data.size(), data.dtype(), peer, tag});
  MS_CHECK(peer >= 0 && peer < size() && peer != rank_ && tag >= 0 && tag < 16, "recv from ", peer, " tag ", tag);
  return start(detail::make_recv(*this,
                                 {CommOp::kRecv, recv_sequence_[static_cast<size_t>(peer)]++, data.size(), data.size(),
                                  data.dtype(), data.size_bytes(), 0},
                                 data, peer, tag));
}

void Communicator::barrier() {
  before({CommOp::kBarrier, 1, DType::kInt32});
  int32_t token = 0;
  const TensorView view(&token, DType::kInt32, {1});
  start(detail::make_allreduce(*this, {CommOp::kBarrier, sequence_++, 0, 0, DType::kInt32, 0, 0}, view, ReduceOp::kSum))
      .wait();
}

double Communicator::allreduce(double value, ReduceOp op) {
  allreduce(TensorView(&value, DType::kFp64, {1}), op);
  return value;
}

int64_t Communicator::allreduce(int64_t value, ReduceOp op) {
  allreduce(TensorView(&value, DType::kInt64, {1}), op);
  return value;
}

void Communicator::allreduce(std::span<double> values, ReduceOp op) {
  allreduce(TensorView(values.data(), DType::kFp64, {static_cast<int64_t>(values.size())}), op);
}

std::string Communicator::bcast_string(const std::string& text, int root) {
  auto length = static_cast<int64_t>(text.size());
  bcast(TensorView(&length, DType::kInt64, {1}), root);
  std::string result = rank_ == root ? text : std::string(static_cast<size_t>(length), '\0');
  bcast(TensorView(result.data(), DType::kUInt8, {length}), root);
  return result;
}

std::vector<std::string> Communicator::allgather_strings(const std::string& text) {
  std::vector<int64_t> lengths(world_ranks_.size());
  auto length = static_cast<int64_t>(text.size());
  allgather(TensorView(&length, DType::kInt64, {1}), TensorView(lengths.data(), DType::kInt64, {size()}));
  std::vector<std::string> texts;
  for (int root = 0; root < size(); ++root) {
    std::string part =
        root == rank_ ? text : std::string(static_cast<size_t>(lengths[static_cast<size_t>(root)]), '\0');
    bcast(TensorView(part.data(), DType::kUInt8, {lengths[static_cast<size_t>(root)]}), root);
    texts.push_back(std::move(part));
  }
  return texts;
}

}  // namespace ms::core
