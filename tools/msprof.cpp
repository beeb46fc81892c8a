// msprof: reads traces and says where the time went (profile/README.md).
//
//   msprof VERB INPUT... [flags]     msprof --help lists the verbs
//
// Wiring only: parse, load, analyse, print. Results go to stdout, what import met to the log.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/launcher.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/log.h"
#include "core/path_list.h"
#include "core/signals.h"
#include "profile/analysis/check.h"
#include "profile/analysis/counter_tracks.h"
#include "profile/analysis/hta_results.h"
#include "profile/analysis/hta_rounding.h"
#include "profile/analysis/operators.h"
#include "profile/analysis/results.h"
#include "profile/class_rules.h"
#include "profile/convert.h"
#include "profile/ingest/load.h"
#include "profile/query/sql.h"
#include "profile/record/launch.h"
#include "profile/report/csv_report.h"
#include "profile/report/hta_tables.h"
#include "profile/report/html_report.h"
#include "profile/report/job_tables.h"
#include "profile/report/json_report.h"
#include "profile/report/mfu_tables.h"
#include "profile/report/path_tables.h"
#include "profile/report/text_report.h"
#include "profile/slice.h"
#include "tools/command_line.h"
#include "tools/guard.h"

namespace {

using ms::core::cat;
using ms::core::Error;
using ms::core::ErrorCode;
using namespace ms::profile;

struct Flags {
  std::vector<std::string> inputs;
  std::optional<std::string> annotation;
  bool json = false, pretty = false, strict = false, force = false, per_step = false, merge = false;
  bool short_names = false, table = false;
  std::string csv, rank, step, output, format = "json.gz", style = "cluster", align = "auto", compat,
                                       last_step = "keep", level, rank_from_name, class_rules, collapsed, counters,
                                       overlay;
  std::string instance, data_load, where, columns, against, time_range;
  std::string max_exposed_comm, max_exposed_memory, max_idle, max_bubble, max_slow_rank, min_overlap,
      min_parallel_efficiency, max_step_ms, max_slowdown;
  double peak_tflops = 0, model_flops = 0;
  int64_t top = 10, consecutive_kernel_delay_ns = kConsecutiveKernelDelay, queue_limit = kQueueLimit;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
};

struct Verb {
  const char* name;
  const char* help;
  unsigned sections;
};
constexpr Verb kVerbs[] = {
    {"analyze", "the one page: where time is lost, largest first; with --json every section", kEverySection},
    {"info", "files, ranks, steps, categories, clocks, and what was lost", kFacts},
    {"breakdown", "computing, exposed communication, exposed memory and idle of each rank", kBreakdown | kKernelTypes},
    {"overlap", "what runs at once, and how much of communication computing hides", kBreakdown | kKernelTypes},
    {"kernels", "which kernels take the time", kKernels},
    {"ops", "operators of the host, their own time and the device time below them", kOperators},
    {"launch", "delays between launches and kernels", kLaunches},
    {"queue", "how full the queue of each stream was", kQueues},
    {"idle", "why each stream waits: for the host, for the kernel before, for something else", kIdle},
    {"memory", "copies by kind, allocations, peaks, and what was alive at them", kMemory},
    {"steps", "the step table: computing, communication, free, stage, bubble, preparing", kSteps},
    {"ranks", "who arrived last at collectives, who waited, which rank is slow and why", kRanks},
    {"links", "bandwidth of each link and of each kind of collective; slow links", kLinks},
    {"pipeline", "stages, bubbles, and what exceeds the ideal", kPipeline},
    {"pop", "POP efficiencies: load balance, serialization, transfer", kPop},
};

// "0-3,8" -> 0, 1, 2, 3, 8.
std::vector<int64_t> parse_list(const std::string& text, const char* flag) {
  std::vector<int64_t> out;
  const auto fail = [&] {
    throw Error(ErrorCode::kInvalidArgument, cat(flag, " ", text, ": expected numbers and ranges, as in 0-3,8"));
  };
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    int64_t first = 0;
    auto [next, error] = std::from_chars(p, end, first);
    if (error != std::errc() || first < 0) fail();
    int64_t last = first;
    if (next < end && *next == '-') {
      std::tie(next, error) = [&] {
        const auto result = std::from_chars(next + 1, end, last);
        return std::pair(result.ptr, result.ec);
      }();
      if (error != std::errc() || last < first || last - first > 1'000'000) fail();
    }
    for (int64_t n = first; n <= last; ++n) out.push_back(n);
    if (next < end && *next != ',') fail();
    p = next + (next < end ? 1 : 0);
  }
  return out;
}

