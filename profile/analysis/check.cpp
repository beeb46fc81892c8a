#include "profile/analysis/check.h"

#include <algorithm>

#include "core/error.h"
#include "profile/analysis/breakdown.h"
#include "profile/analysis/pipeline.h"
#include "profile/analysis/pop.h"
#include "profile/analysis/steps.h"

namespace ms::profile {
namespace {

using core::cat;

double mean_step_ns(const RankResults& rank) {
  double sum = 0;
  const std::vector<StepRow>& rows = rank.at<RankSteps>().rows;
  for (const StepRow& row : rows) sum += static_cast<double>(row.host_ns);
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

double worst_step_ns(const Results& results) {
  double worst = 0;
  for (const RankResults& rank : results.ranks) worst = std::max(worst, mean_step_ns(rank));
  return worst;
}

class Checker {
 public:
  explicit Checker(const Results& results) : results_(results) {}

  // Checks the share of the worst rank: the largest, or the smallest if more is better.
  void share(const std::optional<double>& limit, const char* what, int64_t Breakdown::*part, int64_t Breakdown::*whole,
             bool at_least) {
    if (!limit) return;
    std::optional<double> worst;
    int where = 0;
    for (const RankResults& rank : results_.ranks) {
      const auto* times = rank.get<Breakdown>();
      if (times == nullptr || times->*whole == 0) continue;
      const double value = static_cast<double>(times->*part) / static_cast<double>(times->*whole);
      if (worst && (at_least ? value >= *worst : value <= *worst)) continue;
      worst = value;
      where = rank.rank;
    }
    if (!worst) refuse(what, "the traces contain no data for it");
    add(what, *worst, *limit, at_least, cat("rank ", where));
  }

  void add(const char* what, double seen, double limit, bool at_least, std::string where) {
    checks_.push_back({what, seen, limit, at_least ? seen >= limit : seen <= limit, std::move(where)});
  }
  [[noreturn]] static void refuse(const char* what, std::string_view why) {
    throw core::Error(core::ErrorCode::kInvalidArgument, cat("check of ", what, ": ", why));
  }
  std::vector<Check> take() { return std::move(checks_); }

 private:
  const Results& results_;
  std::vector<Check> checks_;
};

}  // namespace

std::vector<Check> check_thresholds(const Results& results, const Results* baseline, const Thresholds& t) {
  Checker checker(results);
  checker.share(t.max_exposed_comm, "exposed communication", &Breakdown::exposed_communication, &Breakdown::span,
                false);
  checker.share(t.max_exposed_memory, "exposed memory", &Breakdown::exposed_memory, &Breakdown::span, false);
  checker.share(t.max_idle, "idle", &Breakdown::idle, &Breakdown::span, false);
  checker.share(t.min_overlap, "overlap", &Breakdown::overlap, &Breakdown::communication, true);
  if (t.max_bubble) {
    const auto* pipeline = results.get<Pipeline>();
    if (pipeline == nullptr) Checker::refuse("bubble", "the traces contain no pipeline");
    checker.add("bubble", pipeline->bubble_ratio, *t.max_bubble, false, "pipeline");
  }
  if (t.max_slow_rank) {
    std::vector<std::pair<int64_t, int>> computing;
    for (const RankResults& rank : results.ranks) {
      if (const auto* times = rank.get<Breakdown>()) computing.emplace_back(times->computing, rank.rank);
    }
    if (computing.size() < 2) Checker::refuse("slow rank", "it needs traces of two ranks");
    std::sort(computing.begin(), computing.end());
    const auto median = static_cast<double>(computing[(computing.size() - 1) / 2].first);
    if (median == 0) Checker::refuse("slow rank", "the ranks have no computing");
    checker.add("slow rank", static_cast<double>(computing.back().first) / median, *t.max_slow_rank, false,
                cat("rank ", computing.back().second));
  }
  if (t.min_parallel_efficiency) {
    const auto* pop = results.get<Pop>();
    if (pop == nullptr) Checker::refuse("parallel efficiency", "the traces contain no computing");
    checker.add("parallel efficiency", pop->parallel_efficiency, *t.min_parallel_efficiency, true, "job");
  }
  const double step = worst_step_ns(results);
  if (t.max_step_ms) {
    if (step == 0) Checker::refuse("step", "the traces contain no steps");
    checker.add("step ms", step * 1e-6, *t.max_step_ms, false, "worst rank");
  }
  if (t.max_slowdown) {
    if (baseline == nullptr) Checker::refuse("slowdown", "it needs --against BASELINE");
    const double before = worst_step_ns(*baseline);
    if (step == 0 || before == 0) Checker::refuse("slowdown", "both runs must contain steps");
    checker.add("slowdown", step / before, *t.max_slowdown, false, "mean step");
  }
  return checker.take();
}

}  // namespace ms::profile
