// Runs the sections of the analysis and holds their results, for all output in report/, which computes nothing.
//
// A section is one row of the table in profile/sections.h: how it is computed, for each rank and for the job, which
// tables show it, and how it is written as JSON. A verb names sections; analyze() computes these and the ones they
// need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "profile/analysis/experts.h"
#include "profile/analysis/findings.h"
#include "profile/analysis/idle.h"
#include "profile/analysis/job_path.h"
#include "profile/analysis/launch.h"
#include "profile/analysis/mfu.h"
#include "profile/analysis/values.h"
#include "profile/clock_line.h"

namespace ms::profile {

class DataTable;
class JsonWriter;
struct Results;
struct RankResults;

struct AnalysisOptions {
  std::vector<int64_t> steps;  // analyse only these steps; empty: all
  AlignMode align = AlignMode::kAuto;
  int64_t consecutive_kernel_delay = kConsecutiveKernelDelay;  // ns
  int64_t queue_limit = kQueueLimit;
  ExpertOptions experts;
  int threads = 1;  // for sections and ranks; the results do not depend on it
};

// Input for one rank. Other sections of the same rank run at the same time: analyse_rank() must not change shared
// state.
struct RankInput {
  const RankTrace& trace;
  const DeviceView& view;
  const AnalysisOptions& options;
};

// All ranks together, after each of them.
struct JobInput {
  const std::vector<RankDevices>& ranks;
  const AnalysisOptions& options;
  core::ThreadPool& pool;
};

struct Section {
  const char* name;
  std::vector<const Section*> needs;  // computed first; shown only on request
  void (*analyse_rank)(const RankInput&, RankResults&) = nullptr;
  void (*analyse_job)(const JobInput&, Results&) = nullptr;
  // Shown in text and reports, and with top 0 in CSV; empty tables are omitted. top: rows of each long list; 0: all.
  std::vector<DataTable (*)(const Store&, const Results&, int64_t top)> tables = {};
  // Write keys and values into the open object of the rank, or of the result.
  void (*write_rank)(JsonWriter&, const RankTrace&, const RankResults&, int64_t top) = nullptr;
  void (*write_job)(JsonWriter&, const Results&) = nullptr;
  // An additional CSV file with its own columns.
  const char* csv_name = nullptr;
  std::string (*csv)(const Results&) = nullptr;
};
using Sections = std::vector<const Section*>;

struct RankResults : Values {
  int rank = 0;
  ClockLine clock{{}};
};

struct Results : Values {
  Sections sections;  // the requested sections
  std::vector<DeviceView> views;
  std::vector<RankResults> ranks;
  std::vector<std::string> warnings;  // for the user: "rank 3 has no device events: ..."
};

// Throws kNotFound for a step that no rank has.
Results analyze(const Store& store, const Sections& sections, const AnalysisOptions& options = {});

// The critical path across the ranks of the store. Throws as analyze().
JobPath analyze_job_path(const Store& store, const AnalysisOptions& options = {});

// FLOPs of each rank that has device events. Throws as analyze().
std::vector<Mfu> analyze_mfu(const Store& store, const AnalysisOptions& options = {});

}  // namespace ms::profile
