#include "tools/msprof/input_flags.h"

#include <algorithm>
#include <charconv>
#include <iostream>
#include <thread>

#include "core/error.h"
#include "core/expression.h"
#include "core/log.h"
#include "core/path_list.h"
#include "core/printable.h"
#include "profile/class_rules.h"
#include "profile/ingest/load.h"
#include "profile/slice.h"
#include "tools/command_line.h"

namespace ms::tools::msprof {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

// text: "100-2500.5", in microseconds.
void parse_time_range(const std::string& text, profile::SliceOptions& options) {
  double from = 0, to = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, from);
  const bool dash = first.ec == std::errc() && first.ptr < end && *first.ptr == '-';
  const auto second = dash ? std::from_chars(first.ptr + 1, end, to) : first;
  constexpr double kMax = 1e15;
  if (!dash || second.ec != std::errc() || second.ptr != end || from < 0 || to <= from || to > kMax) {
    throw Error(ErrorCode::kInvalidArgument, cat("--time-range ", core::shown_value(text),
                                                 ": expected A-B in microseconds since the first event of the trace"));
  }
  options.from_ns = static_cast<int64_t>(from * 1000);
  options.to_ns = static_cast<int64_t>(to * 1000);
}

}  // namespace

void InputFlags::add(CLI::App& verb) {
  threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  verb.add_option("input", inputs, "Trace files, folders of traces, or - for a list of paths on stdin, one per line")
      ->required();
  verb.add_option("--rank", rank, "Load only these ranks: 0-3,8; default all");
  verb.add_option("--threads", threads,
                  "Threads that read files and analyse ranks; default all cores. Results do not depend on it")
      ->check(positive_number());
  verb.add_option("--time-range", time_range, "Keep only events that overlap A-B, in us since the rank's first event");
  verb.add_option("--last-step", last_step,
                  "keep (default) or drop the last step of each rank; profilers often stop in it")
      ->check(CLI::IsMember({"keep", "drop"}));
  verb.add_option("--step-annotation", step_annotation,
                  "Regular expression for annotations that are steps: 'execute_(\\d+)'. Its first group is the number; "
                  "without a group steps count from 0. Default: ProfilerStep#N and iteration N");
  verb.add_flag("--strict", strict, "Exit 3 if reading lost any data");
  verb.add_option("--class-rules", class_rules,
                  "File with a JSON list of {\"name\": REGEX, \"class\": COMPUTATION|COMMUNICATION|MEMORY}, applied "
                  "before the built-in rules: for libraries that rename their kernels");
  verb.add_option(
      "--rank-from-name", rank_from_name,
      "Regular expression whose first group in the path is the file's rank, instead of the rank in the file");
  verb.add_flag("--force", force, "Accept files of one rank that overlap in time, and different world sizes");
}

namespace {

// Decides by the first two bytes: JSON, gzip, zstd, Perfetto, or bytes that cannot begin a path.
bool holds_trace(std::istream& in) {
  const int first = in.get(), second = in.peek();
  if (first == std::istream::traits_type::eof()) return false;
  in.unget();
  const auto binary = [](int c) { return c >= 0 && c < 0x20 && c != '\n' && c != '\r' && c != '\t'; };
  return first == '{' || first == '[' || binary(first) || (first == '(' && second == 0xb5) ||
         (first == '\n' && (binary(second) || second >= 0x80));
}

}  // namespace

std::vector<std::string> InputFlags::paths() const {
  if (std::find(inputs.begin(), inputs.end(), "-") != inputs.end() && holds_trace(std::cin)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "-: stdin contains a trace, but - means a list of paths, one per line; give /dev/stdin to read the trace");
  }
  return core::expand_path_list(inputs, std::cin);
}

profile::Store InputFlags::load(const std::vector<std::string>& paths, bool keep_file_order) const {
  profile::LoadOptions options;
  options.ranks = parse_list(rank, "--rank");
  options.threads = threads;
  options.force = force;
  options.rank_from_name = rank_from_name;
  options.keep_file_order = keep_file_order;
  if (!class_rules.empty()) options.class_rules = std::make_shared<profile::ClassRules>(class_rules);
  profile::Store store = profile::load(paths, options);
  if (!step_annotation.empty()) {
    const auto steps = std::make_shared<const std::regex>(core::user_expression(
        step_annotation, /*ignore_case=*/false, ErrorCode::kInvalidArgument, "--step-annotation"));
    for (const auto& trace : store.ranks) trace->step_annotation = steps;
  }
  for (const auto& [kind, issue] : store.stats.issues()) {
    if (kind == "overlapping_slices" && !log_all_issues) continue;  // nothing the user can act on; info counts it
    const std::string line = cat(kind, ": ", issue.count, " (", issue.example, "); ", issue.advice);
    issue.severity == profile::Severity::kInfo ? core::log_info("profile.import", line)
                                               : core::log_warning("profile.import", line);
  }
  if (!time_range.empty()) {
    profile::SliceOptions range;
    parse_time_range(time_range, range);
    profile::slice(store, range);
  }
  if (last_step == "drop") profile::drop_last_steps(store);
  return store;
}

int InputFlags::exit_code(const profile::Store& store) const {
  if (!strict || !store.stats.data_loss()) return 0;
  core::log_error("msprof", "--strict: data was lost, see the warnings above");
  return core::exit_code(ErrorCode::kCorruptData);
}

std::vector<int64_t> parse_list(const std::string& text, const char* flag) {
  std::vector<int64_t> out;
  const auto fail = [&] {
    throw Error(ErrorCode::kInvalidArgument,
                cat(flag, " ", core::shown_value(text), ": expected numbers and ranges, as in 0-3,8"));
  };
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    int64_t first = 0;
    auto [next, error] = std::from_chars(p, end, first);
    if (error != std::errc() || first < 0) fail();
    int64_t last = first;
    if (next < end && *next == '-') {
      const auto after = std::from_chars(next + 1, end, last);
      next = after.ptr;
      error = after.ec;
      if (error != std::errc() || last < first || last - first > 1'000'000) fail();
    }
    for (int64_t n = first; n <= last; ++n) out.push_back(n);
    if (next < end && *next != ',') fail();
    p = next + (next < end ? 1 : 0);
  }
  return out;
}

void keep_steps(const std::string& steps, profile::Store& store) {
  if (steps.empty()) return;
  profile::SliceOptions options;
  options.steps = parse_list(steps, "--step");
  profile::slice(store, options);
}

}  // namespace ms::tools::msprof
