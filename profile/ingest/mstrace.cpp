#include "profile/ingest/mstrace.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/io/json.h"
#include "core/trace/format.h"
#include "kernels/checksum.h"
#include "profile/ingest/detail/cursor.h"
#include "profile/ingest/own_meta.h"

namespace ms::profile {
namespace {

namespace format = core::trace;
using core::cat;
using detail::Cursor;
using detail::SplitCursor;
using format::ChunkKind;
using format::EventKind;

struct Chunk {
  ChunkKind kind = ChunkKind::kMeta;
  uint8_t version = 0;
  uint32_t raw_bytes = 0, num_events = 0;
  uint64_t sequence = 0, first_event = 0;
  std::string_view stored;
  size_t size_bytes = 0;  // including its prefix
};

// The chunk at `offset`; nullopt unless it is complete and its checksum matches.
std::optional<Chunk> chunk_at(std::string_view bytes, size_t offset) {
  Cursor prefix(bytes.substr(offset));
  if (prefix.fixed<uint32_t>() != format::kChunkMagic) return std::nullopt;
  const auto body_bytes = prefix.fixed<uint32_t>();
  const auto checksum = prefix.fixed<uint64_t>();
  if (!prefix.ok() || body_bytes < format::kBodyHeaderBytes || body_bytes > format::kMaxChunkBytes) return std::nullopt;
  const std::string_view body = prefix.take(body_bytes);
  if (!prefix.ok() || kernels::xxh3(body.data(), body.size()) != checksum) return std::nullopt;
  Cursor header(body);
  Chunk chunk;
  chunk.kind = static_cast<ChunkKind>(header.fixed<uint8_t>());
  chunk.version = header.fixed<uint8_t>();
  header.fixed<uint16_t>();
  chunk.raw_bytes = header.fixed<uint32_t>();
  chunk.sequence = header.fixed<uint64_t>();
  chunk.first_event = header.fixed<uint64_t>();
  chunk.num_events = header.fixed<uint32_t>();
  chunk.stored = body.substr(format::kBodyHeaderBytes);
  chunk.size_bytes = format::kChunkPrefixBytes + body_bytes;
  if (chunk.raw_bytes > format::kMaxChunkBytes) return std::nullopt;
  return chunk;
}

// Reads one file. Table rows are added once per distinct content, not once per chunk.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& path, RankTrace& trace, FileInfo& file, ImportStats& stats)
      : bytes_(bytes), path_(path), trace_(trace), file_(file), stats_(stats) {
    const std::pair<std::string_view, Side> kinds[format::kNumEventKinds] = {
        {"user_annotation", Side::kAnnotation},
        {"cpu_op", Side::kOperator},
        {"kernel", Side::kDevice},
        {"cuda_runtime", Side::kLaunch},
        {"gpu_memcpy", Side::kDeviceCopy},
        {"kernel", Side::kDevice},
        {"gpu_user_annotation", Side::kDeviceNoWork},
        {"cpu_instant_event", Side::kHost},
        {"counter", Side::kHost}};
    for (size_t i = 0; i < format::kNumEventKinds; ++i) {
      category_of_[i] = trace_.category(kinds[i].first, kinds[i].second);
    }
  }

