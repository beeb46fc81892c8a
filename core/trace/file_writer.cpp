#include "core/trace/file_writer.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <unordered_map>

#include "core/error.h"
#include "core/io/json.h"
#include "core/trace/split_number.h"
#include "kernels/checksum.h"

namespace ms::core::trace {
namespace {

constexpr int kCompressionLevel = 3;
constexpr size_t kBlockBytes = 64;  // most that a cut adds to a frame

// Maps the table entries that one chunk uses to indices from 0, in order of first use.
class LocalIndex {
 public:
  uint32_t operator()(uint32_t global) {
    const auto [entry, added] = index_.try_emplace(global, static_cast<uint32_t>(used_.size()));
    if (added) used_.push_back(global);
    return entry->second;
  }
  const std::vector<uint32_t>& used() const { return used_; }

 private:
  std::unordered_map<uint32_t, uint32_t> index_;
  std::vector<uint32_t> used_;
};

void put_column(std::string& out, const std::string& column) {
  put_varint(out, column.size());
  out += column;
}

struct Columns {
  std::string kinds, flags, names, flops, bytes, correlations, stacks, shapes, comms, memory, counters;
};

// Wraps instead of overflowing, like the reader's sums: a converted file may contain any numbers.
int64_t difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

// The largest n, up to kMaxGridBits, for which all times of a lane are multiples of 2^n ns; usually the recorder's
// grid.
int grid_of(std::span<const Event> lane) {
  uint64_t ones = 0;
  for (const Event& event : lane) ones |= static_cast<uint64_t>(event.start_ns) | static_cast<uint64_t>(event.dur_ns);
  return std::min(std::countr_zero(ones), kMaxGridBits);
}

// Start times of one lane, as gaps after the previous event's end (for consecutive leaf events) or as differences
// between starts (for nested spans), in multiples of its grid. The first is relative to the chunk's base.
template <class Put>
void for_each_start(std::span<const Event> lane, int64_t base_ns, int grid, bool after_end, const Put& put) {
  int64_t previous = base_ns >> grid << grid;
  for (const Event& event : lane) {
    put(difference(event.start_ns, previous) >> grid);
    previous = after_end ? event.start_ns + event.dur_ns : event.start_ns;
  }
}

int64_t bits_of_starts(std::span<const Event> lane, int64_t base_ns, int grid, bool after_end) {
  int64_t bits = 0;
  for_each_start(lane, base_ns, grid, after_end,
                 [&](int64_t step) { bits += std::bit_width(static_cast<uint64_t>(step < 0 ? ~step : step)); });
  return bits;
}

// One zstd frame in which each part between two cuts has its own blocks, and so its own statistics.
void append_frame(std::string& out, std::string_view payload, std::span<const size_t> cuts) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  MS_CHECK(context != nullptr, "ZSTD_createCCtx: out of memory");
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kCompressionLevel);
  const size_t begin = out.size();
  out.resize(begin + ZSTD_compressBound(payload.size()) + (cuts.size() + 1) * kBlockBytes);
  ZSTD_outBuffer target{out.data() + begin, out.size() - begin, 0};
  ZSTD_inBuffer source{payload.data(), 0, 0};
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const bool last = i == cuts.size();
    source.size = last ? payload.size() : cuts[i];
    const size_t left = ZSTD_compressStream2(context.get(), &target, &source, last ? ZSTD_e_end : ZSTD_e_flush);
    MS_CHECK(left == 0, "ZSTD_compressStream2: ", ZSTD_isError(left) != 0 ? ZSTD_getErrorName(left) : "no room");
  }
  out.resize(begin + target.pos);
}

// Encodes a chunk part by part, in the order in which the parts refer to each other.
class ChunkEncoder {
 public:
  // events: sorted by lane and start.
  ChunkEncoder(std::span<const Event> events, const Tables& tables) : events_(events), tables_(tables) {
    stacks_(0);
    base_ns_ = events.empty() ? 0 : events[0].start_ns;
    for (const Event& event : events) base_ns_ = std::min(base_ns_, event.start_ns);
  }

  EncodedEvents encode() {
    add_lanes();
    add_events();
    add_stacks();
    add_shapes();
    add_comms();
    return put_together();
  }