AlignMode parse_align(const std::string& name) {
  constexpr std::pair<std::string_view, AlignMode> kModes[] = {{"auto", AlignMode::kAuto},
                                                               {"none", AlignMode::kNone},
                                                               {"offset", AlignMode::kOffset},
                                                               {"linear", AlignMode::kLinear}};
  for (const auto& [word, mode] : kModes) {
    if (name == word) return mode;
  }
  throw Error(ErrorCode::kInvalidArgument, cat("--align ", name, ": expected auto, none, offset or linear"));
}

using ms::tools::print;

// "100-2500.5" in microseconds.
void parse_time_range(const std::string& text, SliceOptions& options) {
  double from = 0, to = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, from);
  const bool dash = first.ec == std::errc() && first.ptr < end && *first.ptr == '-';
  const auto second = dash ? std::from_chars(first.ptr + 1, end, to) : first;
  constexpr double kMost = 1e15;
  if (!dash || second.ec != std::errc() || second.ptr != end || from < 0 || to <= from || to > kMost) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("--time-range ", text, ": expected A-B in microseconds since the first event of the trace"));
  }
  options.from_ns = static_cast<int64_t>(from * 1000);
  options.to_ns = static_cast<int64_t>(to * 1000);
}

Store load_inputs(const Flags& flags, const std::vector<std::string>& inputs, bool keep_file_order = false) {
  LoadOptions options;
  options.ranks = parse_list(flags.rank, "--rank");
  options.threads = flags.threads;
  options.force = flags.force;
  options.rank_from_name = flags.rank_from_name;
  options.keep_file_order = keep_file_order;
  if (!flags.class_rules.empty()) options.class_rules = std::make_shared<ClassRules>(flags.class_rules);
  Store store = load(inputs, options);
  for (const auto& [kind, issue] : store.stats.issues()) {
    const std::string line = cat(kind, ": ", issue.count, " (", issue.example, "); ", issue.advice);
    issue.severity == Severity::kInfo ? ms::core::log_info("profile.import", line)
                                      : ms::core::log_warning("profile.import", line);
  }
  if (!flags.time_range.empty()) {
    SliceOptions range;
    parse_time_range(flags.time_range, range);
    slice(store, range);
  }
  if (flags.last_step == "drop") drop_last_steps(store);
  return store;
}

// For verbs that show events and not what analyses make of steps.
void keep_steps(const Flags& flags, Store& store) {
  if (flags.step.empty()) return;
  SliceOptions options;
  options.steps = parse_list(flags.step, "--step");
  slice(store, options);
}

int finish(const Flags& flags, const Store& store) {
  if (!flags.strict || !store.stats.data_loss()) return 0;
  ms::core::log_error("msprof", "--strict: data was lost, see the warnings above");
  return ms::core::exit_code(ErrorCode::kCorruptData);
}

// breakdown and analyze, counted as another tool counts.
int run_hta(const Verb& verb, Flags flags, const std::vector<std::string>& arguments) {
  const bool keep_last_step = flags.last_step == "keep";
  flags.last_step = "keep";  // it is dropped as HTA drops it, not as load_inputs does
  const std::string name = verb.name;
  const bool page = name == "analyze";
  const std::vector<std::string> inputs = ms::core::expand_path_list(flags.inputs, std::cin);
  if (inputs.empty()) return 0;  // the link before has failed and said why
  const Flags unset;
  if (flags.per_step || !flags.step.empty() || !flags.collapsed.empty() || !flags.counters.empty() ||
      flags.align != unset.align || flags.queue_limit != unset.queue_limit || flags.top != unset.top) {
    throw Error(ErrorCode::kInvalidArgument,
                cat(name, " --compat hta: tables of whole traces; leave out --step, --per-step, --top, --align, ",
                    "--queue-limit, --collapsed and --counters"));
  }
  Store store = load_inputs(flags, inputs, /*keep_file_order=*/true);
  const HtaResults results = hta_results(store, keep_last_step, flags.consecutive_kernel_delay_ns);
  const std::vector<DataTable> tables = page ? hta_tables(results) : hta_breakdown_tables(results);
  const ReportOptions options{name, arguments, flags.top, flags.pretty};
  if (flags.json) {
    print(page ? json_report(store, results, options) : json_report(store, tables, options));
  } else if (!flags.csv.empty()) {
    for (const std::string& file : write_csv(tables, flags.csv)) print(cat(file, "\n"));
  } else {
    print(tables_text(tables));
  }
  return finish(flags, store);
}

