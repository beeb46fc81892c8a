#include "profile/ingest/perfetto.h"

#include <map>
#include <optional>
#include <unordered_map>

#include "core/error.h"
#include "core/io/json.h"
#include "profile/ingest/detail/file_issues.h"
#include "profile/ingest/detail/packet_clocks.h"
#include "profile/ingest/detail/packet_sequences.h"
#include "profile/ingest/detail/packet_stream.h"
#include "profile/ingest/detail/protobuf.h"
#include "profile/ingest/detail/track_columns.h"
#include "profile/ingest/detail/track_event.h"
#include "profile/ingest/own_meta.h"
#include "profile/perfetto.h"

namespace ms::profile {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::FieldReader;
using perfetto::Key;
namespace fields = perfetto::packet;

struct Packet {
  std::optional<uint64_t> timestamp;
  std::optional<uint32_t> clock;
  uint32_t sequence = 0;
  uint64_t flags = 0;
  bool dropped = false, packed = false;
  std::optional<std::string_view> clocks, defaults, interned, descriptor, event;
  uint32_t other = 0;  // a field that is not read here
};

// Returns false if it violates the format.
bool read_packet(std::string_view bytes, Packet& packet) {
  FieldReader in(bytes);
  while (in.next()) {
    switch (in.field()) {
      case fields::kTimestamp:
        packet.timestamp = in.integer();
        break;
      case fields::kTimestampClock:
        packet.clock = static_cast<uint32_t>(in.integer());
        break;
      case fields::kSequence:
        packet.sequence = static_cast<uint32_t>(in.integer());
        break;
      case fields::kSequenceFlags:
        packet.flags = in.integer();
        break;
      case fields::kStateCleared:
        if (in.integer() != 0) packet.flags |= perfetto::kStateCleared;
        break;
      case fields::kPreviousPacketDropped:
        packet.dropped = in.integer() != 0;
        break;
      case fields::kClockSnapshot:
        packet.clocks = in.bytes();
        break;
      case fields::kDefaults:
        packet.defaults = in.bytes();
        break;
      case fields::kInternedData:
        packet.interned = in.bytes();
        break;
      case fields::kTrackDescriptor:
        packet.descriptor = in.bytes();
        break;
      case fields::kTrackEvent:
        packet.event = in.bytes();
        break;
      case fields::kPackedPackets:
      case fields::kZstdPackets:
        packet.packed = true;
        break;
      default:
        packet.other = in.field();
    }
  }
  return in.ok();
}

class Reader {
 public:
  Reader(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file, ImportStats& stats)
      : issues_(stats, path), packets_(stream, issues_), columns_(trace, issues_), trace_(trace), file_(file) {}

  void read() {
    int64_t whole = 0;
    while (const std::optional<std::string_view> bytes = packets_.next()) {
      Packet packet;
      if (!read_packet(*bytes, packet)) {
        issue("bad_event", "a packet that violates the format");
        continue;
      }
      ++whole;
      read(packet);
    }
    if (whole == 0)
      throw Error(ErrorCode::kCorruptData, cat(issues_.path(), ": contains no whole packet of a Perfetto trace"));
    if (skipped_ > 0) issues_.stats().add("skipped_packets", skipped_example_, skipped_);
    finish();
  }

 private:
  void issue(std::string_view kind, std::string_view text) { issues_.add(kind, packets_.offset(), text); }
  void expect(bool right, std::string_view what) {
    if (!right) issue("bad_event", what);
  }

  void read(const Packet& packet) {
    detail::PacketSequence& sequence = sequences_[packet.sequence];
    if ((packet.flags & perfetto::kStateCleared) != 0) {
      sequence.begin_anew();
    } else if (packet.dropped) {
      sequence.whole = false;
    }
    // The first packet of a sequence also has this flag, although nothing was lost.
    if (packet.dropped && sequence.seen) issue("dropped_events", cat("sequence ", packet.sequence));
    sequence.seen = true;
    if (packet.defaults) expect(detail::read_defaults(*packet.defaults, sequence), "defaults of a sequence");
    if (packet.interned) expect(detail::read_interned(*packet.interned, sequence, trace_.names), "texts of a sequence");
    if (packet.clocks) expect(clocks_.read_snapshot(packet.sequence, *packet.clocks), "a snapshot of clocks");
    if (packet.descriptor) expect(columns_.tracks().describe(*packet.descriptor), "a description of a track");
    if (packet.event) read_event(packet, sequence);
    if (packet.packed) issue("packed_packets", "compressed packets");
    const bool used = packet.defaults || packet.interned || packet.clocks || packet.descriptor || packet.event;
    if (!used && !packet.packed && packet.other != 0 && ++skipped_ == 1) {
      skipped_example_ = cat(issues_.path(), ": byte ", packets_.offset(), ": field ", packet.other, " of a packet");
    }
  }