 private:
  void add_lanes() {
    for (size_t begin = 0, end = 0; begin < events_.size(); begin = end) {
      const Lane& lane = tables_.lanes[events_[begin].lane];
      while (end < events_.size() && events_[end].lane == events_[begin].lane) ++end;
      const auto group = events_.subspan(begin, end - begin);
      const int grid = grid_of(group);
      const bool after_end = bits_of_starts(group, base_ns_, grid, true) < bits_of_starts(group, base_ns_, grid, false);
      for_each_start(group, base_ns_, grid, after_end, [&](int64_t step) { starts_.put(step); });
      for (const Event& event : group) durs_.put(event.dur_ns >> grid);
      put_fixed(lanes_, static_cast<uint8_t>(lane.kind));
      put_signed(lanes_, lane.id);
      put_varint(lanes_, strings_(lane.name));
      put_varint(lanes_, group.size());
      put_fixed(lanes_, static_cast<uint8_t>(grid << 1 | (after_end ? 1 : 0)));
      ++num_lanes_;
    }
  }

  void add_events() {
    for (const Event& event : events_) {
      put_fixed(columns_.kinds, static_cast<uint8_t>(event.kind));
      put_fixed(columns_.flags, event.flags);
      put_varint(columns_.names, strings_(event.name));
      if (event.flags & kHasFlops) put_signed(columns_.flops, event.values[0]);
      if (event.flags & kHasBytes) put_signed(columns_.bytes, event.values[1]);
      if (event.flags & kHasCorrelation) {
        put_signed(columns_.correlations, static_cast<int64_t>(event.correlation) - correlation_);
        correlation_ = event.correlation;
      }
      if (event.flags & kHasStack) put_varint(columns_.stacks, stacks_(event.stack));
      if (event.flags & kHasShape) put_varint(columns_.shapes, shapes_(event.ref));
      if (event.kind == EventKind::kComm) {
        put_varint(columns_.comms, comms_(event.ref));
        put_signed(columns_.comms, difference(event.values[0], sequence_));
        put_signed(columns_.comms, event.values[1]);
        put_signed(columns_.comms, event.values[2]);
        put_signed(columns_.comms, event.values[3]);
        sequence_ = event.values[0];
      } else if (event.kind == EventKind::kMemory) {
        put_signed(columns_.memory, difference(event.values[0], address_));
        put_signed(columns_.memory, event.values[1]);
        put_signed(columns_.memory, event.values[2]);
        address_ = event.values[0];
      } else if (event.kind == EventKind::kCounter) {
        put_fixed(columns_.counters, event.values[0]);
      }
    }
  }

  // The used frames, and every ancestor of one.
  void add_stacks() {
    std::vector<uint32_t> frames = stacks_.used();
    for (size_t i = 0; i < frames.size(); ++i) {
      for (uint32_t frame = tables_.stacks[frames[i]].parent; frame != 0; frame = tables_.stacks[frame].parent) {
        if (stacks_(frame) == frames.size()) frames.push_back(frame);
      }
    }
    put_varint(stack_table_, frames.size());
    for (const uint32_t frame : frames) {
      put_varint(stack_table_, stacks_(tables_.stacks[frame].parent));
      put_varint(stack_table_, strings_(tables_.stacks[frame].name));
    }
  }

  void add_shapes() {
    put_varint(shape_table_, shapes_.used().size());
    for (const uint32_t shape : shapes_.used()) {
      put_varint(shape_table_, strings_(tables_.shapes[shape].dims));
      put_varint(shape_table_, strings_(tables_.shapes[shape].types));
    }
  }

  void add_comms() {
    put_varint(comm_table_, comms_.used().size());
    for (const uint32_t comm : comms_.used()) {
      for (const uint32_t text :
           {tables_.comms[comm].op, tables_.comms[comm].group, tables_.comms[comm].ranks, tables_.comms[comm].dtype}) {
        put_varint(comm_table_, strings_(text));
      }
    }
  }

  EncodedEvents put_together() {
    EncodedEvents encoded;
    std::string& out = encoded.payload;
    put_signed(out, base_ns_);
    put_varint(out, strings_.used().size());
    for (const uint32_t text : strings_.used()) {
      put_varint(out, tables_.strings[text].size());
      out += tables_.strings[text];
    }
    put_varint(out, num_lanes_);
    out += lanes_;
    out += stack_table_;
    out += shape_table_;
    out += comm_table_;
    for (const std::string* column :
         {&columns_.kinds, &columns_.flags, &columns_.names, &columns_.flops, &columns_.bytes, &columns_.correlations,
          &columns_.stacks, &columns_.shapes, &columns_.comms, &columns_.memory, &columns_.counters}) {
      put_column(out, *column);
    }
    for (const std::string* column : {&starts_.sizes(), &durs_.sizes(), &starts_.bits(), &durs_.bits()}) {
      encoded.cuts.push_back(out.size());
      put_column(out, *column);
    }
    return encoded;
  }