AnalysisOptions analysis_options(const Flags& flags) {
  AnalysisOptions options;
  options.steps = parse_list(flags.step, "--step");
  options.align = parse_align(flags.align);
  options.consecutive_kernel_delay = flags.consecutive_kernel_delay_ns;
  options.queue_limit = flags.queue_limit;
  options.threads = flags.threads;
  return options;
}

// What a verb writes beside its tables.
void write_extras(const Flags& flags, Store& store) {
  const std::vector<int64_t> steps = parse_list(flags.step, "--step");
  if (!flags.collapsed.empty()) {
    std::string lines;
    for (const auto& trace : store.ranks) {
      const std::string rank = store.ranks.size() > 1 ? cat("rank ", trace->rank, ";") : "";
      for (const std::string& line : collapsed_stacks(*trace, view_devices(*trace, steps))) {
        lines += cat(rank, line, "\n");
      }
    }
    ms::core::write_text_atomically(flags.collapsed, lines);
  }
  if (!flags.counters.empty()) {
    for (const auto& trace : store.ranks) add_counter_tracks(*trace, view_devices(*trace, steps));
    convert_merged(store, flags.counters, export_format_of_path(flags.counters));
  }
}

int run_analysis(const Verb& verb, const Flags& flags, const std::vector<std::string>& arguments) {
  const std::vector<std::string> inputs = ms::core::expand_path_list(flags.inputs, std::cin);
  if (inputs.empty()) return 0;  // the link before has failed and said why
  Store store = load_inputs(flags, inputs);
  const bool tensorboard = flags.style == "tensorboard";
  const unsigned sections =
      tensorboard ? unsigned{kTensorboardSteps} : verb.sections | (flags.per_step ? kPerStep : 0u);
  const Results results = analyze(store, sections, analysis_options(flags));
  for (const std::string& warning : results.warnings) ms::core::log_warning("profile", warning);
  std::string csv_paths;
  if (!flags.csv.empty()) {
    for (const std::string& path : write_csv(store, results, flags.csv)) csv_paths += cat(path, "\n");
  }
  const std::string name = verb.name;
  if (flags.json) {
    print(json_report(store, results, {name, arguments, flags.top, flags.pretty}));
  } else if (!flags.csv.empty()) {
    print(csv_paths);
  } else if (name == "analyze") {
    print(analyze_text(store, results, flags.inputs));
  } else if (name == "steps" && !tensorboard) {
    print(steps_text(store, results));
  } else if (name == "info") {
    print(info_text(store, results));
  } else {
    print(tables_text(store, results, flags.top));
  }
  write_extras(flags, store);
  return finish(flags, store);
}

int run_diff(const Flags& flags, const std::vector<std::string>& arguments) {
  const std::vector<std::string> inputs = ms::core::expand_path_list(flags.inputs, std::cin);
  if (inputs.size() != 2) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("diff compares two inputs, BASE and TEST; ", inputs.size(), " were given"));
  }
  const Store base = load_inputs(flags, {inputs[0]}), test = load_inputs(flags, {inputs[1]});
  const Diff diff = diff_runs(base, test, parse_list(flags.step, "--step"), flags.short_names);
  if (flags.json) {
    print(json_report(base, diff, {"diff", arguments, flags.top, flags.pretty}));
  } else if (!flags.csv.empty()) {
    for (const std::string& path : write_csv(diff_tables(diff, 0), flags.csv)) print(cat(path, "\n"));
  } else {
    print(tables_text(diff_tables(diff, flags.top)));
  }
  return std::max(finish(flags, base), finish(flags, test));
}

// Of all ranks together.
int run_job_path(const Flags& flags, const Store& store, const std::vector<std::string>& arguments) {
  const JobPath path = analyze_job_path(store, analysis_options(flags));
  if (!path.problem.empty()) ms::core::log_warning("profile", path.problem);
  if (flags.json) {
    print(json_report(store, path, {"critical-path", arguments, flags.top, flags.pretty}));
  } else if (!flags.csv.empty()) {
    for (const std::string& file : write_csv(path_tables(path, 0), flags.csv)) print(cat(file, "\n"));
  } else {
    print(tables_text(path_tables(path, flags.top)));
  }
  return finish(flags, store);
}

