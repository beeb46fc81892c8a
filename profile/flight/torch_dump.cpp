#include "profile/flight/torch_dump.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "profile/flight/plain_pickle.h"

namespace ms::profile {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::FlightDump;
using core::FlightEntry;
using core::FlightGroup;
using core::FlightState;
using nlohmann::json;

constexpr int64_t kMaxDumpBytes = int64_t{1} << 30;
constexpr int64_t kMaxRank = 1 << 16;  // what follows from a damaged dump must not need more memory than it justifies

std::string text_or(const json& object, const char* key, std::string otherwise = "") {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

int64_t number_or(const json& object, const char* key, int64_t otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

bool is_true(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

// "[0, 1]", as torch writes the members of a group, or a list of them.
std::vector<int> ranks_of(const json& value, const std::string& where) {
  const json list = value.is_string() ? core::parse_json(value.get<std::string>(), where) : value;
  if (!list.is_array()) throw Error(ErrorCode::kCorruptData, cat(where, ": ranks: expected a list"));
  std::vector<int> ranks;
  for (const json& rank : list) {
    const int64_t number = rank.is_number_integer() ? rank.get<int64_t>() : -1;
    if (number < 0 || number > kMaxRank)
      throw Error(ErrorCode::kCorruptData, cat(where, ": ranks: ", rank.dump(), " is no rank"));
    ranks.push_back(static_cast<int>(number));
  }
  std::ranges::sort(ranks);  // group ranks in names of messages count in this order
  return ranks;
}

// "[4, 8]", of several tensors "[4, 8] [2]".
std::string sizes_text(const json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return "";
  std::string text;
  for (const json& sizes : *found) text += cat(text.empty() ? "" : " ", core::dump_json(sizes));
  return text;
}

std::string dtypes_text(const json& entry) {
  for (const char* key : {"input_dtypes", "output_dtypes"}) {
    const auto found = entry.find(key);
    if (found == entry.end() || !found->is_array() || found->empty()) continue;
    std::string text;
    for (const json& dtype : *found) {
      if (!dtype.is_string() || (" " + text + " ").find(" " + dtype.get<std::string>() + " ") != std::string::npos)
        continue;
      text += cat(text.empty() ? "" : " ", dtype.get<std::string>());
    }
    return text;
  }
  return "";
}

// The first frame that is not torch's own: "step at train.py:41".
std::string caller_of(const json& entry) {
  const auto frames = entry.find("frames");
  if (frames == entry.end() || !frames->is_array()) return "";
  for (const json& frame : *frames) {
    if (!frame.is_object()) continue;
    const std::string file = text_or(frame, "filename");
    if (file.empty() || file.find("torch/") != std::string::npos) continue;
    return cat(text_or(frame, "name"), " at ", file.substr(file.rfind('/') + 1), ":", number_or(frame, "line", 0));
  }
  return "";
}

class DumpReader {
 public:
  DumpReader(const json& document, std::string where, int rank) : document_(document), where_(std::move(where)) {
    dump_.rank = rank;
    dump_.source = where_;
  }

  FlightDump read() {
    const std::string version = core::json_string(document_, "version", where_);
    if (!version.starts_with("2."))
      throw Error(ErrorCode::kUnsupported, cat(where_, ": version ", version,
                                               " of a Flight Recorder's dump; 2.x (PyTorch 2.3 and later) is read"));
    read_groups();
    const json& entries = core::json_array(document_, "entries", where_);
    bool is_whole = true;  // no operation has been overwritten
    if (!entries.empty() && entries.front().is_object()) is_whole = number_or(entries.front(), "record_id", 0) == 0;
    for (const json& entry : entries) {
      if (!entry.is_object()) throw Error(ErrorCode::kCorruptData, cat(where_, ": entries: expected objects"));
      add(entry, is_whole);
    }
    return std::move(dump_);
  }

 private:
  void read_groups() {
    const auto config = document_.find("pg_config");
    if (config == document_.end() || !config->is_object()) return;
    for (const auto& [name, group] : config->items()) {
      if (!group.is_object()) throw Error(ErrorCode::kCorruptData, cat(where_, ": pg_config: expected objects"));
      const auto ranks = group.find("ranks");
      if (ranks == group.end()) continue;
      if (name.empty()) {  // gloo (PyTorch 2.13) writes its groups under no name, one over the other
        for (const int rank : ranks_of(*ranks, where_)) dump_.world_size = std::max(dump_.world_size, rank + 1);
        continue;
      }
      index_[name] = static_cast<int32_t>(dump_.groups.size());
      FlightGroup& added = dump_.groups.emplace_back();
      added.name = group_name(name, text_or(group, "desc"));
      added.ranks = ranks_of(*ranks, where_);
      // The default group has all ranks.
      for (const int rank : added.ranks) dump_.world_size = std::max(dump_.world_size, rank + 1);
    }
  }

  static std::string group_name(const std::string& name, const std::string& description) {
    return description.empty() || description == "undefined" ? name : cat(name, ":", description);
  }

  int32_t group_of(const json& entry) {
    const auto group = entry.find("process_group");
    if (group == entry.end() || !group->is_array() || group->empty() || !group->front().is_string()) return -1;
    const std::string name = group->front().get<std::string>();
    const auto known = index_.find(name);
    if (known != index_.end()) return known->second;
    const std::string description = group->size() > 1 && (*group)[1].is_string() ? (*group)[1].get<std::string>() : "";
    index_[name] = static_cast<int32_t>(dump_.groups.size());
    dump_.groups.push_back({group_name(name, description), {}});
    return index_[name];
  }

  void add(const json& source, bool is_whole) {
    FlightEntry entry;
    entry.number = static_cast<int64_t>(dump_.entries.size()) + 1;
    entry.group = group_of(source);
    entry.posted_ns = number_or(source, "time_created_ns", 0);
    entry.started_ns = number_or(source, "time_discovered_started_ns", 0);
    entry.completed_ns = number_or(source, "time_discovered_completed_ns", 0);
    const std::string state = text_or(source, "state");
    // Where a backend has no events to ask (gloo), an operation that has been retired is complete.
    const bool is_over = state == "completed" || (is_true(source, "retired") && entry.started_ns == 0);
    entry.state = is_over              ? FlightState::kCompleted
                  : state == "started" ? FlightState::kStarted
                                       : FlightState::kScheduled;
    entry.dtype = dtypes_text(source);
    entry.caller = caller_of(source);
    std::string name = text_or(source, "profiling_name");
    name.erase(0, name.find(':') == std::string::npos ? 0 : name.find(':') + 1);  // "nccl:all_reduce"
    const std::string in = sizes_text(source, "input_sizes"), out = sizes_text(source, "output_sizes");
    entry.shape = in == out || out.empty() ? in : in.empty() ? out : cat(in, " -> ", out);
    if (!take_message(name, in, out, is_whole, entry)) {
      entry.op = name;
      entry.sequence = number_or(source, "collective_seq_id", -1);
      entry.agreed = agreed(name, in, out);
    }
    dump_.entries.push_back(std::move(entry));
  }

  // What torch's own analysis compares (Op.match in components/types.py).
  static std::string agreed(const std::string& name, const std::string& in, const std::string& out) {
    const bool any = name.starts_with("all_to_all") || name.find("coalesced") != std::string::npos;
    return cat(any || name == "scatter" ? "" : in, " -> ", any || name == "gather" ? "" : out);
  }

  // "send 0->1", "recv 1<-0": ranks of the group. False: it is no message.
  bool take_message(const std::string& name, const std::string& in, const std::string& out, bool is_whole,
                    FlightEntry& entry) {
    const bool is_send = name.starts_with("send ");
    if (!is_send && !name.starts_with("recv ")) return false;
    entry.is_message = true;
    entry.is_send = is_send;
    entry.op = is_send ? "send" : "recv";
    const size_t arrow = name.find(is_send ? "->" : "<-");
    int peer = -1;
    if (arrow != std::string::npos) std::from_chars(name.data() + arrow + 2, name.data() + name.size(), peer);
    const std::vector<int>* ranks = entry.group >= 0 ? &dump_.groups[static_cast<size_t>(entry.group)].ranks : nullptr;
    const bool known = ranks != nullptr && peer >= 0 && peer < static_cast<int>(ranks->size());
    entry.peer = known ? (*ranks)[static_cast<size_t>(peer)] : peer;
    // p2p_seq_id counts all messages of a rank, which its peers do not see alike: those of each pair are counted here.
    const int64_t count = messages_[{entry.group, entry.peer, is_send}]++;
    entry.sequence = is_whole && entry.peer >= 0 ? count : -1;
    entry.agreed = is_send ? (in.empty() ? out : in) : (out.empty() ? in : out);
    return true;
  }

  const json& document_;
  std::string where_;
  FlightDump dump_;
  std::map<std::string, int32_t> index_;                        // of groups, by torch's name
  std::map<std::tuple<int32_t, int, bool>, int64_t> messages_;  // by group, peer and direction
};

std::optional<int> last_number(const std::string& text) {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  size_t end = text.size();
  while (end > 0 && !is_digit(static_cast<unsigned char>(text[end - 1]))) --end;
  size_t begin = end;
  while (begin > 0 && is_digit(static_cast<unsigned char>(text[begin - 1]))) --begin;
  int number = 0;
  const auto [at, error] = std::from_chars(text.data() + begin, text.data() + end, number);
  if (begin == end || error != std::errc() || number > kMaxRank) return std::nullopt;
  return number;
}

}  // namespace

FlightDump parse_torch_dump(std::string bytes, const std::string& where, int rank) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && bytes[first] == '{';
  const json document = is_json ? core::parse_json(bytes, where) : plain_pickle(std::move(bytes), where);
  if (!document.is_object()) throw Error(ErrorCode::kCorruptData, cat(where, ": expected a dictionary"));
  return DumpReader(document, where, rank).read();
}

FlightDump read_torch_dump(const std::filesystem::path& path) {
  const std::optional<int> rank = last_number(path.filename().string());
  if (!rank)
    throw Error(ErrorCode::kInvalidArgument,
                cat(path.string(), ": whose rank's dump is it? Expected a number in the name, as in _dump_3"));
  return parse_torch_dump(core::read_text(path.string(), kMaxDumpBytes), path.string(), *rank);
}

}  // namespace ms::profile