  std::span<const Event> events_;
  const Tables& tables_;
  int64_t base_ns_ = 0;
  LocalIndex strings_, stacks_, shapes_, comms_;
  Columns columns_;
  SplitWriter starts_, durs_;
  std::string lanes_, stack_table_, shape_table_, comm_table_;
  size_t num_lanes_ = 0;
  // Of the event before.
  uint32_t correlation_ = 0;
  int64_t address_ = 0, sequence_ = 0;
};

}  // namespace

EncodedEvents encode_events(std::span<Event> events, const Tables& tables) {
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    if (a.lane != b.lane) return a.lane < b.lane;
    if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
    return a.dur_ns > b.dur_ns;
  });
  return ChunkEncoder(events, tables).encode();
}

FileWriter::FileWriter(std::string path, const nlohmann::json& meta) : path_(std::move(path)), meta_(meta.dump()) {
  try {
    file_ = File::create(path_);
  } catch (const Error& e) {
    throw Error(ErrorCode::kIo,
                cat("create trace: ", e.what(), "; --profile-save-path must be a folder where files can be written"));
  }
  write_all(kFileMagic);
  write_chunk(ChunkKind::kMeta, meta_, {}, 0);
}

void FileWriter::write_events(std::span<Event> events, const Tables& tables) {
  while (!events.empty()) {
    size_t count = std::min(events.size(), kMaxChunkEvents);
    EncodedEvents encoded = encode_events(events.first(count), tables);
    // Long names can make a chunk too large; a single event always fits, because strings are truncated.
    while (encoded.payload.size() > kMaxChunkBytes / 2 && count > 1) {
      count /= 2;
      encoded = encode_events(events.first(count), tables);
    }
    int64_t first_ns = events[0].start_ns, last_ns = first_ns;
    for (const Event& event : events.first(count)) {
      first_ns = std::min(first_ns, event.start_ns);
      last_ns = std::max(last_ns, event.start_ns + event.dur_ns);
    }
    index_.push_back({offset_, static_cast<int64_t>(count), first_ns, last_ns});
    write_chunk(ChunkKind::kEvents, encoded.payload, encoded.cuts, static_cast<int64_t>(count));
    events = events.subspan(count);
  }
}

void FileWriter::write_clock(int64_t at_ns, int64_t offset_ns, int64_t error_ns) {
  const nlohmann::json clock = {{"at_ns", at_ns}, {"offset_ns", offset_ns}, {"error_ns", error_ns}};
  write_chunk(ChunkKind::kClock, clock.dump(), {}, 0);
}

void FileWriter::finish(const nlohmann::json& extra) {
  nlohmann::json footer = nlohmann::json::parse(meta_);
  footer.update(extra);
  footer["events"] = num_events_;
  nlohmann::json& chunks = footer["chunks"] = nlohmann::json::array();
  // Readers do not need the index, so very long runs omit it.
  constexpr size_t kMaxIndex = 8192;
  if (index_.size() <= kMaxIndex) {
    for (const IndexEntry& entry : index_)
      chunks.push_back({entry.offset, entry.events, entry.first_ns, entry.last_ns});
  }
  write_chunk(ChunkKind::kFooter, footer.dump(), {}, 0);
  file_.close();
}

void FileWriter::write_chunk(ChunkKind kind, std::string_view payload, std::span<const size_t> cuts, int64_t events) {
  std::string body;
  put_fixed(body, static_cast<uint8_t>(kind));
  put_fixed(body, kFormatVersion);
  put_fixed(body, uint16_t{0});
  put_fixed(body, static_cast<uint32_t>(payload.size()));
  put_fixed(body, sequence_);
  put_fixed(body, static_cast<uint64_t>(num_events_));
  put_fixed(body, static_cast<uint32_t>(events));
  put_fixed(body, uint32_t{0});
  append_frame(body, payload, cuts);

  std::string chunk;
  put_fixed(chunk, kChunkMagic);
  put_fixed(chunk, static_cast<uint32_t>(body.size()));
  put_fixed(chunk, kernels::xxh3(body.data(), body.size()));
  chunk += body;
  write_all(chunk);
  ++sequence_;
  num_events_ += events;
}

void FileWriter::write_all(std::string_view bytes) {
  file_.pwrite(std::as_bytes(std::span(bytes)), offset_);
  offset_ += static_cast<int64_t>(bytes.size());
}

}  // namespace ms::core::trace