  void read() {
    size_t offset = format::kFileMagic.size();
    uint64_t expected_event = 0;
    int64_t chunks = 0;
    while (offset < bytes_.size()) {
      std::optional<Chunk> chunk = chunk_at(bytes_, offset);
      if (!chunk) {
        const size_t damaged = offset;
        offset = next_chunk(offset + 1);
        if (offset == bytes_.size()) end_at(damaged);
        if (offset < bytes_.size()) stats_.add("damaged_chunk", cat(path_, ": byte ", damaged));
        if (offset == bytes_.size()) break;
        continue;
      }
      if (chunk->version != format::kFormatVersion) {
        throw core::Error(core::ErrorCode::kUnsupported,
                          cat(path_, ": trace format ", int{chunk->version}, ", this msprof reads ",
                              int{format::kFormatVersion}, ": use the msprof of the msuite that wrote it"));
      }
      ++chunks;
      if (chunk->first_event > expected_event) lost(static_cast<int64_t>(chunk->first_event - expected_event));
      expected_event = chunk->first_event + chunk->num_events;
      read_chunk(*chunk, offset);
      offset += chunk->size_bytes;
    }
    if (chunks == 0) {
      throw core::Error(core::ErrorCode::kCorruptData,
                        cat(path_, ": begins like a native trace, but no chunk of it is whole"));
    }
    if (!footer_seen_) {
      file_.truncated = true;
      stats_.add("truncated",
                 cat(path_, ": no footer; ends at byte ", bytes_.size(), " after ", file_.events, " events"));
    } else if (footer_events_ > static_cast<int64_t>(expected_event)) {
      lost(footer_events_ - static_cast<int64_t>(expected_event));
    }
    if (!meta_seen_) stats_.add("no_meta", path_);
    finish_trace(trace_);
    count_events();
  }

 private:
  size_t next_chunk(size_t from) const {
    constexpr uint32_t magic = format::kChunkMagic;
    const std::string_view pattern(reinterpret_cast<const char*>(&magic), sizeof(magic));
    for (size_t at = bytes_.find(pattern, from); at != std::string_view::npos; at = bytes_.find(pattern, at + 1)) {
      if (chunk_at(bytes_, at)) return at;
    }
    return bytes_.size();
  }

  void end_at(size_t offset) {
    // With a footer before it, the tail was appended; without one, it is the chunk that was being written.
    if (footer_seen_) stats_.add("damaged_chunk", cat(path_, ": byte ", offset, ", after the footer"));
  }

  void lost(int64_t events) { stats_.add("lost_events", path_, events); }

  void read_chunk(const Chunk& chunk, size_t offset) {
    payload_.resize(chunk.raw_bytes);
    const size_t size = ZSTD_decompress(payload_.data(), payload_.size(), chunk.stored.data(), chunk.stored.size());
    if (ZSTD_isError(size) != 0 || size != chunk.raw_bytes) {
      stats_.add("damaged_chunk", cat(path_, ": byte ", offset, ": does not decompress"));
      if (chunk.num_events > 0) lost(chunk.num_events);
      return;
    }
    const std::string_view payload(payload_.data(), size);
    switch (chunk.kind) {
      case ChunkKind::kEvents:
        return read_events(payload, chunk, offset);
      case ChunkKind::kMeta:
      case ChunkKind::kFooter:
        return read_meta(payload, chunk.kind == ChunkKind::kFooter, offset);
      case ChunkKind::kClock:
        return read_clock(payload, offset);
    }
    // Chunk kinds of later versions carry nothing that these analyses need.
  }

  void read_meta(std::string_view payload, bool footer, size_t offset) {
    try {
      const nlohmann::json meta = core::parse_json(payload, "meta");
      read_own_meta(meta, trace_);
      meta_seen_ = true;
      if (!footer) return;
      footer_seen_ = true;
      footer_events_ = own_integer(meta, "events", 0, kMaxEvents);
      if (const int64_t dropped = own_integer(meta, "dropped", 0, kMaxEvents); dropped > 0) {
        stats_.add("dropped_events", path_, dropped);
      }
    } catch (const core::Error& e) {
      stats_.add("damaged_chunk", cat(path_, ": byte ", offset, ": ", e.what()));
    }
  }

  static constexpr int64_t kMaxEvents = int64_t{1} << 56;  // a larger count is corrupt

  void count_events() {
    const Events& events = trace_.events;
    for (size_t i = 0; i < events.size(); ++i) ++trace_.categories[events.category[i]].events;
    trace_.categories[category_of_[static_cast<size_t>(EventKind::kMemory)]].events +=
        static_cast<int64_t>(trace_.memory.size());
    trace_.by_phase['X'] = static_cast<int64_t>(events.size());
    trace_.by_phase['i'] = static_cast<int64_t>(trace_.memory.size());
    trace_.by_phase['C'] = static_cast<int64_t>(trace_.counters.size());
  }

