#include "tools/msprof/section_verb.h"

#include "core/error.h"
#include "core/io/file.h"
#include "core/log.h"
#include "core/printable.h"
#include "profile/analysis/counter_tracks.h"
#include "profile/convert.h"

namespace ms::tools::msprof {

using core::cat;
using profile::Results;
using profile::Store;

void SectionVerb::add(CLI::App& verb) {
  input_.add(verb);
  output_.add(verb);
  output_.add_names(verb);
  verb.footer(cat("Example: msprof ", name_, " traces", *example_flags_ == '\0' ? "" : " ", example_flags_));
  add_flags(verb);
}

int SectionVerb::run(const std::vector<std::string>& arguments) {
  const std::vector<std::string> paths = input_.paths();
  if (paths.empty()) return 0;
  Store store = input_.load(paths);
  const Results results = profile::analyze(store, sections(), options());
  for (const std::string& warning : results.warnings) core::log_warning("profile", warning);
  std::vector<std::string> csv_paths;
  if (!output_.csv.empty()) csv_paths = profile::write_csv(store, results, output_.csv);
  if (output_.json) {
    print(profile::json_report(store, results, output_.report(name_, arguments)));
  } else if (!output_.csv.empty()) {
    print_paths(csv_paths);
  } else {
    print(text(store, results));
  }
  write_files(store, results);
  return input_.exit_code(store);
}

profile::AnalysisOptions SectionVerb::options() const {
  profile::AnalysisOptions options;
  options.steps = parse_list(output_.step, "--step");
  options.threads = input_.threads;
  return options;
}

std::string SectionVerb::text(const Store& store, const Results& results) const {
  return profile::tables_text(store, results, output_.top, output_.full_names);
}

void AlignFlag::add(CLI::App& verb) {
  verb.add_option("--align", align,
                  "Clock alignment of ranks: auto (default), none (use recorded times), offset or linear");
}

profile::AlignMode AlignFlag::mode() const {
  using profile::AlignMode;
  core::require_one_of("--align", align, {"auto", "none", "offset", "linear"});
  return align == "auto"     ? AlignMode::kAuto
         : align == "none"   ? AlignMode::kNone
         : align == "offset" ? AlignMode::kOffset
                             : AlignMode::kLinear;
}

void StacksFlag::add(CLI::App& verb) {
  verb.add_option("--collapsed", collapsed,
                  "Write call stacks with their device time in ns to this file, for flame graphs");
}

void StacksFlag::write(const Store& store, const Results& results) const {
  if (collapsed.empty()) return;
  std::string lines;
  for (size_t r = 0; r < store.ranks.size(); ++r) {
    const std::string rank = store.ranks.size() > 1 ? cat("rank ", store.ranks[r]->rank, ";") : "";
    for (const std::string& line : profile::collapsed_stacks(*store.ranks[r], results.views[r])) {
      lines += cat(rank, line, "\n");
    }
  }
  core::write_text_atomically(collapsed, lines);
}

void CountersFlag::add(CLI::App& verb) {
  verb.add_option(
      "--counters", counters,
      "Write the trace to this file as Chrome JSON with counter tracks of queue lengths and copy bandwidths");
}

void CountersFlag::write(Store& store, const Results& results) const {
  if (counters.empty()) return;
  for (size_t r = 0; r < store.ranks.size(); ++r) profile::add_counter_tracks(*store.ranks[r], results.views[r]);
  profile::convert_merged(store, counters, profile::export_format_of_path(counters));
}

void QueueLimitFlag::add(CLI::App& verb) {
  verb.add_option("--queue-limit", queue_limit,
                  "Report the time during which the queue has this length or more; default 1024");
}

void KernelDelayFlag::add(CLI::App& verb) {
  verb.add_option("--consecutive-kernel-delay-ns", consecutive_kernel_delay_ns,
                  "Shorter gaps, in ns, count as kernel_wait if the launch was in time; default 30000");
}

}  // namespace ms::tools::msprof