int run_critical_path(const Flags& flags, const std::vector<std::string>& arguments) {
  const std::vector<std::string> inputs = ms::core::expand_path_list(flags.inputs, std::cin);
  if (inputs.empty()) return 0;  // the link before has failed and said why
  const Store store = load_inputs(flags, inputs, /*keep_file_order=*/flags.compat == "hta");
  const bool window = flags.annotation || !flags.compat.empty() || !flags.instance.empty() || !flags.data_load.empty();
  if (store.ranks.size() > 1 && !flags.overlay.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "critical-path --overlay: of one rank; choose it by --rank");
  }
  if (store.ranks.size() > 1 && !window) return run_job_path(flags, store, arguments);
  if (!flags.step.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "critical-path --step: across ranks only; of one rank, choose a step by --instance I, from 0");
  }
  PathOptions options;
  options.annotation = flags.annotation.value_or("ProfilerStep");
  options.hta = flags.compat == "hta";
  if (!flags.data_load.empty()) options.data_load = flags.data_load;
  const std::vector<int64_t> instances = parse_list(flags.instance, "--instance");
  if (!instances.empty()) {
    options.first = instances.front();
    options.last = instances.back();
  }
  if (options.hta) round_as_hta(*store.ranks[0]);
  const RankTrace& trace = *store.ranks[0];
  const CriticalPath path = critical_path(trace, view_devices(trace), options);
  if (!path.success) ms::core::log_warning("profile", cat("no critical path: ", path.problem));
  if (!flags.overlay.empty()) {
    std::vector<uint32_t> events;
    for (const PathEvent& on_path : path.events) events.push_back(on_path.event);
    convert_with_path(trace, events, flags.overlay, export_format_of_path(flags.overlay));
  }
  if (flags.json) {
    print(json_report(store, path, {"critical-path", arguments, flags.top, flags.pretty}));
  } else if (!flags.csv.empty()) {
    for (const std::string& file : write_csv(path_tables(trace, path, 0), flags.csv)) print(cat(file, "\n"));
  } else {
    print(tables_text(path_tables(trace, path, flags.top)));
  }
  return finish(flags, store);
}

int run_mfu(const Flags& flags, const std::vector<std::string>& arguments) {
  const std::vector<std::string> inputs = ms::core::expand_path_list(flags.inputs, std::cin);
  if (inputs.empty()) return 0;  // the link before has failed and said why
  const Store store = load_inputs(flags, inputs);
  const std::vector<Mfu> ranks = analyze_mfu(store, analysis_options(flags));
  const Peak peak{flags.peak_tflops, flags.model_flops};
  if (flags.json) {
    print(json_report(store, mfu_tables(ranks, peak, flags.top), {"mfu", arguments, flags.top, flags.pretty}));
  } else if (!flags.csv.empty()) {
    for (const std::string& file : write_csv(mfu_tables(ranks, peak, 0), flags.csv)) print(cat(file, "\n"));
  } else {
    print(tables_text(mfu_tables(ranks, peak, flags.top)));
  }
  return finish(flags, store);
}

int run_query(const Flags& flags, const std::vector<std::string>& arguments, const std::string& verb) {
  std::vector<std::string> inputs = flags.inputs;
  std::string sql;
  if (verb == "query") {
    sql = inputs.back();  // as in `msprof query traces "SELECT ..."`
    inputs.pop_back();
  } else {
    sql = events_query(flags.where, flags.columns);
  }
  inputs = ms::core::expand_path_list(inputs, std::cin);
  if (inputs.empty()) throw Error(ErrorCode::kInvalidArgument, cat(verb, ": give traces, and then the question"));
  Store store = load_inputs(flags, inputs);
  keep_steps(flags, store);
  const DataTable table = query(store, sql);
  if (flags.json) {
    print(json_report(store, table, {verb, arguments, flags.top, flags.pretty}));
  } else {
    print(flags.table ? table.text() : table.csv());
  }
  return finish(flags, store);
}

