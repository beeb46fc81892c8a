#include "core/comm/flight_diagnosis.h"

#include <algorithm>
#include <compare>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"

namespace ms::core {
namespace {

using Ranks = std::vector<int>;

// One end of the messages of a kind between two ranks.
struct Channel {
  int group, from, to, tag;
  auto operator<=>(const Channel&) const = default;
};

bool same_operation(const FlightEntry& a, const FlightEntry& b) {
  return a.op == b.op && a.dtype == b.dtype && a.agreed == b.agreed;
}

// Whether the same call was made: of one rank at two times.
bool same_call(const FlightEntry& a, const FlightEntry& b) {
  return a.group == b.group && a.peer == b.peer && a.tag == b.tag && same_operation(a, b);
}

enum class Habit { kUsual, kUnknown, kDeparts };

// Whether the rank did the same in earlier steps, after the same operations as now: as many as can be found again.
Habit habit_of(const std::vector<FlightEntry>& entries, const FlightEntry& entry) {
  constexpr std::ptrdiff_t kMost = 8, kLeast = 2;
  const std::ptrdiff_t at = &entry - entries.data();
  for (std::ptrdiff_t before = std::min(kMost, at); before >= kLeast; --before) {
    bool found = false;
    for (std::ptrdiff_t i = at - 1; i >= before; --i) {
      const bool alike =
          std::equal(entries.begin() + i - before, entries.begin() + i, entries.begin() + at - before, same_call);
      if (!alike) continue;
      if (same_call(entries[static_cast<size_t>(i)], entry)) return Habit::kUsual;
      found = true;
    }
    if (found) return Habit::kDeparts;
  }
  return Habit::kUnknown;
}

class Diagnosis {
 public:
  Diagnosis(const std::vector<FlightDump>& dumps, int world_size) : dumps_(dumps) {
    for (const FlightDump& dump : dumps) {
      by_rank_[dump.rank] = &dump;
      world_size = std::max(world_size, dump.world_size);
      add(dump);
    }
    for (int rank = 0; rank < world_size; ++rank) {
      if (!by_rank_.contains(rank)) missing_.push_back(rank);
    }
  }

  std::vector<FlightFinding> findings() {
    std::vector<FlightFinding> found = mismatches();
    std::vector<FlightFinding> waits = roots_of_waits();
    // A rank that is dead or stopped explains a hang; a mismatch explains one that nothing else does.
    const bool hard = !waits.empty() && waits.front().fault < FlightFault::kAbsent;
    found.insert(hard ? found.begin() : found.end(), waits.begin(), waits.end());
    // Ranks that have ended as they should have missed nobody.
    const bool over = !dumps_.empty() && std::ranges::all_of(dumps_, &FlightDump::ended);
    if (found.empty() && !missing_.empty() && !over) found.push_back(without_record());
    return found;
  }

 private:
  struct Wait {
    const FlightDump* dump;
    const FlightEntry* entry;
    Ranks blockers;
  };
  using Members = std::map<int, const FlightEntry*>;  // by rank
  struct Ends {
    const FlightEntry* send = nullptr;
    const FlightEntry* recv = nullptr;
  };

  void add(const FlightDump& dump) {
    std::vector<int>& known = group_index_[dump.rank];
    for (const FlightGroup& group : dump.groups) {
      auto at = std::ranges::find(groups_, group);
      if (at == groups_.end()) at = groups_.insert(groups_.end(), group);
      known.push_back(static_cast<int>(at - groups_.begin()));
    }
    for (const FlightEntry& entry : dump.entries) {
      if (entry.group < 0 || entry.sequence < 0) continue;
      const int group = known[static_cast<size_t>(entry.group)];
      if (!entry.is_message) {
        collectives_[group][entry.sequence][dump.rank] = &entry;
        continue;
      }
      const Channel channel = channel_of(dump, entry);
      (entry.is_send ? messages_[channel][entry.sequence].send : messages_[channel][entry.sequence].recv) = &entry;
    }
  }

