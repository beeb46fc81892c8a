#include "core/comm/flight_dump.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "core/comm/comm_op.h"
#include "core/comm/flight_file.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/io/file.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr uint8_t kLastDtype = static_cast<uint8_t>(DType::kFp8E5M2Fnuz);

// A copy of a record, whose atomics are numbers.
struct Copied {
  uint64_t number;
  std::byte bytes[sizeof(flight::Record)];
  template <class T>
  T at(size_t offset) const {
    T value;
    std::memcpy(&value, bytes + offset, sizeof value);
    return value;
  }
};

template <size_t kSize>
std::string text_of(const char (&field)[kSize]) {
  return std::string(field, ::strnlen(field, kSize));
}

// The bytes of a file as numbers; atomics are copied like others.
class Reader {
 public:
  explicit Reader(const fs::path& path) : file_(File::open_read(path.string())), size_(file_.size_bytes()) {
    if (size_ > kMaxFileBytes) corrupt(cat("has ", size_, " bytes, more than a flight recorder's file may have"));
  }
  void read(void* to, size_t bytes, int64_t at) const {
    file_.pread(std::span(static_cast<std::byte*>(to), bytes), at);
  }
  int64_t size() const { return size_; }
  [[noreturn]] void corrupt(const std::string& what) const {
    throw Error(ErrorCode::kCorruptData, cat(file_.path(), ": ", what));
  }

 private:
  File file_;
  int64_t size_;
};

// A damaged file may have any numbers.
int64_t plus(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }

using HeaderBytes = std::byte[sizeof(flight::Header)];

// Reinterpreting is allowed: the atomics of the header are lock-free, and nobody else has this copy.
const flight::Header& as_header(const HeaderBytes& bytes) { return *reinterpret_cast<const flight::Header*>(bytes); }

int64_t clock_offset_ns(const flight::Header& header) {
  return static_cast<int64_t>(static_cast<uint64_t>(header.opened_realtime_ns) -
                              static_cast<uint64_t>(header.opened_ns));
}

void check_header(const Reader& reader, const flight::Header& header) {
  if (std::memcmp(header.magic, flight::kMagic, sizeof header.magic) != 0)
    reader.corrupt("is not the file of a flight recorder");
  if (header.version != flight::kVersion || header.header_bytes != sizeof(flight::Header) ||
      header.group_bytes != sizeof(flight::Group) || header.record_bytes != sizeof(flight::Record)) {
    throw Error(ErrorCode::kUnsupported, cat("a flight recorder's file of version ", header.version, ", expected ",
                                             flight::kVersion, ": read it with the version that wrote it"));
  }
  constexpr int32_t kMaxRanks = 1 << 24;
  if (header.rank < 0 || header.world_size <= 0 || header.world_size > kMaxRanks || header.rank >= header.world_size)
    reader.corrupt(cat("rank ", header.rank, " of ", header.world_size));
  for (const int64_t at : {header.groups_at, header.ranks_at, header.records_at}) {
    if (at < 0 || at > reader.size()) reader.corrupt(cat("has ", reader.size(), " bytes, but its header says more"));
  }
  const int64_t groups_end = header.groups_at + int64_t{header.max_groups} * int64_t{sizeof(flight::Group)};
  const int64_t ranks_end = header.ranks_at + int64_t{header.max_groups} * header.world_size * 4;
  const int64_t end = header.records_at + int64_t{header.capacity} * int64_t{sizeof(flight::Record)};
  if (header.capacity == 0 || header.max_groups > flight::kMaxGroups || groups_end > header.ranks_at ||
      ranks_end > header.records_at || end > reader.size())
    reader.corrupt(cat("has ", reader.size(), " bytes, but its header says ", end));
}

void read_groups(const Reader& reader, const flight::Header& header, FlightDump& dump) {
  const uint32_t count = std::min(header.num_groups.load(), header.max_groups);
  std::vector<flight::Group> groups(count);
  reader.read(groups.data(), groups.size() * sizeof(flight::Group), header.groups_at);
  const int64_t all_ranks = int64_t{header.max_groups} * header.world_size;
  for (const flight::Group& group : groups) {
    if (group.size <= 0 || group.size > header.world_size || group.first_rank < 0 ||
        group.first_rank > all_ranks - group.size)
      reader.corrupt(cat("a group of ", group.size, " ranks"));
    FlightGroup& added = dump.groups.emplace_back();
    added.name = text_of(group.name);
    std::vector<int32_t> ranks(static_cast<size_t>(group.size));
    reader.read(ranks.data(), ranks.size() * sizeof(int32_t), header.ranks_at + group.first_rank * 4);
    added.ranks.assign(ranks.begin(), ranks.end());
  }
}