  void read_clock(std::string_view payload, size_t offset) {
    try {
      trace_.clocks.push_back(read_own_clock(core::parse_json(payload, "clock")));
    } catch (const core::Error& e) {
      stats_.add("damaged_chunk", cat(path_, ": byte ", offset, ": ", e.what()));
    }
  }

  void read_events(std::string_view payload, const Chunk& chunk, size_t offset);
  bool read_tables(Cursor& in);
  uint16_t lane_of(bool device, int64_t id, NameId name);
  uint32_t stack_of(uint64_t local, int depth);

  struct LaneRun {
    uint16_t lane;
    uint64_t count;
    bool after_end;
    int grid;  // times are multiples of 2^grid ns
  };

  std::string_view bytes_;
  const std::string& path_;
  RankTrace& trace_;
  FileInfo& file_;
  ImportStats& stats_;
  std::vector<char> payload_;
  uint8_t category_of_[format::kNumEventKinds] = {};
  bool meta_seen_ = false, footer_seen_ = false;
  int64_t footer_events_ = 0;

  // Tables of the current chunk.
  std::vector<NameId> strings_;
  std::vector<LaneRun> runs_;
  std::vector<std::pair<uint64_t, NameId>> frames_;  // index of the parent, name
  std::vector<uint32_t> frame_ids_;                  // index in RankTrace::stacks, UINT32_MAX: not yet resolved
  std::vector<std::pair<NameId, NameId>> shapes_;
  std::vector<CommArgs> comms_;