  int group_of(const FlightDump& dump, const FlightEntry& entry) const {
    return group_index_.at(dump.rank)[static_cast<size_t>(entry.group)];
  }
  Channel channel_of(const FlightDump& dump, const FlightEntry& entry) const {
    const int group = group_of(dump, entry);
    return entry.is_send ? Channel{group, dump.rank, entry.peer, entry.tag}
                         : Channel{group, entry.peer, dump.rank, entry.tag};
  }
  const FlightDump* dump_of(int rank) const {
    const auto found = by_rank_.find(rank);
    return found == by_rank_.end() ? nullptr : found->second;
  }

  FlightFinding about(const FlightDump& dump, const FlightEntry& entry) const {
    FlightFinding finding;
    finding.op = entry.op;
    finding.sequence = entry.sequence;
    finding.is_message = entry.is_message;
    finding.caller = entry.caller;
    if (entry.group >= 0) {
      const FlightGroup& group = groups_[static_cast<size_t>(group_of(dump, entry))];
      finding.group = group.name;
      finding.members = group.ranks;
    }
    return finding;
  }

  // Operations that members disagree on: the first of each group and channel, the earliest first.
  std::vector<FlightFinding> mismatches() const {
    std::vector<std::pair<int64_t, FlightFinding>> found;
    for (const auto& [group, sequences] : collectives_) {
      for (const auto& [sequence, members] : sequences) {
        if (auto finding = disagreement(members)) {
          found.push_back(std::move(*finding));
          break;
        }
      }
    }
    for (const auto& [channel, sequences] : messages_) {
      for (const auto& [sequence, ends] : sequences) {
        if (ends.send == nullptr || ends.recv == nullptr) continue;
        if (ends.send->dtype == ends.recv->dtype && ends.send->agreed == ends.recv->agreed) continue;
        auto finding = disagreement({{channel.from, ends.send}, {channel.to, ends.recv}});
        if (finding) found.push_back(std::move(*finding));  // a damaged dump may have messages of a rank to itself
        break;
      }
    }
    std::ranges::sort(found, {}, [](const auto& timed) { return timed.first; });
    std::vector<FlightFinding> findings;
    for (auto& timed : found) findings.push_back(std::move(timed.second));
    return findings;
  }

  // With the time at which the disagreeing ranks had posted. nullopt: all agree.
  std::optional<std::pair<int64_t, FlightFinding>> disagreement(const Members& members) const {
    std::vector<Ranks> classes;
    for (const auto& [rank, entry] : members) {
      const auto mine = std::ranges::find_if(
          classes, [&, e = entry](const Ranks& others) { return same_operation(*members.at(others.front()), *e); });
      if (mine == classes.end()) {
        classes.push_back({rank});
      } else {
        mine->push_back(rank);
      }
    }
    if (classes.size() < 2) return std::nullopt;
    const Ranks culprits = culprits_of(members, classes);
    const int culprit = culprits.front();
    const auto other = std::ranges::find_if(
        members, [&](const auto& m) { return m.first != culprit && !same_operation(*m.second, *members.at(culprit)); });
    FlightFinding finding = about(*dump_of(other->first), *other->second);
    finding.fault = FlightFault::kMismatch;
    finding.culprits = culprits;
    finding.expected = signature_text(*other->second);
    finding.seen = signature_text(*members.at(culprit));
    int64_t posted_ns = 0;
    for (const auto& [rank, entry] : members) {
      posted_ns = std::max(posted_ns, entry->posted_ns);
      if (std::ranges::find(culprits, rank) == culprits.end()) finding.direct.push_back(rank);
    }
    finding.last = last_of(culprit);
    return std::pair(posted_ns, std::move(finding));
  }

  // Those outside of the majority; without one, those that depart from their habit; else all.
  Ranks culprits_of(const Members& members, std::vector<Ranks> classes) const {
    std::ranges::sort(classes, std::greater<>(), [](const Ranks& ranks) { return ranks.size(); });
    Ranks culprits;
    if (classes[0].size() > classes[1].size()) {
      for (size_t i = 1; i < classes.size(); ++i) culprits.insert(culprits.end(), classes[i].begin(), classes[i].end());
    } else {
      Ranks all;
      for (const auto& [rank, entry] : members) {
        all.push_back(rank);
        if (habit_of(dump_of(rank)->entries, *entry) == Habit::kDeparts) culprits.push_back(rank);
      }
      if (culprits.empty() || culprits.size() == all.size()) culprits = all;
    }
    std::ranges::sort(culprits);
    return culprits;
  }