std::string caller_of(const Copied& record) {
  char name[sizeof(flight::Record::caller)];
  std::memcpy(name, record.bytes + offsetof(flight::Record, caller), sizeof name);
  std::string caller = text_of(name);
  const auto microbatch = record.at<int32_t>(offsetof(flight::Record, microbatch));
  const auto iteration = record.at<int64_t>(offsetof(flight::Record, iteration));
  if (microbatch >= 0) caller += cat(caller.empty() ? "" : ", ", "micro-batch ", microbatch);
  if (iteration > 0) caller += cat(caller.empty() ? "" : ", ", "iteration ", iteration);
  return caller;
}

// offset_ns: realtime - monotonic.
FlightEntry entry_of(const Reader& reader, const Copied& record, const FlightDump& dump, int64_t offset_ns) {
  using flight::Record;
  const auto op = record.at<uint8_t>(offsetof(Record, op)), dtype = record.at<uint8_t>(offsetof(Record, dtype));
  const auto state = record.at<uint8_t>(offsetof(Record, state));
  if (op >= kNumCommOps || dtype > kLastDtype || state > static_cast<uint8_t>(flight::State::kCompleted))
    reader.corrupt(cat("operation ", record.number, " has kind ", int{op}, ", dtype ", int{dtype}));
  const auto kind = static_cast<CommOp>(op);
  const auto realtime = [&](size_t offset) {
    const auto ns = record.at<int64_t>(offset);
    return ns == 0 ? 0 : plus(ns, offset_ns);
  };
  const auto in = record.at<int64_t>(offsetof(Record, in_elements));
  const auto out = record.at<int64_t>(offsetof(Record, out_elements));
  FlightEntry entry;
  entry.number = static_cast<int64_t>(record.number);
  entry.group = record.at<int32_t>(offsetof(Record, group));
  if (entry.group >= static_cast<int32_t>(dump.groups.size())) entry.group = -1;
  entry.op = comm_op_name(kind);
  entry.is_message = kind == CommOp::kSend || kind == CommOp::kRecv;
  entry.is_send = kind == CommOp::kSend;
  entry.sequence = record.at<int64_t>(offsetof(Record, sequence));
  entry.tag = record.at<uint8_t>(offsetof(Record, tag));
  entry.peer = record.at<int32_t>(offsetof(Record, peer));
  entry.shape = in == out ? cat(in) : cat(in, " -> ", out);
  entry.dtype = dtype_name(static_cast<DType>(dtype));
  if (kind != CommOp::kAlltoall) entry.agreed = cat(std::max(in, out));  // whose blocks may differ
  entry.bytes = record.at<int64_t>(offsetof(Record, payload_bytes));
  entry.state = static_cast<FlightState>(state);
  entry.posted_ns = realtime(offsetof(Record, posted_ns));
  entry.started_ns = realtime(offsetof(Record, started_ns));
  entry.completed_ns = realtime(offsetof(Record, completed_ns));
  entry.caller = caller_of(record);
  return entry;
}

void read_entries(const Reader& reader, const flight::Header& header, FlightDump& dump) {
  const int64_t offset_ns = clock_offset_ns(header);
  for (uint32_t i = 0; i < header.capacity; ++i) {
    const int64_t at = header.records_at + int64_t{i} * int64_t{sizeof(flight::Record)};
    Copied copied{};
    reader.read(copied.bytes, sizeof copied.bytes, at);
    copied.number = copied.at<uint64_t>(offsetof(flight::Record, number));
    if (copied.number == 0) continue;
    uint64_t again = 0;
    reader.read(&again, sizeof again, at);
    if (again != copied.number) continue;  // is being overwritten
    dump.entries.push_back(entry_of(reader, copied, dump, offset_ns));
  }
  std::ranges::sort(dump.entries, {}, &FlightEntry::number);
}

}  // namespace

const FlightEntry* FlightDump::waited() const {
  const auto found = std::ranges::find(entries, waits_for, &FlightEntry::number);
  return waits_for == 0 || found == entries.end() ? nullptr : &*found;
}

