#include "profile/analysis/collectives.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "core/dtype.h"
#include "core/error.h"
#include "profile/analysis/input_dims.h"

namespace ms::profile {
namespace {

using core::cat;

CommKind kind_of(std::string_view type) {
  if (type == "send") return CommKind::kSend;
  if (type == "recv") return CommKind::kReceive;
  if (type == "broadcast" || type == "reduce" || type == "scatter" || type == "gather") return CommKind::kRooted;
  return type.empty() ? CommKind::kUnknown : CommKind::kSynchronising;
}

// "hcom_allReduce__586_0_1": group 586, operation 0 in it.
struct AscendName {
  std::string_view group;
  int64_t number = 0;
};
std::optional<AscendName> ascend_name(std::string_view name) {
  const size_t at = name.find("__");
  if (!name.starts_with("hcom_") || at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + 2);
  const size_t bar = rest.find('_');
  if (bar == std::string_view::npos) return std::nullopt;
  AscendName out{rest.substr(0, bar), 0};
  const auto [end, error] = std::from_chars(rest.data() + bar + 1, rest.data() + rest.size(), out.number);
  return error == std::errc() ? std::optional(out) : std::nullopt;
}

struct Found {
  CommPart part;
  std::string type, group;
  CommKind kind = CommKind::kUnknown;
  int64_t bytes = -1, sequence = -1, group_size = -1;
  uint64_t comms_id = 0;
  int source = -1, destination = -1;
};

// "[[64, 256]]" and "[\"float\"]": bytes of all tensors; -1: unknown.
int64_t bytes_of_inputs(const RankTrace& trace, const Details& details) {
  if (details.dims == 0 || details.types == 0) return -1;
  const std::optional<std::vector<Dims>> dims = parse_dims(trace.names[details.dims]);
  const std::string& types = trace.names[details.types];
  const size_t from = types.find('"'), to = types.find('"', from + 1);
  if (!dims || from == std::string::npos || to == std::string::npos) return -1;
  const int64_t size = element_bytes(types.substr(from + 1, to - from - 1));
  double bytes = 0;
  for (const Dims& tensor : *dims) {
    double elements = static_cast<double>(size);
    for (const int64_t extent : tensor) elements *= static_cast<double>(extent);
    bytes += elements;
  }
  constexpr double kMax = 1e15;
  return size > 0 && bytes < kMax ? static_cast<int64_t>(bytes) : -1;
}

// gloo:send does not name its peer; the operator that called it does (c10d::send, on the same thread, just before).
// PyTorch posts the message first and begins gloo:send afterwards, on a busy machine long afterwards, so the operator
// also gives the earliest time at which the message can be in flight.
class HostPeers {
 public:
  HostPeers(const RankTrace& trace, const DeviceView& view) : trace_(trace) {
    for (size_t i = 0; view.on_host && i < trace.events.size(); ++i) {
      if (trace.events.comm[i] != 0) {
        calls_[{trace.events.lane[i], trace.names[trace.comms[trace.events.comm[i]].op]}].push_back(i);
      }
    }
  }
  struct Peer {
    int32_t rank = -1;   // -1: unknown
    int64_t called = 0;  // start of the operator, if the rank is known
  };
  // type: "send" or "recv".
  Peer of(uint32_t event, const std::string& type) const {
    const auto calls = calls_.find({trace_.events.lane[event], type});
    if (calls == calls_.end()) return {};
    const int64_t ts = trace_.events.ts[event];
    auto after = std::partition_point(calls->second.begin(), calls->second.end(),
                                      [&](size_t call) { return trace_.events.ts[call] <= ts; });
    if (after == calls->second.begin()) return {};
    const size_t call = *--after;
    const CommArgs& comm = trace_.comms[trace_.events.comm[call]];
    return {type == "send" ? comm.destination : comm.source, trace_.events.ts[call]};
  }