// "20%" and "0.2" are the same share.
std::optional<double> parse_share(const std::string& text, const char* flag) {
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  if (error != std::errc() || (!rest.empty() && rest != "%") || value < 0) {
    throw Error(ErrorCode::kInvalidArgument, cat(flag, " ", text, ": expected a number or a percentage, as in 20%"));
  }
  return rest == "%" ? value / 100 : value;
}

int run_check(const Flags& flags, const std::vector<std::string>& arguments) {
  const std::vector<std::string> inputs = ms::core::expand_path_list(flags.inputs, std::cin);
  if (inputs.empty()) return 0;  // the link before has failed and said why
  const Thresholds thresholds = {parse_share(flags.max_exposed_comm, "--max-exposed-comm"),
                                 parse_share(flags.max_exposed_memory, "--max-exposed-memory"),
                                 parse_share(flags.max_idle, "--max-idle"),
                                 parse_share(flags.max_bubble, "--max-bubble"),
                                 parse_share(flags.max_slow_rank, "--max-slow-rank"),
                                 parse_share(flags.min_overlap, "--min-overlap"),
                                 parse_share(flags.min_parallel_efficiency, "--min-parallel-efficiency"),
                                 parse_share(flags.max_step_ms, "--max-step-ms"),
                                 parse_share(flags.max_slowdown, "--max-slowdown")};
  const Store store = load_inputs(flags, inputs);
  const Results results = analyze(store, kCheckSections, analysis_options(flags));
  std::optional<Results> baseline;
  if (!flags.against.empty()) baseline = analyze(load_inputs(flags, {flags.against}), kSteps, {});
  const std::vector<Check> checks = check_thresholds(results, baseline ? &*baseline : nullptr, thresholds);
  if (checks.empty())
    throw Error(ErrorCode::kInvalidArgument, "check: give at least one threshold, as in --max-exposed-comm 20%");
  print(flags.json ? json_report(store, checks, {"check", arguments, flags.top, flags.pretty})
                   : check_table(checks).text());
  const bool holds = std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.holds; });
  return holds ? finish(flags, store) : ms::core::kExitAnswerIsNo;
}

int run_report(const Flags& flags) {
  const std::vector<std::string> inputs = ms::core::expand_path_list(flags.inputs, std::cin);
  if (inputs.empty()) return 0;  // the link before has failed and said why
  const Store store = load_inputs(flags, inputs);
  const Results results = analyze(store, kEverySection, analysis_options(flags));
  ms::core::write_text_atomically(flags.output, html_report(store, results, inputs[0]));
  print(cat(flags.output, "\n"));
  return finish(flags, store);
}

// Also slice, of which --step is the point.
int run_convert(const Flags& flags) {
  const std::vector<std::string> inputs = ms::core::expand_path_list(flags.inputs, std::cin);
  if (inputs.empty()) return 0;  // the link before has failed and said why
  Store store = load_inputs(flags, inputs);
  keep_steps(flags, store);
  const bool folder = flags.output.ends_with('/') || std::filesystem::is_directory(flags.output);
  std::vector<std::string> paths;
  if (folder && !flags.merge) {
    paths = convert_ranks(store, flags.output, parse_export_format(flags.format));
  } else if (folder) {
    throw Error(ErrorCode::kInvalidArgument, cat("--merge makes one file, and -o ", flags.output, " is a folder"));
  } else if (store.ranks.size() > 1 && !flags.merge) {
    throw Error(ErrorCode::kInvalidArgument, cat(store.ranks.size(), " ranks do not fit into ", flags.output,
                                                 ": give --merge (one file, one clock), --rank N, or a folder as -o"));
  } else {
    convert_merged(store, flags.output, export_format_of_path(flags.output));
    paths = {flags.output};
  }
  for (const std::string& path : paths) print(cat(path, "\n"));
  return finish(flags, store);
}

