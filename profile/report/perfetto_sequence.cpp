#include "profile/report/perfetto_sequence.h"

#include "profile/report/json_writer.h"
#include "profile/report/protobuf_writer.h"

namespace ms::profile {

namespace fields = perfetto;
using namespace protobuf;

PerfettoSequence::PerfettoSequence(OutputFile& out, uint32_t id, const RankTrace& trace)
    : out_(out),
      id_(id),
      trace_(trace),
      event_names_{std::vector<uint32_t>(trace.names.size())},
      categories_{std::vector<uint32_t>(trace.names.size())},
      strings_{std::vector<uint32_t>(trace.names.size())},
      keys_(static_cast<size_t>(fields::Key::kCount)) {}

void PerfettoSequence::intern(uint32_t table, uint64_t iid, std::string_view text) {
  std::string row;
  put_integer(row, fields::interned::kIid, iid);
  put_bytes(row, fields::interned::kText, valid_utf8(text));
  put_bytes(interned_, table, row);
}

uint64_t PerfettoSequence::refer(Numbers& numbers, NameId name, uint32_t table) {
  uint32_t& number = numbers.by_name[name];
  if (number == 0) {
    number = ++numbers.last;
    intern(table, number, trace_.names[name]);
  }
  return number;
}

uint64_t PerfettoSequence::key(fields::Key key) {
  const auto iid = static_cast<uint64_t>(key);
  if (!keys_[iid]) intern(fields::interned::kAnnotationNames, iid, fields::kKeyNames[iid]);
  keys_[iid] = true;
  return iid;
}

void PerfettoSequence::write(uint32_t field, std::string_view message) {
  put_integer(packet_, fields::packet::kSequence, id_);
  const uint64_t flags =
      (first_ ? fields::kStateCleared : 0) | (field == fields::packet::kTrackEvent ? fields::kNeedsState : 0);
  if (flags != 0) put_integer(packet_, fields::packet::kSequenceFlags, flags);
  first_ = false;
  put_bytes(packet_, field, message);
  framed_.clear();
  put_bytes(framed_, fields::kTracePacket, packet_);
  out_.write(framed_);
  packet_.clear();
}

void PerfettoSequence::write_track(std::string_view descriptor) { write(fields::packet::kTrackDescriptor, descriptor); }

void PerfettoSequence::write_clocks(std::string_view snapshot) { write(fields::packet::kClockSnapshot, snapshot); }

void PerfettoSequence::write_event(uint64_t timestamp, std::string_view event) {
  put_integer(packet_, fields::packet::kTimestamp, timestamp);
  if (!interned_.empty()) put_bytes(packet_, fields::packet::kInternedData, interned_);
  interned_.clear();
  write(fields::packet::kTrackEvent, event);
}

}  // namespace ms::profile
