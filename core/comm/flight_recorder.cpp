#include "core/comm/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "core/comm/process_home.h"
#include "core/error.h"
#include "core/trace/recorder.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

int64_t realtime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t aligned(int64_t bytes) { return (bytes + 511) / 512 * 512; }

template <size_t kSize>
void copy_name(char (&to)[kSize], std::string_view from) {
  const size_t length = std::min(from.size(), kSize - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw Error(ErrorCode::kIo, cat("cannot ", what, " ", path.string(), ": ", std::strerror(errno)));
}

// Maps a new file of this size, filled with zeros that have their blocks: a full file system shows here.
void* map_new_file(const fs::path& path, int64_t size_bytes) {
  std::error_code ignored;
  fs::remove(path, ignored);  // a process that still maps an earlier one keeps it
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) fail(path, "create");
  int error = ::posix_fallocate(fd, 0, size_bytes);
  void* at = MAP_FAILED;
  if (error == 0) {
    at = ::mmap(nullptr, static_cast<size_t>(size_bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    error = at == MAP_FAILED ? errno : 0;
  }
  ::close(fd);
  if (error != 0) {
    fs::remove(path, ignored);
    errno = error;
    fail(path, "map");
  }
  return at;
}

}  // namespace

FlightRecorder::~FlightRecorder() { end(); }

void FlightRecorder::open(const Options& options) {
  MS_CHECK(header_ == nullptr && options.capacity > 0, "flight recorder of ", options.capacity, " operations");
  flight::Header made{};
  made.groups_at = aligned(sizeof made);
  made.ranks_at = aligned(made.groups_at + int64_t{flight::kMaxGroups} * static_cast<int64_t>(sizeof(flight::Group)));
  made.records_at = aligned(made.ranks_at + int64_t{flight::kMaxGroups} * options.world_size * 4);
  made.size_bytes = made.records_at + options.capacity * static_cast<int64_t>(sizeof(flight::Record));
  path_ = options.folder / flight_file_name(options.rank);
  auto* const at = static_cast<std::byte*>(map_new_file(path_, made.size_bytes));
  options_ = options;
  options_capacity_ = static_cast<uint64_t>(options.capacity);
  header_ = new (at) flight::Header{};
  std::memcpy(header_->magic, flight::kMagic, sizeof header_->magic);
  header_->version = flight::kVersion;
  header_->header_bytes = sizeof(flight::Header);
  header_->group_bytes = sizeof(flight::Group);
  header_->record_bytes = sizeof(flight::Record);
  header_->max_groups = flight::kMaxGroups;
  header_->capacity = static_cast<uint32_t>(options.capacity);
  header_->rank = options.rank;
  header_->world_size = options.world_size;
  header_->pid = ::getpid();
  header_->pid_started = process_start(::getpid());
  header_->groups_at = made.groups_at;
  header_->ranks_at = made.ranks_at;
  header_->records_at = made.records_at;
  header_->size_bytes = made.size_bytes;
  header_->opened_ns = trace::now_ns();
  header_->opened_realtime_ns = realtime_ns();
  header_->job = options.job;
  header_->home = own_home();
  groups_ = reinterpret_cast<flight::Group*>(at + made.groups_at);
  ranks_ = reinterpret_cast<int32_t*>(at + made.ranks_at);
  records_ = reinterpret_cast<flight::Record*>(at + made.records_at);
}

void FlightRecorder::unmap() noexcept {
  ::munmap(header_, static_cast<size_t>(header_->size_bytes));
  header_ = nullptr;
}

void FlightRecorder::end() noexcept {
  const std::unique_ptr<FlightFolderLock> lock = std::move(lock_);  // released last
  if (header_ == nullptr) return;
  uint32_t running = static_cast<uint32_t>(flight::Ending::kRunning);
  const bool ended = header_->ending.compare_exchange_strong(running, static_cast<uint32_t>(flight::Ending::kEnded));
  unmap();
  if (!options_.remove_at_end || !ended) return;
  std::error_code ignored;
  fs::remove(path_, ignored);
  fs::remove(options_.folder, ignored);  // by the last rank: a folder that is not empty stays
}

bool FlightRecorder::claim_report(std::string_view text) noexcept {
  if (header_ == nullptr) return true;
  header_->failed_ns.store(trace::now_ns());
  header_->ending.store(static_cast<uint32_t>(flight::Ending::kFailed));
  try {
    const fs::path path = options_.folder / kFlightVerdict;
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return errno != EEXIST;
    const ssize_t written = ::write(fd, text.data(), text.size());
    ::close(fd);
    return written >= 0 || written < 0;  // the claim is the file, whatever it says
  } catch (const std::exception&) {
    return true;
  }
}

int32_t FlightRecorder::group(std::string_view name, int context, const std::vector<int>& world_ranks) {
  const uint32_t known = header_->num_groups.load(std::memory_order_relaxed);
  int64_t next_rank = 0;
  for (uint32_t i = 0; i < known; ++i) {
    const flight::Group& group = groups_[i];
    if (group.context == context && group.size == static_cast<int32_t>(world_ranks.size()) &&
        std::equal(world_ranks.begin(), world_ranks.end(), ranks_ + group.first_rank))
      return static_cast<int32_t>(i);
    next_rank = group.first_rank + group.size;
  }
  if (known == flight::kMaxGroups) return -1;
  flight::Group& added = groups_[known];
  copy_name(added.name, name);
  added.context = context;
  added.size = static_cast<int32_t>(world_ranks.size());
  added.first_rank = next_rank;
  std::ranges::copy(world_ranks, ranks_ + next_rank);
  header_->num_groups.store(known + 1, std::memory_order_release);
  return static_cast<int32_t>(known);
}

uint64_t FlightRecorder::post(const Post& post) {
  const uint64_t number = header_->posted.load(std::memory_order_relaxed) + 1;
  flight::Record& record = *slot(number);
  record.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // a reader sees the 0 before any field changes
  record.sequence = post.sequence;
  record.in_elements = post.in_elements;
  record.out_elements = post.out_elements;
  record.payload_bytes = post.payload_bytes;
  record.posted_ns = post.posted_ns;
  record.started_ns = record.completed_ns = 0;
  record.iteration = iteration_;
  record.group = post.group;
  record.peer = post.peer;
  record.microbatch = phase_.microbatch;
  record.op = static_cast<uint8_t>(post.op);
  record.dtype = static_cast<uint8_t>(post.dtype);
  record.tag = post.tag;
  record.state.store(static_cast<uint8_t>(flight::State::kPosted), std::memory_order_relaxed);
  copy_name(record.caller, phase_.name);
  record.number.store(number, std::memory_order_release);
  header_->posted.store(number, std::memory_order_release);
  return number;
}

void FlightRecorder::complete(uint64_t number, int64_t started_ns, int64_t completed_ns) {
  flight::Record& record = *slot(number);
  if (record.number.load(std::memory_order_relaxed) != number) return;  // overwritten meanwhile
  record.started_ns = started_ns;
  record.completed_ns = completed_ns;
  record.state.store(static_cast<uint8_t>(flight::State::kCompleted), std::memory_order_release);
}

void FlightRecorder::wait_begins(uint64_t number, int64_t now_ns) {
  header_->waits_since_ns.store(now_ns, std::memory_order_relaxed);
  header_->waited_until_ns.store(INT64_MAX, std::memory_order_relaxed);
  header_->last_wait.store(number, std::memory_order_relaxed);
  header_->waits_for.store(number, std::memory_order_release);
}

void FlightRecorder::set_iteration(int64_t iteration) {
  iteration_ = iteration;
  if (header_ != nullptr) header_->iteration.store(iteration, std::memory_order_relaxed);
}

}  // namespace ms::core