// Runs the command, and shows the page of analyze. The exit code is the program's, or that of analyze.
int run_record(Flags flags, const std::vector<std::string>& arguments) {
  const std::filesystem::path folder = flags.output.empty() ? "profile_dir" : flags.output;
  const auto traces = [&] {
    std::error_code absent;
    const std::filesystem::directory_iterator entries(folder, absent);
    return std::count_if(begin(entries), end(entries),
                         [](const auto& e) { return e.path().extension() == ".mstrace"; });
  };
  if (traces() > 0) {
    throw Error(ErrorCode::kInvalidArgument, cat(folder.string(), " holds traces already; give a new folder with -o"));
  }
  RecordOptions options{folder, parse_list(flags.rank, "--rank"), 0, -1, flags.level, flags.inputs};
  if (const std::vector<int64_t> steps = parse_list(flags.step, "--step"); !steps.empty()) {
    options.first_step = steps.front();
    options.last_step = steps.back();
  }
  const int code = run_recorded(recorded_command(options, ms::core::library_of_ours("libmsuite_record.so")));
  if (code != 0) ms::core::log_error("msprof", cat(flags.inputs.front(), " ended with exit code ", code));
  if (traces() == 0) {
    if (code != 0) return code;
    throw Error(
        ErrorCode::kNotFound,
        cat(folder.string(), " holds no trace: the program called no MPI_Init, or none of its ranks was asked for"));
  }
  flags.inputs = {folder.string()};
  flags.rank = flags.step = {};
  const int analyzed = run_analysis(kVerbs[0], flags, arguments);
  return code != 0 ? code : analyzed;
}

void add_input_flags(CLI::App& verb, Flags& flags) {
  verb.add_option("input", flags.inputs, "Trace files, folders of them, or - for a list of paths on stdin")->required();
  verb.add_option("--rank", flags.rank, "Only these ranks: 0-3,8");
  verb.add_option("--threads", flags.threads,
                  "Threads that read, several files at once or parts of one, and analyse ranks")
      ->check(CLI::PositiveNumber);
  verb.add_option("--time-range", flags.time_range, "Only these microseconds since the first event: A-B");
  verb.add_option("--last-step", flags.last_step,
                  "keep, or drop what each rank does from the start of its last step on")
      ->check(CLI::IsMember({"keep", "drop"}));
  verb.add_flag("--strict", flags.strict, "Exit 3 if any data was lost");
  verb.add_option("--class-rules", flags.class_rules,
                  "JSON list of {\"name\": REGEX, \"class\": COMPUTATION|COMMUNICATION|MEMORY}, before our own rules");
  verb.add_option("--rank-from-name", flags.rank_from_name,
                  "Of which rank a file is: the first group of this expression in its path, whatever the file says");
  verb.add_flag("--force", flags.force, "Accept files that contradict each other");
}

void add_json_flags(CLI::App& verb, Flags& flags) {
  verb.add_flag("--json", flags.json, "Print JSON, schema msprof/1");
  verb.add_flag("--pretty", flags.pretty, "JSON over several lines");
}

void add_output_flags(CLI::App& verb, Flags& flags) {
  add_json_flags(verb, flags);
  verb.add_option("--csv", flags.csv, "Write a CSV file for each section into this folder, and print the paths");
  verb.add_option("--step", flags.step, "Only these steps: 10-12");
}

void add_top_flag(CLI::App& verb, Flags& flags) {
  verb.add_option("--top", flags.top, "Rows of each long list; 0: all")->check(CLI::NonNegativeNumber);
}

void add_compat_flag(CLI::App& verb, Flags& flags) {
  verb.add_option("--compat", flags.compat, "hta: as Holistic Trace Analysis 0.6.1 counts")
      ->check(CLI::IsMember({"hta"}));
}

