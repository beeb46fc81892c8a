// Maps events to lanes: threads by (pid, tid), streams by (device, stream). Consecutive events of one lane need no
// search.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "profile/ingest/detail/value_names.h"
#include "profile/store.h"

namespace ms::profile::detail {

class LaneTable {
 public:
  LaneTable(RankTrace& trace, ValueNames& names) : trace_(trace), names_(names) {}

  // Id of a pid, tid or device: whole numbers map to themselves, texts to kTextLaneId plus their name id.
  int64_t id_of(const Value& value);
  // Lane of the event's pid and tid.
  uint16_t host(const ScannedEvent& event) {
    const Value &pid = event.pid, &tid = event.tid;
    constexpr uint32_t kShort = 8;
    if (pid.kind != Kind::kNumber || tid.kind != Kind::kNumber || pid.size > kShort || tid.size > kShort) {
      return find_thread(pid, tid);
    }
    const uint64_t pid_text = pid.head(), tid_text = tid.head();
    if (pid_text != last_pid_ || tid_text != last_tid_) {
      last_host_ = find_thread(pid, tid);
      last_pid_ = pid_text;
      last_tid_ = tid_text;
    }
    return last_host_;
  }
  // The lane's index, added if it is new. The limit is 65,535 lanes: further ones share the last.
  uint16_t find(bool device, int64_t process, int64_t id) {
    Cached& cached = cache_[(static_cast<uint64_t>(process) * 31 + static_cast<uint64_t>(id) * 7 + device) & 255];
    const bool same = cached.used && cached.process == process && cached.id == id && cached.device == device;
    if (!same) cached = {process, id, find_or_add(device, process, id), device, true};
    return cached.lane;
  }

  // A stream by its number, which may lie in the range of other ids.
  uint16_t stream(int64_t device, int64_t number) {
    odd_ids_ = odd_ids_ || number >= kTextLaneId;
    return find(true, device, number);
  }
  // Lane of the asynchronous events of one category, so that they are not nested with other slices.
  uint16_t track(int64_t process, uint8_t category) { return find(false, process, kFirstTrack - category); }

  // Metadata; the last name wins.
  void name_process(const Value& pid, NameId name) { process_names_[id_of(pid)] = name; }
  void name_thread(const Value& pid, const Value& tid, NameId name) { thread_names_[{id_of(pid), id_of(tid)}] = name; }

  // Whether absorb() gives the same lanes as reading all events with this table. Not with too many lanes, or with ids
  // that may be numbers as well as texts or tracks.
  bool can_absorb(const LaneTable& later) const {
    return !later.odd_ids_ && trace_.lanes.size() + later.trace_.lanes.size() < UINT16_MAX;
  }
  // Adds the lanes of a table that was filled from later events of the same file. names, categories: index here of each
  // name and category of `later`. Returns the index here of each of its lanes.
  std::vector<uint16_t> absorb(const LaneTable& later, const std::vector<NameId>& names,
                               const std::vector<uint8_t>& categories);

  // Sets the names of the lanes, and the pid of the trace.
  void finish();

 private:
  struct Cached {
    int64_t process = 0, id = 0;
    uint16_t lane = 0;
    bool device = false, used = false;
  };

  static constexpr int64_t kFirstTrack = -2, kLastTrack = kFirstTrack - UINT8_MAX;
  static bool looks_like_track(int64_t id) { return id <= kFirstTrack && id >= kLastTrack; }

  uint16_t find_thread(const Value& pid, const Value& tid) {
    const int64_t thread = id_of(tid);
    odd_ids_ = odd_ids_ || looks_like_track(thread);
    return find(false, id_of(pid), thread);
  }
  uint16_t find_or_add(bool device, int64_t process, int64_t id);

  RankTrace& trace_;
  ValueNames& names_;
  bool odd_ids_ = false;  // ids that lie in the range of texts or tracks
  std::array<Cached, 256> cache_;
  uint64_t last_pid_ = 0, last_tid_ = 0;  // their first 8 bytes; no number is 0 bytes long
  uint16_t last_host_ = 0;
  std::map<std::tuple<bool, int64_t, int64_t>, uint16_t> lanes_;
  std::map<std::pair<int64_t, int64_t>, NameId> thread_names_;
  std::map<int64_t, NameId> process_names_;
};

}  // namespace ms::profile::detail
