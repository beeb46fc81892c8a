#include "tools/msprof/critical_path.h"

#include <optional>

#include "core/error.h"
#include "core/log.h"
#include "profile/analysis/critical_path.h"
#include "profile/analysis/hta_rounding.h"
#include "profile/convert.h"
#include "profile/report/path_tables.h"
#include "tools/msprof/hta.h"
#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

class CriticalPathVerb final : public Verb {
 public:
  const char* name() const override { return "critical-path"; }
  const char* help() const override {
    return "longest chain of dependent work: in a window of one rank, or across ranks with what-if answers";
  }
  void add(CLI::App& verb) override {
    verb.footer("Example: msprof critical-path rank_00000.mstrace --annotation ProfilerStep --instance 1");
    input_.add(verb);
    output_.add(verb);
    output_.add_top(verb);
    output_.add_names(verb);
    verb.add_option("--annotation", annotation_,
                    "Analyse one rank (the first) in the window of annotations whose names contain this; default "
                    "ProfilerStep, empty: the whole trace");
    verb.add_option("--instance", instance_, "Which of these annotations, by start, from 0, or a range A-B; default 0");
    verb.add_option("--overlay", overlay_, "Write the rank's trace to this file as Chrome JSON with the path marked");
    verb.add_option("--data-load", data_load_,
                    "Regular expression for names of data loading events; default PyTorch's loaders");
    add_compat_flag(verb, compat_);
  }

  int run(const std::vector<std::string>& arguments) override {
    const std::vector<std::string> paths = input_.paths();
    if (paths.empty()) return 0;
    const profile::Store store = input_.load(paths, /*keep_file_order=*/compat_ == "hta");
    const bool window = annotation_ || !compat_.empty() || !instance_.empty() || !data_load_.empty();
    if (store.ranks.size() > 1 && !overlay_.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "critical-path --overlay works for one rank: choose it with --rank");
    }
    if (store.ranks.size() > 1 && !window) return across_ranks(store, arguments);
    if (!output_.step.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "critical-path --step works across ranks only: for one rank choose a step with --instance I, from 0");
    }
    return of_one_rank(store, arguments);
  }

 private:
  int across_ranks(const profile::Store& store, const std::vector<std::string>& arguments) const {
    profile::AnalysisOptions options;
    options.steps = parse_list(output_.step, "--step");
    options.threads = input_.threads;
    const profile::JobPath path = profile::analyze_job_path(store, options);
    if (!path.problem.empty()) core::log_warning("profile", path.problem);
    print_tables(
        output_, [&] { return profile::json_report(store, path, output_.report("critical-path", arguments)); },
        [&](int64_t top) { return profile::path_tables(path, top); });
    return input_.exit_code(store);
  }

  int of_one_rank(const profile::Store& store, const std::vector<std::string>& arguments) const {
    profile::PathOptions options;
    options.annotation = annotation_.value_or("ProfilerStep");
    options.hta = compat_ == "hta";
    if (!data_load_.empty()) options.data_load = data_load_;
    const std::vector<int64_t> instances = parse_list(instance_, "--instance");
    if (!instances.empty()) {
      options.first = instances.front();
      options.last = instances.back();
    }
    if (options.hta) profile::round_as_hta(*store.ranks[0]);
    const profile::RankTrace& trace = *store.ranks[0];
    const profile::CriticalPath path = profile::critical_path(trace, profile::view_devices(trace), options);
    if (!path.success) core::log_warning("profile", cat("no critical path: ", path.problem));
    if (!overlay_.empty()) {
      std::vector<uint32_t> events;
      for (const profile::PathEvent& on_path : path.events) events.push_back(on_path.event);
      profile::convert_with_path(trace, events, overlay_, profile::export_format_of_path(overlay_));
    }
    print_tables(
        output_, [&] { return profile::json_report(store, path, output_.report("critical-path", arguments)); },
        [&](int64_t top) { return profile::path_tables(trace, path, top); });
    return input_.exit_code(store);
  }

  InputFlags input_;
  OutputFlags output_;
  std::optional<std::string> annotation_;
  std::string instance_, overlay_, data_load_, compat_;
};

}  // namespace

std::unique_ptr<Verb> critical_path_verb() { return std::make_unique<CriticalPathVerb>(); }

}  // namespace ms::tools::msprof
