#include "profile/analysis/blame.h"

#include <algorithm>

#include "core/error.h"

namespace ms::profile {
namespace {

using core::cat;

std::string why_slow(const CrossRank& cross, int rank) {
  for (const SlowRank& slow : cross.slow_ranks) {
    if (slow.rank != rank) continue;
    const auto ms = static_cast<double>(slow.more_ns / 1000) * 1e-3;
    switch (slow.cause) {
      case SlowCause::kComputing:
        return cat("it computes ", ms, " ms longer than the median rank",
                   slow.kernel.empty() ? "" : cat(", mostly in ", slow.kernel.substr(0, 60)));
      case SlowCause::kHostWait:
        return cat("its device waits ", ms, " ms longer for the host");
      case SlowCause::kOwnWaiting:
        return cat("it waits ", ms, " ms longer itself, for another group");
      case SlowCause::kUnknown:
        return "why is not in the traces";
    }
  }
  return "no rank is late more often than by chance";
}

}  // namespace

void blame_waiting(const CrossRank& cross, const std::optional<Pipeline>& pipeline, std::vector<Finding>& findings) {
  if (!cross.clocks.reliable) return;
  const auto exposed = std::find_if(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.kind == FindingKind::kExposedCommunication;
  });
  if (exposed == findings.end()) return;
  const double per_ns = exposed->share / static_cast<double>(exposed->lost_ns);
  int64_t left = exposed->lost_ns;
  std::vector<Finding> found;
  const auto take = [&](FindingKind kind, int64_t ns, int worst, int64_t worst_ns, std::string detail) {
    ns = std::min(ns, left);
    if (ns <= 0) return;
    left -= ns;
    found.push_back({kind, ns, per_ns * static_cast<double>(ns), worst, worst_ns, std::move(detail)});
  };
  int64_t waits = 0, messages = 0, blame = 0;
  int late = 0;
  for (const auto& [rank, w] : cross.by_rank) {
    waits += w.wait;
    messages += w.late_sender + w.late_receiver;
    if (w.blame <= blame) continue;
    blame = w.blame;
    late = rank;
  }
  take(FindingKind::kWaiting, waits, late, blame, why_slow(cross, late));
  if (pipeline && messages > 0) {
    int64_t longest = 0, sum = 0;
    int slowest = 0;
    for (const auto& [rank, row] : pipeline->by_rank) {
      sum += row.computing;
      if (row.computing <= longest) continue;
      longest = row.computing;
      slowest = rank;
    }
    const int64_t average = sum / static_cast<int64_t>(pipeline->by_rank.size());
    take(FindingKind::kPipelineBubble, messages, slowest, longest - average,
         pipeline->imbalance > pipeline->transfer_and_gaps
             ? cat("its stage computes ", static_cast<double>((longest - average) / 1000) * 1e-3,
                   " ms more than the average")
             : "the stages are even");
  }
  for (const SlowLink& slow : cross.slow_links) {
    const Link& link = cross.links.at({slow.source, slow.destination});
    const auto usual = static_cast<int64_t>(static_cast<double>(link.transfer) * slow.of_median);
    take(FindingKind::kSlowLink, 2 * (link.transfer - usual), slow.source, link.transfer - usual,
         cat(slow.source, " to ", slow.destination, " carries ",
             static_cast<double>(static_cast<int64_t>(slow.gb_per_s * 100)) / 100, " GB/s, ",
             static_cast<int64_t>(100 * slow.of_median), " % of the median link"));
  }
  if (found.empty()) return;
  exposed->share = per_ns * static_cast<double>(left);
  exposed->lost_ns = left;
  std::erase_if(findings,
                [](const Finding& finding) { return finding.lost_ns <= 0 || finding.kind == FindingKind::kImbalance; });
  findings.insert(findings.end(), found.begin(), found.end());
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.lost_ns > b.lost_ns; });
}

}  // namespace ms::profile
