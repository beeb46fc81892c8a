#include "profile/record/mpi_recording.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/dtype.h"
#include "core/error.h"
#include "core/log.h"
#include "profile/record/variables.h"

namespace ms::profile {
namespace {

using core::cat;
using core::DType;
using core::trace::now_ns;

constexpr int kClockRounds = 64;  // ping-pongs per peer; the fastest gives the offset
// Messages of one sender and receiver are matched by their order, which MPI preserves within a tag, so each tag is a
// separate group. Tags are folded into kTagGroups groups: programs that count tags upwards must not create a lane for
// each.
constexpr int kTagGroups = 64;

thread_local bool inside_mpi = false;  // inside an MPI call of the program
thread_local int64_t left_mpi_ns = 0;  // when the last call returned; 0: not the thread that called MPI_Init

struct Polling {
  const char* name = nullptr;  // null: not polling
  int64_t start_ns = 0, end_ns = 0;
};
thread_local Polling polling;  // consecutive calls that found nothing
constexpr int64_t kPollGapNs = 1000;

// The trace's name of the element type, or bytes.
DType dtype_of(MPI_Datatype type) {
  static const std::pair<MPI_Datatype, DType> kTypes[] = {
      {MPI_FLOAT, DType::kFp32},       {MPI_DOUBLE, DType::kFp64},
      {MPI_INT, DType::kInt32},        {MPI_INT32_T, DType::kInt32},
      {MPI_LONG, DType::kInt64},       {MPI_LONG_LONG, DType::kInt64},
      {MPI_INT64_T, DType::kInt64},    {MPI_SHORT, DType::kInt16},
      {MPI_INT16_T, DType::kInt16},    {MPI_CHAR, DType::kInt8},
      {MPI_SIGNED_CHAR, DType::kInt8}, {MPI_INT8_T, DType::kInt8},
      {MPI_UINT16_T, DType::kUInt16},  {MPI_UNSIGNED_SHORT, DType::kUInt16},
      {MPI_C_BOOL, DType::kBool}};
  for (const auto& [mpi, ours] : kTypes) {
    if (mpi == type) return ours;
  }
  return DType::kUInt8;
}

int64_t elements(int64_t count, MPI_Datatype type) {
  int bytes = 0;
  if (count <= 0 || PMPI_Type_size(type, &bytes) != MPI_SUCCESS) return 0;
  return count * bytes / core::size_of(dtype_of(type));
}

std::vector<int> world_ranks(MPI_Group group) {
  MPI_Group world = MPI_GROUP_NULL;
  int size = 0;
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  PMPI_Group_size(group, &size);
  std::vector<int> ranks(static_cast<size_t>(size)), out(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  PMPI_Group_translate_ranks(group, size, ranks.data(), world, out.data());
  PMPI_Group_free(&world);
  return out;
}

bool is_receive(const MpiOperation& operation) { return std::string_view(operation.op) == "recv"; }
bool is_message(const MpiOperation& operation) {
  return is_receive(operation) || std::string_view(operation.op) == "send";
}

void warn(const std::string& text) { core::log_warning("msprof.record", cat(text, "; the program goes on")); }

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

}  // namespace

MpiRecording& MpiRecording::instance() {
  static MpiRecording recording;
  return recording;
}

void MpiRecording::begin() {
  const std::string path = variable(kPathVariable), ranks = variable(kRanksVariable);
  if (path.empty()) return;
  int rank = 0, size = 1;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  calls_ = variable(kLevelVariable) != "level0";
  core::set_log_rank(rank, true);
  if (ranks.empty() || cat(",", ranks, ",").find(cat(",", rank, ",")) != std::string::npos) {
    core::trace::Options options;
    options.rank = rank;
    options.world_size = size;
    options.level = calls_ ? core::trace::Level::kLevel1 : core::trace::Level::kLevel0;
    options.save_path = path;
    try {
      recorder_.start(options);
    } catch (const core::Error& e) {
      warn(e.what());
    }
  }
  measure_clock();
  left_mpi_ns = now_ns();
}

void MpiRecording::end() {
  if (variable(kPathVariable).empty()) return;
  measure_clock();
  if (!active()) return;
  try {
    recorder_.stop();
  } catch (const core::Error& e) {
    warn(e.what());
  }
}

// Measures this rank's clock against rank 0's as core/trace/clock.h does, but with MPI calls: that one needs a
// core::Communicator.
void MpiRecording::measure_clock() {
  int rank = 0, size = 1;
  MPI_Comm own = MPI_COMM_NULL;
  PMPI_Comm_dup(MPI_COMM_WORLD, &own);
  PMPI_Comm_rank(own, &rank);
  PMPI_Comm_size(own, &size);
  int64_t ping = 0, pong = 0, shortest_ns = INT64_MAX, at_ns = now_ns(), offset_ns = 0, error_ns = 0;
  for (int peer = 1; rank == 0 && peer < size; ++peer) {
    for (int round = 0; round < kClockRounds; ++round) {
      PMPI_Recv(&ping, 1, MPI_INT64_T, peer, 0, own, MPI_STATUS_IGNORE);
      pong = now_ns();
      PMPI_Send(&pong, 1, MPI_INT64_T, peer, 0, own);
    }
  }
  for (int round = 0; rank != 0 && round < kClockRounds; ++round) {
    const int64_t sent_ns = now_ns();
    PMPI_Send(&ping, 1, MPI_INT64_T, 0, 0, own);
    PMPI_Recv(&pong, 1, MPI_INT64_T, 0, 0, own, MPI_STATUS_IGNORE);
    const int64_t round_ns = now_ns() - sent_ns;
    if (round_ns >= shortest_ns) continue;
    shortest_ns = round_ns;
    at_ns = sent_ns + round_ns / 2;
    offset_ns = at_ns - pong;
    error_ns = (round_ns + 1) / 2;
  }
  PMPI_Comm_free(&own);
  if (active()) recorder_.set_clock_offset(at_ns, offset_ns, error_ns);
}

MpiRecording::Group& MpiRecording::group_of(MPI_Comm comm) {
  const auto [at, added] = groups_.try_emplace(comm);
  Group& group = at->second;
  if (!added) return group;
  MPI_Group members = MPI_GROUP_NULL;
  PMPI_Comm_group(comm, &members);
  group.members = group.peers = world_ranks(members);
  PMPI_Group_free(&members);
  int has_other_side = 0;
  PMPI_Comm_test_inter(comm, &has_other_side);
  if (has_other_side != 0) {
    PMPI_Comm_remote_group(comm, &members);
    group.peers = world_ranks(members);
    PMPI_Group_free(&members);
    group.members.insert(group.members.end(), group.peers.begin(), group.peers.end());
    std::sort(group.members.begin(), group.members.end());
  }
  group.name = comm == MPI_COMM_WORLD ? "world" : comm == MPI_COMM_SELF ? "self" : "communicator";
  return group;
}

void MpiRecording::add_communicator(MPI_Comm parent, MPI_Comm made) {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  Group& from = group_of(parent);
  const int64_t nth = ++from.children;
  const std::string name = from.name;  // copied: group_of may move it
  if (made == MPI_COMM_NULL) return;
  groups_.erase(made);
  Group& group = group_of(made);
  group.name = cat(name, ".", nth, "/", group.members.empty() ? -1 : group.members.front());
}

void MpiRecording::forget_communicator(MPI_Comm comm) {
  const std::lock_guard lock(mutex_);
  groups_.erase(comm);
}

void MpiRecording::number(MpiOperation& operation) {
  if (*operation.op == '\0' || is_message(operation) || operation.comm == MPI_COMM_NULL) return;
  const std::lock_guard lock(mutex_);
  operation.sequence = group_of(operation.comm).sequence++;
}

void MpiRecording::add_call(const char* name, int64_t start_ns, int64_t end_ns, bool fruitless) {
  const bool repeated = fruitless && polling.name == name && start_ns - polling.end_ns < kPollGapNs;
  if (!repeated) {
    end_polling();
    if (left_mpi_ns != 0) recorder_.span(core::trace::Category::kKernel, "outside MPI", left_mpi_ns, start_ns);
    polling = {name, start_ns, 0};
  }
  polling.end_ns = end_ns;
  if (left_mpi_ns != 0) left_mpi_ns = end_ns;
  if (!fruitless) end_polling();
}

void MpiRecording::end_polling() {
  if (calls_ && polling.name != nullptr) {
    recorder_.span(core::trace::Category::kUserAnnotation, polling.name, polling.start_ns, polling.end_ns);
  }
  polling = {};
}

const std::string& MpiRecording::message_group(Group& group, int tag) {
  const int tag_group = tag < kTagGroups ? tag : kTagGroups + tag % kTagGroups;
  const auto [at, added] = group.of_tags.try_emplace(tag_group);
  if (added) {
    at->second = cat(group.name, " tag ", tag % kTagGroups, tag < kTagGroups ? "" : cat(" of ", kTagGroups));
  }
  return at->second;
}

void MpiRecording::add_operation(const MpiOperation& operation, int64_t start_ns, int64_t end_ns,
                                 const MPI_Status* status, bool blocking) {
  const bool message = is_message(operation);
  int peer = operation.peer, tag = operation.tag;
  int64_t in_count = operation.in_count, out_count = operation.out_count;
  if (status != nullptr && is_receive(operation)) {
    peer = status->MPI_SOURCE;
    tag = status->MPI_TAG;
    int bytes = 0, size = 0;
    PMPI_Get_count(status, MPI_BYTE, &bytes);
    PMPI_Type_size(operation.type, &size);
    in_count = out_count = size > 0 && bytes > 0 ? bytes / size : 0;
  }
  if (operation.comm == MPI_COMM_NULL || (message && peer < 0)) return;  // MPI_PROC_NULL, or cancelled
  core::trace::CommEvent event;
  {
    const std::lock_guard lock(mutex_);
    Group& group = group_of(operation.comm);
    event.group = message ? message_group(group, tag) : group.name;
    if (peer >= 0 && static_cast<size_t>(peer) < group.peers.size())
      event.peer = group.peers[static_cast<size_t>(peer)];
    event.ranks = &group.members;  // stays valid: a map node, and no call uses a freed communicator
  }
  event.op = operation.op;
  event.sequence = operation.sequence;
  event.in_elements = elements(in_count, operation.type);
  event.out_elements = elements(out_count, operation.type);
  event.dtype = dtype_of(operation.type);
  event.start_ns = start_ns;
  event.end_ns = end_ns;
  event.blocking = blocking;
  recorder_.comm(event);
}

void MpiRecording::post(MPI_Request request, const MpiOperation& operation, int64_t start_ns, bool persistent) {
  if (request == MPI_REQUEST_NULL || !active()) return;
  const std::lock_guard lock(mutex_);
  requests_[request].push_back({operation, persistent ? 0 : start_ns, persistent});
}

void MpiRecording::start(MPI_Request request, int64_t start_ns) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(request);
  if (found != requests_.end()) found->second.front().start_ns = start_ns;
}

void MpiRecording::complete(MPI_Request request, const MPI_Status* status, int64_t end_ns) {
  Posted done;
  {
    const std::lock_guard lock(mutex_);
    const auto found = requests_.find(request);
    if (found == requests_.end() || found->second.front().start_ns == 0) return;
    done = found->second.front();
    if (done.persistent) {
      found->second.front().start_ns = 0;
    } else {
      found->second.pop_front();
      if (found->second.empty()) requests_.erase(found);
    }
  }
  add_operation(done.operation, done.start_ns, end_ns, status, false);
}

void MpiRecording::forget_request(MPI_Request request) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(request);
  if (found == requests_.end()) return;
  found->second.pop_front();
  if (found->second.empty()) requests_.erase(found);
}

MpiCall::MpiCall(const char* name, const MpiOperation& operation)
    : name_(name), operation_(operation), records_(!inside_mpi && MpiRecording::instance().active()) {
  if (!records_) return;
  inside_mpi = true;
  MpiRecording::instance().number(operation_);
  start_ns_ = now_ns();
}

MpiCall::~MpiCall() {
  if (!records_) return;
  const int64_t end_ns = now_ns();
  MpiRecording& recording = MpiRecording::instance();
  if (*operation_.op != '\0' && recording.active())
    recording.add_operation(operation_, start_ns_, end_ns, status_, true);
  recording.add_call(name_, start_ns_, end_ns, fruitless_);
  inside_mpi = false;
}

}  // namespace ms::profile
