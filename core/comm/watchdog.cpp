#include "core/comm/watchdog.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>

#include "core/comm/communicator.h"
#include "core/comm/flight_diagnosis.h"
#include "core/comm/flight_recorder.h"
#include "core/error.h"

namespace ms::core {
namespace {

std::string rank_list(const std::vector<int>& ranks) { return cat(ranks.size() == 1 ? "rank " : "ranks ", ranks); }

std::string records_hint(const Endpoint& endpoint) {
  return cat("; the last operations of all ranks: msprof flight ", endpoint.flight()->folder().string());
}

std::string limit_text(const SilentWait& wait) {
  return wait.signal != 0 ? cat("and signal ", wait.signal, " has come")
                          : cat("the limit is ", wait.timeout_s, " s (--distributed-timeout-minutes)");
}

std::string plain_text(const SilentWait& wait) {
  return cat(wait.operation, " ", wait.sequence, " in group ", wait.group, " ", wait.members, ": ",
             rank_list(wait.silent), " silent for ", wait.waited_s, " s, ",
             wait.signal != 0 ? cat(limit_text(wait), ": a rank of the job has died")
                              : cat("the limit is ", wait.timeout_s,
                                    " s: it has died or is stuck; see its own log, or raise "
                                    "--distributed-timeout-minutes"),
             wait.number == 0 ? "; without flight records each rank reports whom it waits for itself" : "");
}

std::string waiters_text(const FlightFinding& finding) {
  std::string text;
  if (!finding.direct.empty()) {
    text += cat("; ", rank_list(finding.direct), finding.direct.size() == 1 ? " waits" : " wait", " for it");
  }
  if (!finding.indirect.empty()) text += cat(", and ", rank_list(finding.indirect), " for those");
  return text;
}

std::string silence_text(const Endpoint& endpoint, const SilentWait& wait, const FlightFinding& finding) {
  const bool one = finding.culprits.size() == 1;
  const std::string has = finding.fault == FlightFault::kDeadlock || one ? "" : "each ";
  std::string text = cat(operation_text(finding), ": ", rank_list(finding.culprits), " silent for ", wait.waited_s,
                         " s, ", limit_text(wait), ": ", one ? "it " : has, fault_text(finding));
  if (!finding.last.empty()) text += cat("; its last operation: ", finding.last);
  if (!finding.caller.empty()) text += cat("; missed in ", finding.caller);
  return text + waiters_text(finding) + records_hint(endpoint);
}

// The finding that explains why this rank waits: the first, if it is about what the wait has seen.
std::optional<FlightFinding> explanation(const Endpoint& endpoint) {
  std::vector<FlightFinding> findings =
      diagnose_flight(read_flight_folder(endpoint.flight()->folder()), endpoint.size());
  if (findings.empty() || findings.front().op.empty()) return std::nullopt;
  return std::move(findings.front());
}

bool all_have_come(const std::vector<FlightDump>& dumps, const FlightGroup& group, const FlightEntry& own) {
  size_t come = 0;
  for (const FlightDump& dump : dumps) {
    come += std::ranges::any_of(dump.entries, [&](const FlightEntry& entry) {
      return entry.group >= 0 && !entry.is_message && entry.sequence >= own.sequence &&
             dump.groups[static_cast<size_t>(entry.group)] == group;
    });
  }
  return come >= group.ranks.size();
}

// The records of all ranks, once all members of the operation have come to it.
std::vector<FlightDump> records_of_members(const Endpoint& endpoint, uint64_t number) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  constexpr int kMaxPauses = 50;
  std::vector<FlightDump> dumps;
  for (int pause = 0; pause <= kMaxPauses; ++pause) {
    dumps = read_flight_folder(endpoint.flight()->folder());
    const auto own = std::ranges::find(dumps, endpoint.rank(), &FlightDump::rank);
    if (own == dumps.end()) break;
    const auto entry = std::ranges::find(own->entries, static_cast<int64_t>(number), &FlightEntry::number);
    if (entry == own->entries.end() || entry->group < 0 || entry->is_message) break;
    if (all_have_come(dumps, own->groups[static_cast<size_t>(entry->group)], *entry)) break;
    std::this_thread::sleep_for(kPause);
  }
  return dumps;
}

}  // namespace

std::string explain_silence(const Endpoint& endpoint, const SilentWait& wait) {
  if (wait.number == 0 || endpoint.flight() == nullptr) return plain_text(wait);
  try {
    const auto finding = explanation(endpoint);
    return finding ? silence_text(endpoint, wait, *finding) : plain_text(wait) + records_hint(endpoint);
  } catch (const std::exception&) {
    return plain_text(wait) + records_hint(endpoint);
  }
}

std::string explain_mismatch(const Endpoint& endpoint, uint64_t number, const std::string& seen) {
  constexpr const char* kCure = ". The ranks have different configurations, or this is a bug: please report it";
  if (number == 0 || endpoint.flight() == nullptr) return seen + kCure;
  try {
    const std::vector<FlightFinding> findings = diagnose_flight(records_of_members(endpoint, number), endpoint.size());
    const auto mismatch = std::ranges::find(findings, FlightFault::kMismatch, &FlightFinding::fault);
    if (mismatch == findings.end()) return cat(seen, kCure, records_hint(endpoint));
    const bool one = mismatch->culprits.size() == 1;
    return cat(seen, ": ", rank_list(mismatch->culprits), one ? " departs: it " : " disagree: the first ",
               fault_text(*mismatch), waiters_text(*mismatch), kCure, records_hint(endpoint));
  } catch (const std::exception&) {
    return seen + kCure;
  }
}

}  // namespace ms::core