  void read_event(const Packet& packet, const detail::PacketSequence& sequence) {
    if ((packet.flags & perfetto::kNeedsState) != 0 && !sequence.whole) {
      return issue("lost_events", "an event that refers to lost packets");
    }
    if (!event_.read(*packet.event, sequence, trace_.names)) return issue("bad_event", "a track event");
    if (!packet.timestamp) return issue("missing_ts", trace_.names[event_.name]);
    const auto time = clocks_.to_trace(packet.sequence, packet.clock.value_or(sequence.clock), *packet.timestamp);
    if (!time) {
      issue("bad_number", trace_.names[event_.name]);
      return issue("lost_events", trace_.names[event_.name]);
    }
    if (!time->known) issue("unknown_clock", cat("clock ", packet.clock.value_or(sequence.clock)));
    if (event_.type == perfetto::track_event::kInstant && trace_.names[event_.name] == perfetto::kTraceInstant &&
        event_.has(Key::kOriginNs)) {
      return read_own();
    }
    columns_.add(event_, time->ns, packets_.offset());
  }

  // Reads what report/perfetto_trace.h writes about the whole trace.
  void read_own() {
    constexpr int64_t kMaxRanks = int64_t{1} << 24, kMaxNs = int64_t{1} << 61;
    const auto ranks = [&](Key key) {
      const int64_t number = event_.number(key, -1);
      return static_cast<int>(number >= 0 && number < kMaxRanks ? number : -1);
    };
    OwnTimes times;
    times.origin = event_.number(Key::kOriginNs, 0);
    times.base_unix = event_.number(Key::kBaseUnixNs, 0);
    has_base_ = event_.has(Key::kBaseUnixNs) && times.base_unix > -kMaxNs && times.base_unix < kMaxNs;
    trace_.rank = ranks(Key::kRank);
    trace_.world_size = ranks(Key::kWorldSize);
    trace_.backend = trace_.names[event_.get(Key::kBackend).text];
    own_ = times;
    if (!event_.has(Key::kOwn)) return;
    try {
      own_ = read_own_info(core::parse_json(trace_.names[event_.get(Key::kOwn).text], "msuite"), trace_);
      has_base_ = true;
    } catch (const Error& e) {
      issue("syntax", e.what());
    }
  }

  void finish() {
    file_.events = columns_.events();
    trace_.file_rank = trace_.rank;
    columns_.finish(packets_.offset());
    constexpr int64_t kMaxNs = int64_t{1} << 61;
    if (own_ && shift_times(trace_, own_->origin)) {
      trace_.base_unix_ns = has_base_ ? own_->base_unix : 0;
      trace_.has_base = has_base_;
    } else {
      if (own_) {
        trace_.clocks.clear();
        trace_.meta.clear();
        issue("bad_number", "\"origin_ns\" plus the times of events overflows");
      }
      if (const auto base = clocks_.unix_base(); base && *base > -kMaxNs && *base < kMaxNs) {
        trace_.base_unix_ns = *base;
        trace_.has_base = true;
      }
    }
    finish_trace(trace_);
  }

  detail::FileIssues issues_;
  detail::PacketStream packets_;
  detail::PacketClocks clocks_;
  std::unordered_map<uint32_t, detail::PacketSequence> sequences_;
  detail::TrackColumns columns_;
  detail::TrackEvent event_;
  RankTrace& trace_;
  FileInfo& file_;
  std::optional<OwnTimes> own_;
  bool has_base_ = false;
  int64_t skipped_ = 0;
  std::string skipped_example_;
};

}  // namespace

void read_perfetto(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file, ImportStats& stats) {
  Reader(stream, path, trace, file, stats).read();
}

}  // namespace ms::profile