  // Whether a member that has left a dump lacks the operation, and has not gone on without it.
  bool is_lacked(const FlightDump& dump, const FlightEntry& entry) const {
    if (entry.is_message || entry.group < 0 || entry.sequence < 0) return false;
    const int group = group_of(dump, entry);
    const auto& sequences = collectives_.at(group);
    return std::ranges::any_of(groups_[static_cast<size_t>(group)].ranks, [&](int rank) {
      return by_rank_.contains(rank) && std::none_of(sequences.lower_bound(entry.sequence), sequences.end(),
                                                     [&](const auto& later) { return later.second.contains(rank); });
    });
  }

  // The entry in which the rank waits; null: it does not.
  const FlightEntry* waits_in(const FlightDump& dump) const {
    if (dump.ended || dump.process == ProcessState::kDead || dump.process == ProcessState::kStopped) return nullptr;
    const FlightEntry* entry = nullptr;
    if (dump.knows_waits) {
      entry = dump.waited();
    } else {
      // A backend without events (gloo) calls operations complete that have failed.
      const auto first = std::ranges::find_if(
          dump.entries, [&](const FlightEntry& e) { return !e.completed() || is_lacked(dump, e); });
      return first == dump.entries.end() || first->group < 0 || first->sequence < 0 ? nullptr : &*first;
    }
    return entry == nullptr || entry->completed() || entry->group < 0 || entry->sequence < 0 ? nullptr : entry;
  }

  // Whether a rank that has posted the operation leaves it waiting: it makes no progress, unless it waits in it itself.
  bool holds_up(int rank, const FlightEntry& entry) const {
    const FlightDump& dump = *dump_of(rank);
    return !entry.completed() && waits_in(dump) != &entry;
  }

  Ranks blockers_of(const FlightDump& dump, const FlightEntry& entry) const {
    Ranks absent, slow;
    const auto look = [&](int rank, const FlightEntry* theirs, bool has_passed) {
      if (dump_of(rank) == nullptr || (theirs == nullptr && !has_passed)) {
        absent.push_back(rank);
      } else if (theirs != nullptr && holds_up(rank, *theirs)) {
        slow.push_back(rank);
      }
    };
    if (entry.is_message) {
      const auto& sequences = messages_.at(channel_of(dump, entry));
      const Ends& ends = sequences.at(entry.sequence);
      const bool has_passed = std::ranges::any_of(sequences, [&](const auto& later) {
        return later.first > entry.sequence && (entry.is_send ? later.second.recv : later.second.send) != nullptr;
      });
      look(entry.peer, entry.is_send ? ends.recv : ends.send, has_passed);
    } else {
      const int group = group_of(dump, entry);
      const auto& sequences = collectives_.at(group);
      const Members& posted = sequences.at(entry.sequence);
      for (const int rank : groups_[static_cast<size_t>(group)].ranks) {
        if (rank == dump.rank) continue;
        const auto theirs = posted.find(rank);
        const bool has_passed = std::any_of(sequences.upper_bound(entry.sequence), sequences.end(),
                                            [&](const auto& later) { return later.second.contains(rank); });
        look(rank, theirs == posted.end() ? nullptr : theirs->second, has_passed);
      }
    }
    return absent.empty() ? slow : absent;
  }

  FlightFault fault_of(int rank) const {
    const FlightDump* const dump = dump_of(rank);
    if (dump == nullptr) return FlightFault::kNoRecord;
    if (dump->process == ProcessState::kStopped) return FlightFault::kStopped;
    if (dump->ended) return FlightFault::kEnded;
    return dump->process == ProcessState::kDead ? FlightFault::kDead : FlightFault::kAbsent;
  }

