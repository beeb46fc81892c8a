#include "profile/report/flight_tables.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "profile/report/table.h"

namespace ms::profile {
namespace {

using core::cat;
using core::FlightDump;
using core::FlightEntry;
using core::FlightFault;
using core::FlightFinding;
using core::FlightGroup;
using core::FlightState;
using core::ProcessState;
using Unit = DataTable::Unit;

constexpr const char* kReported = "reported";

std::string rank_list(const std::vector<int>& ranks) {
  constexpr size_t kShown = 20;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += cat(i == 0 ? "" : ", ", ranks[i]);
  return ranks.size() > kShown ? cat(text, ", .. (", ranks.size(), ")") : text;
}

std::string state_text(FlightState state) {
  switch (state) {
    case FlightState::kScheduled:
      return "scheduled";
    case FlightState::kStarted:
      return "started";
    case FlightState::kCompleted:
      return "completed";
  }
  return "";
}

std::string process_text(const FlightDump& dump) {
  if (dump.ended) return "ended";
  if (dump.failed) return "reported";  // an error
  switch (dump.process) {
    case ProcessState::kDead:
      return "died";
    case ProcessState::kStopped:
      return "stopped";
    case ProcessState::kRuns:
      return "runs";
    case ProcessState::kUnknown:
      return "-";
  }
  return "-";
}

std::string group_text(const FlightDump& dump, const FlightEntry& entry) {
  return entry.group < 0 ? "-" : dump.groups[static_cast<size_t>(entry.group)].name;
}

std::string peer_text(const FlightEntry& entry) {
  return entry.peer < 0 ? "" : cat(entry.is_send ? " to " : " from ", entry.peer);
}

// "allreduce 17 in tp"
std::string brief(const FlightDump& dump, const FlightEntry& entry) {
  return cat(entry.op, " ", entry.sequence, peer_text(entry), " in ", group_text(dump, entry));
}

const FlightEntry* last_completed(const FlightDump& dump) {
  const auto found =
      std::find_if(dump.entries.rbegin(), dump.entries.rend(), [](const auto& e) { return e.completed(); });
  return found == dump.entries.rend() ? nullptr : &*found;
}

// In which the rank waits: as it says, else its first operation that is not complete.
const FlightEntry* open_entry(const FlightDump& dump) {
  if (dump.knows_waits) return dump.waited();
  const auto found = std::ranges::find_if(dump.entries, [](const auto& e) { return !e.completed(); });
  return found == dump.entries.end() ? nullptr : &*found;
}

// What processes of the run have reported themselves.
DataTable reported_table(const FlightRecords& records) {
  DataTable table(kReported, "Reported", {{"text", Unit::kText}, {"file", Unit::kText}});
  for (const FlightReport& report : records.reported) table.add({report.text, report.source});
  return table;
}

DataTable rank_table(const FlightRecords& records) {
  DataTable table("ranks", "Ranks",
                  {{"rank", Unit::kCount},
                   {"process", Unit::kText},
                   {"operations", Unit::kCount},
                   {"last_completed", Unit::kText},
                   {"waits_in", Unit::kText},
                   {"waited", Unit::kTime, !std::ranges::any_of(records.dumps, &FlightDump::waited)},
                   {"doing", Unit::kText},
                   {"host", Unit::kText, true},
                   {"file", Unit::kText, true}});
  size_t next = 0;
  for (int rank = 0; rank < records.world_size; ++rank) {
    if (next >= records.dumps.size() || records.dumps[next].rank != rank) {
      table.add({int64_t{rank}, "no record", {}, {}, {}, {}, {}, {}, {}});
      continue;
    }
    const FlightDump& dump = records.dumps[next++];
    const FlightEntry *const completed = last_completed(dump), *const open = open_entry(dump);
    const auto cell = [](std::string text) { return text.empty() ? Cell() : Cell(std::move(text)); };
    const std::string doing = open != nullptr ? open->caller : dump.entries.empty() ? "" : dump.entries.back().caller;
    table.add(
        {int64_t{rank}, process_text(dump), static_cast<int64_t>(dump.entries.size()),
         cell(completed == nullptr ? "" : brief(dump, *completed)), cell(open == nullptr ? "" : brief(dump, *open)),
         dump.waited_ns() == 0 ? Cell() : Cell(Ns{dump.waited_ns()}), cell(doing), cell(dump.host), cell(dump.source)});
  }
  return table;
}

// Of each group: how far its members have come in its collectives.
DataTable group_table(const FlightRecords& records) {
  struct Progress {
    int64_t posted = -1, completed = -1;
  };
  std::vector<std::pair<FlightGroup, std::map<int, Progress>>> groups;
  for (const FlightDump& dump : records.dumps) {
    for (const FlightEntry& entry : dump.entries) {
      if (entry.is_message || entry.group < 0) continue;
      const FlightGroup& group = dump.groups[static_cast<size_t>(entry.group)];
      auto at = std::ranges::find_if(groups, [&](const auto& known) { return known.first == group; });
      if (at == groups.end()) at = groups.insert(groups.end(), {group, {}});
      Progress& progress = at->second[dump.rank];
      progress.posted = std::max(progress.posted, entry.sequence);
      if (entry.completed()) progress.completed = std::max(progress.completed, entry.sequence);
    }
  }
  DataTable table("groups", "Collectives of each group: number of the last one",
                  {{"group", Unit::kText},
                   {"members", Unit::kText},
                   {"all_completed", Unit::kCount},
                   {"first_rank_at", Unit::kCount},
                   {"last_rank_at", Unit::kCount},
                   {"behind", Unit::kText}});
  for (const auto& [group, members] : groups) {
    int64_t completed = INT64_MAX, least = INT64_MAX, most = -1;
    for (const auto& [rank, progress] : members) {
      completed = std::min(completed, progress.completed);
      least = std::min(least, progress.posted);
      most = std::max(most, progress.posted);
    }
    std::vector<int> behind;
    for (const int rank : group.ranks) {
      const auto at = members.find(rank);
      if (at == members.end() || at->second.posted < most) behind.push_back(rank);
    }
    table.add({group.name, cat(group.ranks), completed < 0 ? Cell() : Cell(completed), most, least,
               behind.empty() ? Cell() : Cell(rank_list(behind))});
  }
  return table;
}

// The operation of the first finding, as each member has it.
DataTable member_table(const FlightRecords& records, const FlightFinding& finding) {
  DataTable table("operation", cat("Members of ", core::operation_text(finding)),
                  {{"rank", Unit::kCount},
                   {"op", Unit::kText},
                   {"shape", Unit::kText},
                   {"dtype", Unit::kText},
                   {"state", Unit::kText},
                   {"doing", Unit::kText}});
  const FlightGroup group{finding.group, finding.members};
  for (const int rank : finding.members) {
    const auto dump = std::ranges::find(records.dumps, rank, &FlightDump::rank);
    if (dump == records.dumps.end()) {
      table.add({int64_t{rank}, "no record", {}, {}, {}, {}});
      continue;
    }
    const auto entry = std::ranges::find_if(dump->entries, [&](const FlightEntry& e) {
      return e.group >= 0 && e.is_message == finding.is_message && e.sequence == finding.sequence &&
             dump->groups[static_cast<size_t>(e.group)] == group;
    });
    if (entry == dump->entries.end()) {
      table.add({int64_t{rank}, "missing", {}, {}, {}, {}});
    } else {
      table.add({int64_t{rank}, cat(entry->op, peer_text(*entry)), entry->shape, entry->dtype, state_text(entry->state),
                 entry->caller.empty() ? Cell() : Cell(entry->caller)});
    }
  }
  return table;
}

DataTable operation_table(const FlightRecords& records, int64_t operations) {
  DataTable table("operations", cat("Last operations of each rank (at most ", operations, ")"),
                  {{"rank", Unit::kCount},
                   {"number", Unit::kCount},
                   {"group", Unit::kText},
                   {"op", Unit::kText},
                   {"sequence", Unit::kCount},
                   {"shape", Unit::kText},
                   {"dtype", Unit::kText},
                   {"state", Unit::kText},
                   {"took", Unit::kTime},
                   {"doing", Unit::kText},
                   {"bytes", Unit::kCount, true},
                   {"posted_ns", Unit::kCount, true}});
  for (const FlightDump& dump : records.dumps) {
    const size_t first = dump.entries.size() - std::min(dump.entries.size(), static_cast<size_t>(operations));
    for (size_t i = first; i < dump.entries.size(); ++i) {
      const FlightEntry& entry = dump.entries[i];
      const bool timed = entry.posted_ns > 0 && entry.completed_ns >= entry.posted_ns;
      table.add({int64_t{dump.rank}, entry.number, group_text(dump, entry), cat(entry.op, peer_text(entry)),
                 entry.sequence, entry.shape, entry.dtype, state_text(entry.state),
                 timed ? Cell(Ns{entry.completed_ns - entry.posted_ns}) : Cell(),
                 entry.caller.empty() ? Cell() : Cell(entry.caller), entry.bytes < 0 ? Cell() : Cell(entry.bytes),
                 entry.posted_ns});
    }
  }
  return table;
}

std::string seconds_text(int64_t ns) {
  return cat(fixed(static_cast<double>(ns) * 1e-9, ns < 10'000'000'000 ? 3 : 0), " s");
}

// Shorter waits are part of every run that goes on.
constexpr int64_t kLongWaitNs = 10'000'000'000;

bool is_hard(const FlightFinding& finding) { return finding.fault < FlightFault::kAbsent; }

// The longest wait of a run whose processes all run, if all its waits are short and its ranks agree.
std::optional<int64_t> short_waits(const FlightRecords& records, const std::vector<FlightFinding>& findings) {
  int64_t longest = 0;
  for (const FlightDump& dump : records.dumps) longest = std::max(longest, dump.waited_ns());
  const bool goes_on = records.lives() && longest < kLongWaitNs && std::ranges::none_of(findings, is_hard);
  return goes_on ? std::optional(longest) : std::nullopt;
}

// What the records say of a run in which nobody waits.
std::string nothing_found_text(const FlightRecords& records) {
  std::vector<int> here, absent;
  for (const FlightDump& dump : records.dumps) here.push_back(dump.rank);
  for (int rank = 0; rank < records.world_size; ++rank) {
    if (!std::ranges::binary_search(here, rank)) absent.push_back(rank);
  }
  if (!std::ranges::all_of(records.dumps, &FlightDump::ended))
    return "No rank waits for another one, and all agree on their operations.";
  const std::string ended =
      cat("The run has ended as it should: ", rank_list(here), here.size() == 1 ? " says" : " say", " so.");
  return absent.empty() ? ended : cat(ended, " Here is no record of ", rank_list(absent), ".");
}

std::string fault_word(FlightFault fault) {
  switch (fault) {
    case FlightFault::kMismatch:
      return "mismatch";
    case FlightFault::kDead:
      return "dead";
    case FlightFault::kStopped:
      return "stopped";
    case FlightFault::kNoRecord:
      return "no_record";
    case FlightFault::kEnded:
      return "ended";
    case FlightFault::kAbsent:
      return "absent";
    case FlightFault::kDeadlock:
      return "deadlock";
  }
  return "";
}

DataTable finding_table(const std::vector<FlightFinding>& findings) {
  DataTable table("findings", "Findings",
                  {{"fault", Unit::kText},
                   {"ranks", Unit::kText},
                   {"group", Unit::kText},
                   {"members", Unit::kText},
                   {"op", Unit::kText},
                   {"sequence", Unit::kCount},
                   {"expected", Unit::kText},
                   {"seen", Unit::kText},
                   {"waiting", Unit::kText},
                   {"waiting_for_those", Unit::kText},
                   {"doing", Unit::kText},
                   {"text", Unit::kText}});
  const auto cell = [](std::string text) { return text.empty() ? Cell() : Cell(std::move(text)); };
  const auto list = [](const std::vector<int>& ranks) { return ranks.empty() ? Cell() : Cell(cat(ranks)); };
  for (const FlightFinding& f : findings) {
    table.add({fault_word(f.fault), cat(f.culprits), cell(f.group), list(f.members), cell(f.op),
               f.op.empty() ? Cell() : Cell(f.sequence), cell(f.expected), cell(f.seen), list(f.direct),
               list(f.indirect), cell(f.caller), flight_sentence(f)});
  }
  return table;
}

}  // namespace

std::string flight_sentence(const FlightFinding& finding) {
  std::string text = cat(rank_list(finding.culprits), " ");
  std::string fault = core::fault_text(finding);
  if (finding.culprits.size() > 1 && finding.fault == FlightFault::kNoRecord) fault = "have left no record";
  if (finding.culprits.size() > 1 && finding.fault == FlightFault::kMismatch)
    text += "disagree, and nothing says which is wrong: the first ";
  text += fault;
  if (finding.op.empty()) return text;
  const bool one = finding.direct.size() == 1;
  if (finding.fault == FlightFault::kMismatch) {
    text += cat("; ", core::operation_text(finding));
  } else if (!finding.direct.empty()) {
    text +=
        cat("; ", rank_list(finding.direct), one ? " waits" : " wait", " for it in ", core::operation_text(finding));
    if (finding.waited_ns > 0) text += cat(", for ", seconds_text(finding.waited_ns), " so far");
  } else {
    text += cat("; in ", core::operation_text(finding));
  }
  if (!finding.caller.empty()) text += cat(" (", finding.caller, ")");
  if (!finding.indirect.empty())
    text += cat(", and ", rank_list(finding.indirect), finding.indirect.size() == 1 ? " waits" : " wait", " for those");
  if (!finding.last.empty()) text += cat("; its last operation: ", finding.last);
  return text;
}

namespace {

// The findings as sentences. What a watchdog has reported knows more than the records, which go on after it: beside it
// only a finding counts that needs no guess.
std::string cause_text(const FlightRecords& records, const std::vector<FlightFinding>& findings) {
  const bool reported = !records.reported.empty();
  std::string text, head = reported ? "Records: " : "Cause: ";
  for (const FlightFinding& finding : findings) {
    if (reported && !is_hard(finding)) continue;
    text += cat(std::exchange(head, "Also:  "), flight_sentence(finding), "\n");
  }
  return text;
}

}  // namespace

std::vector<DataTable> flight_tables(const FlightRecords& records, const std::vector<FlightFinding>& findings,
                                     int64_t operations) {
  std::vector<DataTable> tables = {finding_table(findings), reported_table(records), rank_table(records),
                                   group_table(records)};
  if (!findings.empty() && !findings.front().members.empty()) tables.push_back(member_table(records, findings.front()));
  if (operations > 0) tables.push_back(operation_table(records, operations));
  return tables;
}

std::string flight_text(const FlightRecords& records, const std::vector<FlightFinding>& findings, int64_t operations) {
  std::string text;
  for (const FlightReport& report : records.reported) text += cat("Reported: ", report.text, "\n");
  if (const auto longest = short_waits(records, findings); longest && *longest > 0) {
    text += cat("The run goes on: all its processes run, and no rank has waited longer than ", seconds_text(*longest),
                ".\n");
  } else if (findings.empty()) {
    text += cat(nothing_found_text(records), "\n");
  } else {
    text += cause_text(records, findings);
  }
  const std::vector<DataTable> tables = flight_tables(records, findings, operations);
  for (size_t i = 1; i < tables.size(); ++i) {  // the findings are the sentences
    if (!tables[i].empty() && tables[i].name() != kReported)
      text += cat("\n", tables[i].title(), "\n", tables[i].text());
  }
  return text;
}

}  // namespace ms::profile
