#include "profile/ingest/detail/track_event.h"

#include <cmath>

#include "profile/ingest/detail/numbers.h"
#include "profile/ingest/detail/protobuf.h"

namespace ms::profile::detail {
namespace {

namespace fields = perfetto::track_event;
using perfetto::Key;

int64_t whole(double value) {
  constexpr double kLimit = 9e18;
  return std::isfinite(value) && std::abs(value) < kLimit ? static_cast<int64_t>(value) : 0;
}

// The text with this number; sets `missing` if there is none.
NameId find(const std::unordered_map<uint64_t, NameId>& texts, uint64_t iid, bool& missing) {
  const auto found = texts.find(iid);
  if (found != texts.end()) return found->second;
  missing = true;
  return 0;
}

}  // namespace

bool TrackEvent::read_argument(std::string_view message, const PacketSequence& sequence, NameTable& names) {
  namespace words = perfetto::annotation;
  Key key = Key::kNone;
  uint32_t kind = 0;
  Argument argument;
  std::string_view text;
  FieldReader in(message);
  while (in.next()) {
    switch (in.field()) {
      case words::kNameIid: {
        const auto found = sequence.keys.find(in.integer());
        names_missing = names_missing || found == sequence.keys.end();
        if (found != sequence.keys.end()) key = found->second;
        break;
      }
      case words::kName:
        key = key_of_name(in.bytes());
        break;
      case words::kBool:
      case words::kUnsigned:
      case words::kInteger:
      case words::kStringIid:
        kind = in.field();
        argument.number = in.signed_integer();
        break;
      case words::kDouble:
        kind = in.field();
        argument.number = whole(in.real());
        break;
      case words::kString:
      case words::kJson:
        kind = in.field();
        text = in.bytes();
        break;
      case words::kArray:
        kind = in.field();
        break;
      default:
        break;
    }
  }
  if (!in.ok() || key == Key::kNone || kind == 0) return in.ok();
  if (kind == words::kArray) return key != Key::kCallStack || read_stack(message, sequence, names);
  if (kind == words::kString || kind == words::kJson || kind == words::kStringIid) {
    argument.is_text = true;
    argument.text = kind == words::kStringIid
                        ? find(sequence.strings, static_cast<uint64_t>(argument.number), names_missing)
                        : names.intern(text);
    argument.number = whole_number(names[argument.text]).value_or(0);
  }
  arguments_[static_cast<size_t>(key)] = argument;
  present_ |= uint64_t{1} << static_cast<unsigned>(key);
  return true;
}

bool TrackEvent::read_stack(std::string_view message, const PacketSequence& sequence, NameTable& names) {
  namespace words = perfetto::annotation;
  FieldReader in(message);
  while (in.next()) {
    if (in.field() != words::kArray) continue;
    FieldReader element(in.bytes());
    while (element.next()) {
      if (element.field() == words::kStringIid)
        stack.push_back(find(sequence.strings, element.integer(), names_missing));
      if (element.field() == words::kString) stack.push_back(names.intern(element.bytes()));
    }
    if (!element.ok()) return false;
  }
  return in.ok();
}

bool TrackEvent::read(std::string_view message, const PacketSequence& sequence, NameTable& names) {
  type = 0;
  track = sequence.track;
  name = 0;
  categories.clear();
  value.reset();
  flows.clear();
  stack.clear();
  names_missing = false;
  present_ = 0;
  FieldReader in(message);
  while (in.next()) {
    switch (in.field()) {
      case fields::kType:
        type = in.integer();
        break;
      case fields::kTrack:
        track = in.integer();
        break;
      case fields::kNameIid:
        name = find(sequence.names, in.integer(), names_missing);
        break;
      case fields::kName:
        name = names.intern(in.bytes());
        break;
      case fields::kCategoryIids:
        categories.push_back(find(sequence.categories, in.integer(), names_missing));
        break;
      case fields::kCategories:
        categories.push_back(names.intern(in.bytes()));
        break;
      case fields::kCounterValue:
        value = static_cast<double>(in.signed_integer());
        break;
      case fields::kDoubleCounterValue:
        value = in.real();
        break;
      case fields::kFlows:
      case fields::kLastFlows:
        flows.push_back(in.integer());
        break;
      case fields::kAnnotations:
        if (!read_argument(in.bytes(), sequence, names)) return false;
        break;
      default:
        break;
    }
  }
  return in.ok();
}

}  // namespace ms::profile::detail