  std::vector<FlightFinding> roots_of_waits() {
    std::map<int, Wait> waits;
    for (const FlightDump& dump : dumps_) {
      const FlightEntry* const entry = waits_in(dump);
      if (entry != nullptr) waits[dump.rank] = {&dump, entry, blockers_of(dump, *entry)};
    }
    std::set<int> roots;
    for (const auto& [rank, wait] : waits) {
      for (const int blocker : wait.blockers) {
        const auto at = waits.find(blocker);
        if (at == waits.end() || at->second.blockers.empty()) roots.insert(blocker);
      }
    }
    std::vector<FlightFinding> findings;
    for (const int root : roots) findings.push_back(root_finding(root, waits));
    std::ranges::stable_sort(findings, [](const FlightFinding& a, const FlightFinding& b) {
      const auto rank_of = [](const FlightFinding& f) {
        return std::tuple(f.fault, -static_cast<int64_t>(f.direct.size() + f.indirect.size()), f.since_ns);
      };
      return rank_of(a) < rank_of(b);
    });
    const bool blocked = std::ranges::any_of(waits, [](const auto& w) { return !w.second.blockers.empty(); });
    if (findings.empty() && blocked) findings.push_back(deadlock(waits));
    return findings;
  }

  FlightFinding root_finding(int root, const std::map<int, Wait>& waits) const {
    const Wait* first = nullptr;
    Ranks direct;
    for (const auto& [rank, wait] : waits) {
      if (std::ranges::find(wait.blockers, root) == wait.blockers.end()) continue;
      direct.push_back(rank);
      if (first == nullptr || since(wait) < since(*first)) first = &wait;
    }
    FlightFinding finding = about(*first->dump, *first->entry);
    finding.fault = fault_of(root);
    finding.culprits = {root};
    finding.direct = direct;
    finding.indirect = who_waits_for(direct, root, waits);
    finding.since_ns = since(*first);
    for (const int rank : direct) finding.waited_ns = std::max(finding.waited_ns, dump_of(rank)->waited_ns());
    finding.last = last_of(root);
    return finding;
  }

  static int64_t since(const Wait& wait) {
    return wait.dump->knows_waits && wait.dump->waits_since_ns != 0 ? wait.dump->waits_since_ns : wait.entry->posted_ns;
  }

  // Those that wait for one of `direct`, and so on.
  static Ranks who_waits_for(const Ranks& direct, int root, const std::map<int, Wait>& waits) {
    std::set<int> known(direct.begin(), direct.end());
    known.insert(root);
    Ranks more;
    for (bool grows = true; grows;) {
      grows = false;
      for (const auto& [rank, wait] : waits) {
        const auto waits_for_known = [&](int blocker) { return blocker != root && known.contains(blocker); };
        if (known.contains(rank) || std::ranges::none_of(wait.blockers, waits_for_known)) continue;
        known.insert(rank);
        more.push_back(rank);
        grows = true;
      }
    }
    std::ranges::sort(more);
    return more;
  }

  // Ranks that wait in a circle. One of them is where it should not be: it departs from its habit, or is almost alone
  // in its operation.
  FlightFinding deadlock(const std::map<int, Wait>& waits) const {
    std::map<int, Wait> departing;
    for (const auto& [rank, wait] : waits) {
      if (!wait.blockers.empty() && habit_of(wait.dump->entries, *wait.entry) == Habit::kDeparts)
        departing.emplace(rank, wait);
    }
    const auto& candidates = departing.empty() ? waits : departing;
    const int lonely = loneliest(candidates);
    const Wait* const culprit = lonely < 0 ? nullptr : &waits.at(lonely);
    FlightFinding finding;
    if (culprit == nullptr) {
      const Wait& any = waits.begin()->second;
      finding = about(*any.dump, *any.entry);
      finding.fault = FlightFault::kDeadlock;
      for (const auto& [rank, wait] : waits) finding.culprits.push_back(rank);
      finding.since_ns = since(any);
      return finding;
    }
    const int rank = culprit->dump->rank;
    finding = root_finding_or(rank, waits, *culprit);
    finding.fault = FlightFault::kMismatch;
    finding.seen = cat(signature_text(*culprit->entry), place_of(*culprit->dump, *culprit->entry));
    return finding;
  }