int run(const std::vector<std::string>& args) {
  CLI::App app("Reads traces of training runs and says where the time went", "msprof");
  app.require_subcommand(1);
  app.footer("Example: msprof analyze traces");
  Flags flags;
  std::vector<std::pair<CLI::App*, const Verb*>> verbs;
  for (const Verb& verb : kVerbs) {
    CLI::App* command = app.add_subcommand(verb.name, verb.help);
    add_input_flags(*command, flags);
    add_output_flags(*command, flags);
    const std::string name = verb.name;
    command->footer(cat("Example: msprof ", name, " traces", name == "breakdown" ? " --per-step" : ""));
    if (verb.sections & (kKernels | kOperators | kMemory | kRanks)) add_top_flag(*command, flags);
    if (verb.sections & (kRanks | kLinks | kPipeline | kPop)) {
      command->add_option("--align", flags.align, "Clocks of ranks: auto, none, offset or linear");
    }
    if (verb.sections & kOperators) {
      command->add_option("--collapsed", flags.collapsed,
                          "Write call stacks with the device time below them, for flame graphs");
    }
    if (verb.sections & (kQueues | kMemory)) {
      command->add_option("--counters", flags.counters,
                          "Write the trace as Chrome JSON with tracks of queue lengths and copy bandwidths");
    }
    if (verb.sections & kIdle) {
      command->add_option("--consecutive-kernel-delay-ns", flags.consecutive_kernel_delay_ns,
                          "Shorter gaps behind a launch in time are kernel_wait");
    }
    if (verb.sections & kQueues) {
      command->add_option("--queue-limit", flags.queue_limit, "Report the time at or above this length");
    }
    if (name == "breakdown") {
      command->add_flag("--per-step", flags.per_step, "A row for each step");
    }
    if (name == "breakdown" || name == "analyze") add_compat_flag(*command, flags);
    if (name == "steps") {
      command->add_option("--style", flags.style, "cluster (Ascend's columns) or tensorboard (time by role)")
          ->check(CLI::IsMember({"cluster", "tensorboard"}));
    }
    verbs.emplace_back(command, &verb);
  }
  CLI::App* diff = app.add_subcommand("diff", "two runs side by side: what was added, removed, or takes longer");
  diff->footer("Example: msprof diff before after --short-names");
  add_input_flags(*diff, flags);
  add_output_flags(*diff, flags);
  add_top_flag(*diff, flags);
  diff->add_flag("--short-names", flags.short_names, "Names without template arguments and parameter lists");
  CLI::App* path = app.add_subcommand(
      "critical-path", "the longest chain of dependent work: in a window of one rank, or across ranks with what-if");
  path->footer("Example: msprof critical-path rank_00000.mstrace --annotation ProfilerStep --instance 1");
  add_input_flags(*path, flags);
  add_output_flags(*path, flags);
  add_top_flag(*path, flags);
  path->add_option(
      "--annotation", flags.annotation,
      "Of one rank (the first): part of the name of the window's annotation, ProfilerStep; empty: everything");
  path->add_option("--instance", flags.instance, "Which of them by start, from 0, or a range A-B");
  path->add_option("--overlay", flags.overlay, "Write the trace of the rank as Chrome JSON with the path marked in it");
  path->add_option("--data-load", flags.data_load, "Regular expression for the names of data loading");
  add_compat_flag(*path, flags);
  CLI::App* utilisation = app.add_subcommand("mfu", "FLOP/s, share of the peak, FLOPs per byte; which time they cover");
  utilisation->footer("Example: msprof mfu traces --peak-tflops 1.2");
  add_input_flags(*utilisation, flags);
  add_output_flags(*utilisation, flags);
  add_top_flag(*utilisation, flags);
  utilisation->add_option("--peak-tflops", flags.peak_tflops, "Peak of one rank's device, for shares of it")
      ->check(CLI::PositiveNumber);
  utilisation
      ->add_option("--model-flops", flags.model_flops,
                   "FLOPs that the model needs for a step, all ranks together: MFU beside HFU")
      ->check(CLI::PositiveNumber);
  CLI::App* question =
      app.add_subcommand("query", "rows in answer to SQL: query TRACES \"SELECT name, sum(dur) FROM events ...\"");
  question->footer(
      "Example: msprof query traces \"SELECT name, sum(dur) FROM events WHERE class = 'COMPUTATION' GROUP BY 1\"");
  CLI::App* events = app.add_subcommand("events", "events as CSV for other tools");
  events->footer("Example: msprof events traces --where 'cat=kernel,name~gemm' --columns rank,name,ts,dur");
  for (CLI::App* verb : {question, events}) {
    add_input_flags(*verb, flags);
    verb->add_option("--step", flags.step, "Only these steps: 10-12");
    add_json_flags(*verb, flags);
    verb->add_flag("--table", flags.table, "Print a table for people, not CSV");
  }
  events->add_option("--where", flags.where, "Conditions: cat=kernel,name~nccl,dur>1000");
  events->add_option("--columns", flags.columns, "Which of them: rank,name,ts,dur (profile/query/sql.h lists all)");
  CLI::App* report = app.add_subcommand("report", "one HTML file with everything, to open from disk");
  report->footer("Example: msprof report traces -o report.html");
  add_input_flags(*report, flags);
  report->add_option("-o,--output", flags.output, "report.html")->required();
  report->add_option("--step", flags.step, "Only these steps: 10-12");
  CLI::App* check = app.add_subcommand("check", "thresholds for pipelines: exit 10 when one is broken");
  check->footer("Example: msprof check traces --max-exposed-comm 20% --max-slow-rank 1.05");
  add_input_flags(*check, flags);
  add_json_flags(*check, flags);
  check->add_option("--step", flags.step, "Only these steps: 10-12");
  check->add_option("--max-exposed-comm", flags.max_exposed_comm, "Exposed communication of the span, worst rank: 20%");
  check->add_option("--max-exposed-memory", flags.max_exposed_memory, "Exposed copies of the span, worst rank");
  check->add_option("--max-idle", flags.max_idle, "Idle time of the span, worst rank");
  check->add_option("--max-bubble", flags.max_bubble, "Bubble of the pipeline: 10%");
  check->add_option("--max-slow-rank", flags.max_slow_rank, "Longest computing of a rank by the median's: 1.05");
  check->add_option("--min-overlap", flags.min_overlap, "Hidden communication of all of it, worst rank");
  check->add_option("--min-parallel-efficiency", flags.min_parallel_efficiency, "POP's: 0.8");
  check->add_option("--max-step-ms", flags.max_step_ms, "Mean step of the worst rank, in ms");
  check->add_option("--max-slowdown", flags.max_slowdown, "Mean step by that of --against: 1.05");
  check->add_option("--against", flags.against, "A trace or folder to compare with");
  CLI::App* slice = app.add_subcommand("slice", "the given steps, ranks or times as a trace that opens everywhere");
  slice->footer("Example: msprof slice traces --step 12 --merge -o step12.json.gz");
  CLI::App* convert = app.add_subcommand(
      "convert",
      "write Kineto-compatible Chrome JSON (TensorBoard, HTA), Perfetto's format, or our native format back");
  convert->footer("Example: msprof convert traces --merge -o all.perfetto-trace");
  for (CLI::App* verb : {slice, convert}) {
    add_input_flags(*verb, flags);
    verb->add_option("--step", flags.step, "Only these steps: 10-12");
    verb->add_option(
            "-o,--output", flags.output,
            "OUT.json, OUT.perfetto-trace or OUT.pftrace (each also with .gz or .zst), OUT.mstrace, or a folder")
        ->required();
    verb->add_flag("--merge", flags.merge, "All ranks in one file, on one clock");
    verb->add_option("--format", flags.format,
                     "In a folder: json or perfetto-trace, each also with .gz or .zst, or mstrace");
  }
  CLI::App* record = app.add_subcommand(
      "record", "run a program and record it: mstrain by its --profile flags, any other MPI program by its MPI calls");
  record->footer("Example: msprof record -o traces -- mpirun -n 4 ./solver input.txt");
  record->add_option("command", flags.inputs, "The program as you would start it, behind --")->required();
  record->add_option("-o,--output", flags.output, "Folder of the traces: profile_dir");
  record->add_option("--rank", flags.rank, "Only these ranks: 0-3,8");
  record->add_option("--step", flags.step, "Of mstrain: only these iterations: 10-12");
  record->add_option("--level", flags.level, "level0, level1 (MPI calls by name), or level2 of mstrain")
      ->check(CLI::IsMember({"level0", "level1", "level2"}));
  add_json_flags(*record, flags);

  if (!ms::tools::parse(app, args)) return 0;
  if (record->parsed()) return run_record(flags, args);
  if (diff->parsed()) return run_diff(flags, args);
  if (path->parsed()) return run_critical_path(flags, args);
  if (utilisation->parsed()) return run_mfu(flags, args);
  if (question->parsed()) return run_query(flags, args, "query");
  if (events->parsed()) return run_query(flags, args, "events");
  if (report->parsed()) return run_report(flags);
  if (check->parsed()) return run_check(flags, args);
  if (slice->parsed() || convert->parsed()) return run_convert(flags);
  const auto chosen = std::find_if(verbs.begin(), verbs.end(), [](const auto& v) { return v.first->parsed(); });
  if (!flags.compat.empty()) return run_hta(*chosen->second, flags, args);
  return run_analysis(*chosen->second, flags, args);
}

}  // namespace

int main(int argc, char** argv) {
  ms::core::install_termination_handlers();
  return ms::tools::run_guarded("msprof", [&] { return run(ms::tools::arguments(argc, argv)); });
}