 private:
  const RankTrace& trace_;
  std::map<std::pair<uint16_t, std::string>, std::vector<size_t>> calls_;  // by lane and type, sorted by time
};

std::vector<Found> communication_of(const RankTrace& trace, const DeviceView& view, uint32_t rank) {
  std::vector<Found> out;
  std::unordered_map<NameId, std::string> types;  // by event name
  const HostPeers peers(trace, view);
  for (const DeviceEvent& device : view.devices) {
    if (device.device_class != DeviceClass::kCommunication) continue;
    const Events& events = trace.events;
    Found found;
    found.part = {rank, device.event, unix_time(trace, events.ts[device.event]),
                  unix_time(trace, events.end(device.event))};
    const NameId name = events.name[device.event];
    const auto [type, added] = types.try_emplace(name);
    if (added) type->second = comm_type(trace.names[name]);
    found.type = type->second;
    if (const uint32_t row = events.comm[device.event]; row != 0) {
      const CommArgs& comm = trace.comms[row];
      if (std::string named = comm_type(trace.names[comm.op]); !named.empty()) found.type = std::move(named);
      const std::string& members = trace.names[comm.ranks];
      found.group = cat(trace.names[comm.group], members.empty() ? "" : " ", members);
      if (members.size() > 2 && members.find("...") == std::string::npos) {
        found.group_size = std::count(members.begin(), members.end(), ',') + 1;
      }
      const int64_t size = element_bytes(trace.names[comm.dtype]);
      if (size > 0 && comm.in_elements >= 0 && comm.in_elements < (int64_t{1} << 50)) {
        found.bytes = comm.in_elements * size;
      }
      found.sequence = comm.sequence;
      found.comms_id = comm.comms_id;
      found.source = comm.source;
      found.destination = comm.destination;
    } else if (view.on_host) {
      found.bytes = bytes_of_inputs(trace, trace.details[events.details[device.event]]);
      if (found.type == "send" || found.type == "recv") {
        const HostPeers::Peer peer = peers.of(device.event, found.type);
        found.source = found.type == "send" ? trace.rank : peer.rank;
        found.destination = found.type == "send" ? peer.rank : trace.rank;
        if (found.type == "send" && peer.rank >= 0) found.part.start = unix_time(trace, peer.called);
      }
    } else if (const auto ascend = ascend_name(trace.names[name])) {
      found.group = ascend->group;
      found.sequence = ascend->number;
    }
    found.kind = kind_of(found.type);
    // SendRecv without peers is the all-to-all of older PyTorch.
    if (found.type == "sendrecv") {
      found.type =
          found.source >= 0 && found.destination >= 0 ? (found.source == trace.rank ? "send" : "recv") : "alltoall";
      found.kind = kind_of(found.type);
    }
    if (found.kind != CommKind::kUnknown) out.push_back(std::move(found));
  }
  return out;
}

// Whether each rank has each "Comms Id" at most once.
bool unique_ids(const std::vector<std::vector<Found>>& ranks) {
  bool any = false;
  for (const std::vector<Found>& rank : ranks) {
    std::set<uint64_t> seen;
    for (const Found& found : rank) {
      if (found.comms_id == 0) continue;
      any = true;
      if (!seen.insert(found.comms_id).second) return false;
    }
  }
  return any;
}

// The members of a group "pp [0, 1, 2]"; empty if the trace does not list them all.
std::vector<int> members_of(const std::string& group) {
  std::vector<int> members;
  const size_t open = group.rfind('[');
  if (open == std::string::npos) return {};
  const char *at = group.data() + open + 1, *end = group.data() + group.size();
  while (at < end) {
    int rank = 0;
    const auto [after, error] = std::from_chars(at, end, rank);
    if (error != std::errc()) return {};
    members.push_back(rank);
    at = after;
    while (at < end && (*at == ',' || *at == ' ' || *at == ']')) ++at;
  }
  return members;
}

// Which ranks without a trace take part in the messages of those that have one.
std::map<int, std::set<int>> untraced_peers(const std::vector<RankDevices>& ranks,
                                            const std::vector<std::vector<Found>>& all) {
  std::set<int> traced;
  for (const RankDevices& rank : ranks) traced.insert(rank.trace->rank);
  std::map<int, std::set<int>> untraced;
  for (size_t r = 0; r < all.size(); ++r) {
    std::set<std::string> groups;
    std::set<int> others;
    for (const Found& found : all[r]) {
      if (found.kind != CommKind::kSend && found.kind != CommKind::kReceive) continue;
      const int peer = found.kind == CommKind::kSend ? found.destination : found.source;
      if (peer < 0 || traced.contains(peer)) continue;
      others.insert(peer);
      groups.insert(found.group);
    }
    for (const std::string& group : groups) {
      for (const int member : members_of(group)) {
        if (!traced.contains(member)) others.insert(member);
      }
    }
    if (!others.empty()) untraced[ranks[r].trace->rank] = std::move(others);
  }
  return untraced;
}

}  // namespace

int64_t unix_time(const RankTrace& trace, int64_t ts) {
  // Sums of untrusted times wrap: odd times, but no overflow.
  return static_cast<int64_t>(static_cast<uint64_t>(ts) +
                              static_cast<uint64_t>(trace.has_base ? trace.base_unix_ns : 0));
}

int64_t element_bytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, int64_t> kNames[] = {
      {"Float", 4},         {"float", 4},          {"double", 8}, {"c10::BFloat16", 2},
      {"c10::Half", 2},     {"long int", 8},       {"long", 8},   {"int", 4},
      {"unsigned char", 1}, {"signed char", 1},    {"bool", 1},   {"Half", 2},
      {"BFloat16", 2},      {"Double", 8},         {"Long", 8},   {"Int", 4},
      {"Short", 2},         {"Byte", 1},           {"Char", 1},   {"Bool", 1},
      {"ComplexFloat", 8},  {"ComplexDouble", 16}, {"INT8", 1},   {"INT16", 2},
      {"INT32", 4},         {"INT64", 8},          {"FP16", 2},   {"FP32", 4},
      {"BFP16", 2},         {"UINT8", 1},          {"UINT64", 8}, {"FP64", 8}};
  for (const auto& [name, size] : kNames) {
    if (dtype == name) return size;
  }
  if (dtype.starts_with("Float8")) return 1;
  const auto known = core::parse_dtype(dtype);
  return known ? core::size_of(*known) : 0;
}