  FlightFinding root_finding_or(int rank, const std::map<int, Wait>& waits, const Wait& own) const {
    for (const auto& [other, wait] : waits) {
      if (std::ranges::find(wait.blockers, rank) == wait.blockers.end()) continue;
      FlightFinding finding = root_finding(rank, waits);
      finding.expected = cat(signature_text(*wait.entry), place_of(*wait.dump, *wait.entry));
      return finding;
    }
    FlightFinding finding = about(*own.dump, *own.entry);
    finding.culprits = {rank};
    return finding;
  }

  std::string place_of(const FlightDump& dump, const FlightEntry& entry) const {
    return entry.group < 0 ? "" : cat(" in group ", groups_[static_cast<size_t>(group_of(dump, entry))].name);
  }

  // The waiting rank whose operation the largest part of its members lacks; -1: a tie.
  static int loneliest(const std::map<int, Wait>& waits) {
    int found = -1;
    double most = -1;
    for (const auto& [rank, wait] : waits) {
      const double members = wait.entry->is_message ? 2.0 : static_cast<double>(group_size(wait));
      const double share = static_cast<double>(wait.blockers.size()) / std::max(members, 1.0);
      if (share < most) continue;
      found = share == most ? -1 : rank;
      most = share;
    }
    return found;
  }
  static size_t group_size(const Wait& wait) {
    return wait.dump->groups[static_cast<size_t>(wait.entry->group)].ranks.size();
  }

  std::string last_of(int rank) const {
    const FlightDump* const dump = dump_of(rank);
    if (dump == nullptr || dump->entries.empty()) return "";
    const FlightEntry& last = dump->entries.back();
    return cat(last.op, " ", last.sequence, place_of(*dump, last),
               last.caller.empty() ? "" : cat(" (", last.caller, ")"));
  }

  // Ranks that have left no record, and the last operation that others shared with one of them.
  FlightFinding without_record() const {
    FlightFinding finding;
    const FlightEntry* last = nullptr;
    for (const FlightDump& dump : dumps_) {
      for (const FlightEntry& entry : dump.entries) {
        if (entry.group < 0 || (last != nullptr && entry.posted_ns < last->posted_ns)) continue;
        const Ranks& members = groups_[static_cast<size_t>(group_of(dump, entry))].ranks;
        const auto is_missing = [&](int rank) { return std::ranges::find(missing_, rank) != missing_.end(); };
        if (std::ranges::none_of(members, is_missing)) continue;
        last = &entry;
        finding = about(dump, entry);
      }
    }
    finding.fault = FlightFault::kNoRecord;
    finding.culprits = missing_;
    return finding;
  }

  const std::vector<FlightDump>& dumps_;
  std::map<int, const FlightDump*> by_rank_;
  Ranks missing_;  // without a dump
  std::vector<FlightGroup> groups_;
  std::map<int, std::vector<int>> group_index_;            // by rank: from its own index
  std::map<int, std::map<int64_t, Members>> collectives_;  // by group and sequence
  std::map<Channel, std::map<int64_t, Ends>> messages_;
};

}  // namespace

std::vector<FlightFinding> diagnose_flight(const std::vector<FlightDump>& dumps, int world_size) {
  return Diagnosis(dumps, world_size).findings();
}

std::string fault_text(const FlightFinding& finding) {
  switch (finding.fault) {
    case FlightFault::kMismatch:
      return cat("is in ", finding.seen, ", not in ", finding.expected);
    case FlightFault::kDead:
      return "has died";
    case FlightFault::kStopped:
      return "is stopped (by a signal such as SIGSTOP, or a debugger)";
    case FlightFault::kNoRecord:
      return "has left no record";
    case FlightFault::kEnded:
      return "has ended its run";
    case FlightFault::kAbsent:
      return "has not come: it computes, or is stuck outside of communication";
    case FlightFault::kDeadlock:
      return "wait for each other";
  }
  return "";
}

std::string operation_text(const FlightFinding& finding) {
  if (finding.op.empty()) return "";
  return cat(finding.op, " ", finding.sequence, finding.group.empty() ? "" : cat(" in group ", finding.group, " "),
             finding.members);
}

std::string signature_text(const FlightEntry& entry) {
  return cat(entry.op, " of ", entry.shape, entry.dtype.empty() ? "" : " ", entry.dtype);
}

}  // namespace ms::core