  // Tables of the file.
  std::map<std::tuple<bool, int64_t, NameId>, uint16_t> lane_index_;
  std::map<std::pair<uint32_t, NameId>, uint32_t> stack_index_;
};

uint16_t Reader::lane_of(bool device, int64_t id, NameId name) {
  const auto [entry, added] = lane_index_.try_emplace({device, id, name}, static_cast<uint16_t>(trace_.lanes.size()));
  if (added) {
    if (trace_.lanes.size() >= UINT16_MAX) {
      entry->second = UINT16_MAX - 1;
    } else {
      trace_.lanes.push_back({device, device ? 0 : trace_.pid, id, name});
    }
  }
  return entry->second;
}

uint32_t Reader::stack_of(uint64_t local, int depth) {
  if (local == 0 || local >= frames_.size() || depth > 1000) return 0;  // limits a corrupt table with a cycle
  if (frame_ids_[local] != UINT32_MAX) return frame_ids_[local];
  const uint32_t parent = stack_of(frames_[local].first, depth + 1);
  const auto [entry, added] =
      stack_index_.try_emplace({parent, frames_[local].second}, static_cast<uint32_t>(trace_.stacks.size()));
  if (added) trace_.stacks.push_back({parent, frames_[local].second});
  return frame_ids_[local] = entry->second;
}

bool Reader::read_tables(Cursor& in) {
  const auto count = [&in] {  // a table never has more rows than bytes follow
    const uint64_t n = in.varint();
    return n <= in.left() ? n : (in.take(UINT64_MAX), uint64_t{0});
  };
  const auto text = [&]() -> NameId {
    const uint64_t index = in.varint();
    return index < strings_.size() ? strings_[index] : (in.take(UINT64_MAX), NameId{0});
  };
  strings_.clear();
  for (uint64_t n = count(); n > 0 && in.ok(); --n) strings_.push_back(trace_.names.intern(in.take(in.varint())));
  runs_.clear();
  for (uint64_t n = count(); n > 0 && in.ok(); --n) {
    const auto kind = in.fixed<uint8_t>();
    const int64_t id = in.svarint();
    const NameId name = text();
    const uint64_t events = in.varint();
    const auto mode = in.fixed<uint8_t>();
    if (mode >> 1 > format::kMaxGridBits) in.take(UINT64_MAX);
    if (in.ok()) runs_.push_back({lane_of(kind != 0, id, name), events, (mode & 1) != 0, mode >> 1});
  }
  frames_.clear();
  for (uint64_t n = count(); n > 0 && in.ok(); --n) {
    const uint64_t parent = in.varint();
    frames_.emplace_back(parent, text());
  }
  frame_ids_.assign(frames_.size(), UINT32_MAX);
  shapes_.clear();
  for (uint64_t n = count(); n > 0 && in.ok(); --n) {
    const NameId dims = text();
    shapes_.emplace_back(dims, text());
  }
  comms_.clear();
  for (uint64_t n = count(); n > 0 && in.ok(); --n) {
    CommArgs comm;
    comm.op = text();
    comm.group = text();
    comm.ranks = text();
    comm.dtype = text();
    comms_.push_back(comm);
  }
  return in.ok();
}

void Reader::read_events(std::string_view payload, const Chunk& chunk, size_t offset) {
  Cursor in(payload);
  const int64_t base_ns = in.svarint();
  if (!read_tables(in)) {
    stats_.add("damaged_chunk", cat(path_, ": byte ", offset, ": its tables are inconsistent"));
    lost(chunk.num_events);
    return;
  }
  Cursor kinds, flags, names, flops, bytes, correlations, stacks, shapes, comms, memory, counters;
  for (Cursor* column :
       {&kinds, &flags, &names, &flops, &bytes, &correlations, &stacks, &shapes, &comms, &memory, &counters}) {
    *column = Cursor(in.take(in.varint()));
  }
  std::string_view split[4];  // sizes of starts and durations, bits of both
  for (std::string_view& column : split) column = in.take(in.varint());
  SplitCursor starts(split[0], split[2]), durs(split[1], split[3]);
  const auto whole = [&] {
    return in.ok() && kinds.ok() && flags.ok() && starts.ok() && durs.ok() && names.ok() && flops.ok() && bytes.ok() &&
           correlations.ok() && stacks.ok() && shapes.ok() && comms.ok() && memory.ok() && counters.ok();
  };
  Events& events = trace_.events;
  // Each event takes at least one byte of `kinds`, so a corrupt count cannot reserve more than the chunk holds.
  const size_t expected = events.size() + std::min<size_t>(chunk.num_events, kinds.left());
  events.ts.reserve(expected);
  uint32_t correlation = 0;
  int64_t address = 0, sequence = 0, done = 0;
  for (const LaneRun& run : runs_) {
    int64_t previous = base_ns >> run.grid << run.grid;
    const auto times = [&](int64_t steps) { return static_cast<uint64_t>(steps) << run.grid; };
    for (uint64_t i = 0; i < run.count; ++i) {
      const auto kind = kinds.fixed<uint8_t>();
      const auto flag = flags.fixed<uint8_t>();
      // Sums wrap: a corrupt file gives odd times, not undefined behaviour.
      const auto ts = static_cast<int64_t>(static_cast<uint64_t>(previous) + times(starts.next()));
      const auto dur = static_cast<int64_t>(times(durs.next()));
      const uint64_t name = names.varint();
      Details details;
      if (flag & format::kHasFlops) details.flops = flops.svarint();
      if (flag & format::kHasBytes) details.bytes = bytes.svarint();
      if (kind == static_cast<uint8_t>(EventKind::kUserAnnotation)) {
        details.microbatch = std::exchange(details.flops, -1);
        details.chunk = std::exchange(details.bytes, -1);
      }
      if (flag & format::kHasCorrelation) correlation += static_cast<uint32_t>(correlations.svarint());
      if (flag & format::kHasStack) details.stack = stack_of(stacks.varint(), 0);
      if (flag & format::kHasShape) {
        if (const uint64_t shape = shapes.varint(); shape < shapes_.size()) {
          std::tie(details.dims, details.types) = shapes_[shape];
        }
      }
      CommArgs comm;
      MemoryChange change;
      double value = 0;
      if (kind == static_cast<uint8_t>(EventKind::kComm)) {
        const uint64_t descriptor = comms.varint();
        if (descriptor < comms_.size()) comm = comms_[descriptor];
        sequence = static_cast<int64_t>(static_cast<uint64_t>(sequence) + static_cast<uint64_t>(comms.svarint()));
        comm.sequence = sequence;
        comm.in_elements = comms.svarint();
        comm.out_elements = comms.svarint();
        const auto peer = static_cast<int32_t>(comms.svarint());
        const bool send = trace_.names[comm.op] == "send", receive = trace_.names[comm.op] == "recv";
        if (send || receive) {
          comm.source = send ? trace_.rank : peer;
          comm.destination = send ? peer : trace_.rank;
        } else {
          comm.source = peer;
        }
        comm.async = (flag & format::kIsAsync) != 0;
      } else if (kind == static_cast<uint8_t>(EventKind::kMemory)) {
        address = static_cast<int64_t>(static_cast<uint64_t>(address) + static_cast<uint64_t>(memory.svarint()));
        change.address = address;
        change.bytes = memory.svarint();
        change.total = memory.svarint();
      } else if (kind == static_cast<uint8_t>(EventKind::kCounter)) {
        value = std::bit_cast<double>(counters.fixed<int64_t>());
      }
      if (!whole()) {
        stats_.add("damaged_chunk", cat(path_, ": byte ", offset, ": its columns are inconsistent"));
        lost(static_cast<int64_t>(chunk.num_events) - done);
        return;
      }
      previous = run.after_end ? static_cast<int64_t>(static_cast<uint64_t>(ts) + static_cast<uint64_t>(dur)) : ts;
      ++done;
      constexpr int64_t kLimit = int64_t{1} << 62;
      if (kind >= format::kNumEventKinds || name >= strings_.size() || ts <= -kLimit || ts >= kLimit || dur < 0 ||
          dur >= kLimit - std::max<int64_t>(ts, 0)) {
        stats_.add("bad_event", cat(path_, ": chunk at byte ", offset, ", event ", done));
        continue;
      }
      ++file_.events;
      if (kind == static_cast<uint8_t>(EventKind::kMemory)) {
        change.ts = ts;
        change.tag = strings_[name];
        change.lane = run.lane;
        trace_.memory.push_back(change);
        continue;
      }
      if (kind == static_cast<uint8_t>(EventKind::kCounter)) {
        trace_.counters.push_back({ts, value, strings_[name], run.lane});
        continue;
      }
      events.ts.push_back(ts);
      events.dur.push_back(dur);
      events.name.push_back(strings_[name]);
      events.category.push_back(category_of_[kind]);
      events.lane.push_back(run.lane);
      events.correlation.push_back((flag & format::kHasCorrelation) != 0 ? correlation : 0);
      events.external.push_back(0);
      events.comm.push_back(0);
      events.details.push_back(0);
      if (kind == static_cast<uint8_t>(EventKind::kComm)) {
        events.comm.back() = static_cast<uint32_t>(trace_.comms.size());
        trace_.comms.push_back(comm);
      }
      if ((flag & (format::kHasFlops | format::kHasBytes | format::kHasStack | format::kHasShape)) != 0) {
        events.details.back() = static_cast<uint32_t>(trace_.details.size());
        trace_.details.push_back(details);
      }
    }
  }
  if (done != static_cast<int64_t>(chunk.num_events)) {
    stats_.add("damaged_chunk",
               cat(path_, ": byte ", offset, ": ", done, " events, its header says ", chunk.num_events));
  }
}

}  // namespace

void read_mstrace(std::string_view bytes, const std::string& path, RankTrace& trace, FileInfo& file,
                  ImportStats& stats) {
  if (!bytes.starts_with(format::kFileMagic)) {
    throw core::Error(core::ErrorCode::kCorruptData, cat(path, ": is not a native trace"));
  }
  Reader(bytes, path, trace, file, stats).read();
}

}  // namespace ms::profile