std::string comm_type(std::string_view text) {
  std::string word;
  for (const char c : text) {
    if (c != '_' && c != '-' && c != ' ') word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  constexpr std::pair<std::string_view, const char*> kWords[] = {
      {"sendrecv", "sendrecv"},   {"allreduce", "allreduce"}, {"reducescatter", "reduce_scatter"},
      {"allgather", "allgather"}, {"alltoall", "alltoall"},   {"barrier", "barrier"},
      {"broadcast", "broadcast"}, {"bcast", "broadcast"},     {"batchsend", "send"},
      {"receive", "recv"},        {"recv", "recv"},           {"send", "send"},
      {"scatter", "scatter"},     {"gather", "gather"},       {"reduce", "reduce"}};
  for (const auto& [part, type] : kWords) {
    if (word.find(part) != std::string::npos) return type;
  }
  return {};
}

std::vector<CommCall> communication_calls(const RankTrace& trace, const DeviceView& view) {
  std::vector<CommCall> out;
  for (Found& found : communication_of(trace, view, 0)) {
    out.push_back({found.part.event, std::move(found.type), std::move(found.group), found.bytes});
  }
  return out;
}

MatchedComms match_comms(const std::vector<RankDevices>& ranks) {
  std::vector<std::vector<Found>> all;
  for (uint32_t r = 0; r < ranks.size(); ++r) all.push_back(communication_of(*ranks[r].trace, *ranks[r].view, r));
  const bool by_id = unique_ids(all);

  std::map<std::string, CommInstance> collectives, messages;
  for (const std::vector<Found>& rank : all) {
    std::map<std::string, int64_t> occurrences;  // on this rank
    for (const Found& found : rank) {
      const bool message = found.kind == CommKind::kSend || found.kind == CommKind::kReceive;
      std::string key;
      if (message) {
        if (found.source < 0 || found.destination < 0) continue;
        key = cat(found.group, "|", found.source, ">", found.destination);
        key = cat(key, "|", occurrences[cat(key, found.type)]++);
      } else {
        if (by_id && found.comms_id != 0) {
          key = cat("id ", found.comms_id);
        } else if (found.sequence >= 0) {
          key = cat(found.group, "|", found.type, "|seq ", found.sequence);
        } else if (found.bytes >= 0) {
          key = cat(found.group, "|", found.type, "|", found.bytes, " B");
        } else {
          key = cat(found.group, "|", found.type);
        }
        const int64_t nth = occurrences[key]++;
        if (nth > 0 || found.sequence < 0) key = cat(key, "|", nth);
      }
      CommInstance& instance = (message ? messages : collectives)[key];
      if (instance.parts.empty()) {
        instance.type = message ? "send" : found.type;
        instance.group = found.group;
        instance.key = key;
        instance.kind = message ? CommKind::kSend : found.kind;
        instance.group_size = found.group_size;
      }
      instance.bytes = std::max(instance.bytes, found.bytes);
      if (found.kind == CommKind::kRooted && found.source >= 0) {
        for (uint32_t r = 0; r < ranks.size(); ++r) {
          if (ranks[r].trace->rank == found.source) instance.root = static_cast<int>(r);
        }
      }
      if (found.kind == CommKind::kSend) {
        instance.parts.insert(instance.parts.begin(), found.part);
      } else {
        instance.parts.push_back(found.part);
      }
    }
  }
  MatchedComms out;
  const auto keep = [&out](std::map<std::string, CommInstance>& from, std::vector<CommInstance>& to) {
    for (auto& [key, instance] : from) {
      if (instance.group_size > static_cast<int64_t>(instance.parts.size()) && instance.kind != CommKind::kSend) {
        out.groups_incomplete = true;
      }
      const bool pair = instance.parts.size() == 2 && instance.parts[0].rank != instance.parts[1].rank;
      if (instance.kind == CommKind::kSend ? pair : instance.parts.size() >= 2) {
        to.push_back(std::move(instance));
      } else {
        out.alone += static_cast<int64_t>(instance.parts.size());
      }
    }
    std::stable_sort(to.begin(), to.end(),
                     [](const CommInstance& a, const CommInstance& b) { return a.parts[0].start < b.parts[0].start; });
  };
  keep(collectives, out.collectives);
  keep(messages, out.messages);
  out.untraced = untraced_peers(ranks, all);
  return out;
}

}  // namespace ms::profile