int64_t FlightDump::waited_ns() const {
  return waited() == nullptr || waits_since_ns == 0 ? 0 : std::max<int64_t>(waits_until_ns - waits_since_ns, 0);
}

FlightDump read_flight_file(const fs::path& path) {
  const Reader reader(path);
  if (reader.size() < static_cast<int64_t>(sizeof(flight::Header))) reader.corrupt("is too short");
  alignas(flight::Header) HeaderBytes bytes;
  reader.read(bytes, sizeof bytes, 0);
  const flight::Header& header = as_header(bytes);
  check_header(reader, header);
  FlightDump dump;
  dump.rank = header.rank;
  dump.world_size = header.world_size;
  dump.source = path.string();
  dump.job = header.job;
  dump.opened_ns = header.opened_realtime_ns;
  dump.pid = header.pid;
  dump.host = text_of(header.home.host);
  dump.ended = header.ending.load() == static_cast<uint32_t>(flight::Ending::kEnded);
  dump.failed = header.ending.load() == static_cast<uint32_t>(flight::Ending::kFailed);
  if (see_each_other(own_home(), header.home)) dump.process = process_state(header.pid, header.pid_started);
  read_groups(reader, header, dump);
  read_entries(reader, header, dump);
  dump.knows_waits = true;
  dump.waits_for = static_cast<int64_t>(header.waits_for.load());
  const int64_t offset_ns = clock_offset_ns(header);
  dump.last_wait = static_cast<int64_t>(header.last_wait.load());
  if (dump.last_wait != 0) dump.waits_since_ns = plus(header.waits_since_ns.load(), offset_ns);
  const int64_t until_ns = header.waited_until_ns.load();
  dump.waited_until_ns = until_ns == INT64_MAX ? INT64_MAX : plus(until_ns, offset_ns);
  if (dump.process == ProcessState::kRuns || dump.process == ProcessState::kStopped) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    dump.waits_until_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }
  if (dump.failed) dump.failed_ns = plus(header.failed_ns.load(), offset_ns);
  return dump;
}

bool is_flight_file(const fs::path& path) {
  try {
    const File file = File::open_read(path.string());
    char magic[sizeof flight::kMagic];
    if (file.size_bytes() < static_cast<int64_t>(sizeof magic)) return false;
    file.pread(std::as_writable_bytes(std::span(magic)), 0);
    return std::memcmp(magic, flight::kMagic, sizeof magic) == 0;
  } catch (const Error&) {
    return false;
  }
}

void rewind_to_failure(std::vector<FlightDump>& dumps) {
  int64_t failed_ns = INT64_MAX;
  for (const FlightDump& dump : dumps) {
    if (dump.failed) failed_ns = std::min(failed_ns, dump.failed_ns);
  }
  if (failed_ns == INT64_MAX) return;
  for (FlightDump& dump : dumps) {
    dump.process = ProcessState::kUnknown;  // now: of no interest
    std::erase_if(dump.entries, [&](const FlightEntry& entry) { return entry.posted_ns > failed_ns; });
    for (FlightEntry& entry : dump.entries) {
      if (entry.completed_ns <= failed_ns) continue;
      entry.state = FlightState::kScheduled;
      entry.completed_ns = 0;
    }
    if (dump.waits_since_ns > failed_ns) {
      dump.knows_waits = false;  // it has waited for other operations since
    } else {
      dump.waits_for = dump.waited_until_ns > failed_ns ? dump.last_wait : 0;
      dump.waits_until_ns = failed_ns;
    }
  }
}

void keep_newest_run(std::vector<FlightDump>& dumps) {
  if (dumps.empty()) return;
  const uint64_t newest = std::ranges::max(dumps, {}, &FlightDump::opened_ns).job;
  std::erase_if(dumps, [&](const FlightDump& dump) { return dump.job != newest; });
}

std::vector<FlightDump> read_flight_folder(const fs::path& folder) {
  std::vector<FlightDump> dumps;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".flight") continue;
    try {
      dumps.push_back(read_flight_file(it->path()));
    } catch (const Error&) {
      // Its rank is missing from the result.
    }
  }
  keep_newest_run(dumps);
  std::ranges::sort(dumps, {}, &FlightDump::rank);
  return dumps;
}

}  // namespace ms::core
