#include "tools/msprof/check.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/error.h"
#include "core/printable.h"
#include "profile/analysis/check.h"
#include "profile/report/job_tables.h"
#include "profile/sections.h"
#include "tools/msprof/input_flags.h"
#include "tools/msprof/output_flags.h"

namespace ms::tools::msprof {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using profile::Thresholds;

struct ThresholdFlag {
  const char* flag;
  const char* help;
  std::optional<double> Thresholds::*threshold;
};
constexpr ThresholdFlag kFlags[] = {
    {"--max-exposed-comm", "Maximum exposed communication / span of any rank: 20% or 0.2",
     &Thresholds::max_exposed_comm},
    {"--max-exposed-memory", "Maximum exposed copies / span of any rank", &Thresholds::max_exposed_memory},
    {"--max-idle", "Maximum idle time / span of any rank", &Thresholds::max_idle},
    {"--max-bubble", "Maximum pipeline bubble / step: 10%", &Thresholds::max_bubble},
    {"--max-slow-rank", "Maximum computing time of a rank / median over ranks: 1.05", &Thresholds::max_slow_rank},
    {"--min-overlap", "Minimum hidden communication / communication of any rank", &Thresholds::min_overlap},
    {"--min-parallel-efficiency", "Minimum POP parallel efficiency: 0.8", &Thresholds::min_parallel_efficiency},
    {"--max-step-ms", "Maximum mean step time of any rank, in ms", &Thresholds::max_step_ms},
    {"--max-slowdown", "Maximum mean step time / that of --against: 1.05", &Thresholds::max_slowdown}};

// "20%" and "0.2" are the same share.
std::optional<double> parse_share(const std::string& text, const char* flag) {
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  if (error != std::errc() || (!rest.empty() && rest != "%") || value < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                cat(flag, " ", core::shown_value(text), ": expected a number or a percentage, as in 20%"));
  }
  return rest == "%" ? value / 100 : value;
}

class CheckVerb final : public Verb {
 public:
  const char* name() const override { return "check"; }
  const char* help() const override { return "check thresholds, for CI: exit 10 if one is exceeded"; }
  void add(CLI::App& verb) override {
    verb.footer("Example: msprof check traces --max-exposed-comm 20% --max-slow-rank 1.05");
    input_.add(verb);
    output_.add_json(verb);
    verb.add_option("--step", output_.step, "Only these steps: 10-12; default all");
    for (size_t i = 0; i < std::size(kFlags); ++i) verb.add_option(kFlags[i].flag, texts_[i], kFlags[i].help);
    verb.add_option(
        "--against", against_,
        "Baseline for --max-slowdown: a trace or folder. Without any threshold, --max-slowdown 1.05 is checked");
  }

  int run(const std::vector<std::string>& arguments) override {
    const std::vector<std::string> paths = input_.paths();
    if (paths.empty()) return 0;
    Thresholds thresholds;
    for (size_t i = 0; i < std::size(kFlags); ++i) {
      thresholds.*kFlags[i].threshold = parse_share(texts_[i], kFlags[i].flag);
    }
    constexpr double kSlowdown = 1.05;
    const auto set = [](const std::string& text) { return !text.empty(); };
    if (!against_.empty() && std::none_of(std::begin(texts_), std::end(texts_), set)) {
      thresholds.max_slowdown = kSlowdown;
    }
    const profile::Store store = input_.load(paths);
    profile::AnalysisOptions options;
    options.steps = parse_list(output_.step, "--step");
    options.threads = input_.threads;
    const profile::Results results = profile::analyze(store, profile::sections::for_check(), options);
    std::optional<profile::Results> baseline;
    if (!against_.empty()) baseline = profile::analyze(input_.load({against_}), {&profile::sections::kSteps}, {});
    const std::vector<profile::Check> checks =
        profile::check_thresholds(results, baseline ? &*baseline : nullptr, thresholds);
    if (checks.empty())
      throw Error(ErrorCode::kInvalidArgument, "check: give at least one threshold, as in --max-exposed-comm 20%");
    print(output_.json ? profile::json_report(store, checks, output_.report("check", arguments))
                       : profile::check_table(checks).text());
    const bool holds =
        std::all_of(checks.begin(), checks.end(), [](const profile::Check& check) { return check.holds; });
    return holds ? input_.exit_code(store) : core::kExitAnswerIsNo;
  }

 private:
  InputFlags input_;
  OutputFlags output_;
  std::string texts_[std::size(kFlags)], against_;
};

}  // namespace

std::unique_ptr<Verb> check_verb() { return std::make_unique<CheckVerb>(); }

}  // namespace ms::tools::msprof
