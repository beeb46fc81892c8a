#include "profile/ingest/load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/io/file.h"
#include "profile/ingest/append.h"
#include "profile/ingest/ascend.h"
#include "profile/ingest/byte_stream.h"
#include "profile/ingest/chrome_json.h"
#include "profile/ingest/inspect.h"
#include "profile/ingest/mstrace.h"
#include "profile/ingest/perfetto.h"
#include "profile/ingest/rank_of_path.h"
#include "profile/ingest/router_trace.h"
#include "profile/ingest/sniff.h"

namespace ms::profile {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

struct Input {
  std::string path;
  bool named = false;   // by the user, not found in a folder
  bool ascend = false;  // an Ascend profile folder
};

struct Loaded {
  std::unique_ptr<RankTrace> trace = std::make_unique<RankTrace>();
  FileInfo file;
  ImportStats stats;
  bool skipped = false;  // a JSON document that is not a trace
  std::optional<Error> error;
};

// Enough for the header of a table.
constexpr size_t kLookBytes = 4096;

Format format_of(const std::string& path) {
  ImportStats ignored;
  return sniff(PeekedStream(open_bytes(path, ignored, 1), kLookBytes).first());
}

// Traces lie directly in their folder, or in one folder per node or window. A deeper search means that the user named a
// home or root folder by mistake.
constexpr int kMaxFolderDepth = 4;
constexpr size_t kMaxFolderFiles = 100'000;

bool is_json_name(const std::string& path) {
  return path.ends_with(".json") || path.ends_with(".json.gz") || path.ends_with(".json.zst");
}

bool is_perfetto_name(std::string path) {
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (path.ends_with(packed)) path.resize(path.size() - packed.size());
  }
  return path.ends_with(".perfetto-trace") || path.ends_with(".pftrace");
}

void find_traces(const std::string& folder, const RankOfPath& rank_of, std::vector<Input>& out, ImportStats& stats) {
  std::vector<std::string> paths, profiles;
  std::error_code error;
  if (!ascend_output_folder(folder).empty()) {
    out.push_back({folder, false, true});
    return;
  }
  for (fs::recursive_directory_iterator it(folder, error), end; it != end && !error; it.increment(error)) {
    if (it->is_directory() && !it->is_symlink() && !ascend_output_folder(it->path().string()).empty()) {
      profiles.push_back(it->path().string());
      it.disable_recursion_pending();
      continue;
    }
    if (it.depth() == kMaxFolderDepth) it.disable_recursion_pending();
    if (it->is_regular_file() && !it->is_symlink()) paths.push_back(it->path().string());
    if (paths.size() > kMaxFolderFiles) {
      throw Error(ErrorCode::kInvalidArgument, cat(folder, ": more than ", kMaxFolderFiles,
                                                   " files in it; give the folder that contains the traces"));
    }
  }
  if (error) throw Error(ErrorCode::kIo, cat("read folder ", folder, ": ", error.message()));
  std::sort(paths.begin(), paths.end());
  std::sort(profiles.begin(), profiles.end());
  std::vector<std::string> texts, perfettos, routings;
  std::set<int> found_ranks;
  bool native = false;
  size_t found = profiles.size();
  for (const std::string& profile : profiles) out.push_back({profile, false, true});
  for (const std::string& path : paths) {
    const Format format = format_of(path);
    if (format == Format::kNative) {
      out.push_back({path, false, false});
      found_ranks.insert(rank_of(path).value_or(-1));
      native = true;
      ++found;
    } else if (format == Format::kRouterTrace) {
      routings.push_back(path);
    } else if (is_json_name(path)) {
      texts.push_back(path);  // also empty and damaged files: the loss of a rank must be reported
    } else if (is_perfetto_name(path)) {
      perfettos.push_back(path);
    } else {
      stats.add("skipped_files", path);
    }
  }
  // JSON that mstrain exported for other tools (rank_00000.json) lies beside the rank's native file, and JSON files
  // near Ascend profiles describe them; neither is a further trace.
  for (const std::vector<std::string>* form : {&texts, &perfettos}) {
    std::set<int> of_form;
    for (const std::string& path : *form) {
      const std::optional<int> rank = rank_of(path);
      if (!profiles.empty() || (rank ? found_ranks.count(*rank) != 0 : native)) {
        stats.add("skipped_files", path);
        continue;
      }
      if (rank) of_form.insert(*rank);
      out.push_back({path, false, false});
      ++found;
    }
    found_ranks.merge(of_form);
  }
  for (const std::string& path : routings) {
    native ? stats.add("skipped_files", path) : out.push_back({path, false, false});  // mstrain's traces hold the same
  }
  found += routings.size();
  if (found == 0) {
    throw Error(ErrorCode::kNotFound,
                cat(folder, ": no trace in this folder (rank_*.mstrace, *.json, *.json.gz, *.perfetto-trace)"));
  }
}

std::string all_of(ByteStream& stream) {
  std::string text;
  for (size_t got = 1, have = 0; got > 0; have += got) {
    text.resize(have + std::max<size_t>(size_t{1} << 20, have / 2));
    got = stream.read(text.data() + have, text.size() - have);
    if (got == 0) text.resize(have);
  }
  return text;
}

void read_file(const Input& input, int threads, Loaded& out) {
  const std::string& path = input.path;
  ImportStats packing;  // written by the decompressing thread
  std::error_code error;
  out.file.path = path;
  if (input.ascend) {
    out.file.format = "ascend";
    read_ascend_folder(path, threads, *out.trace, out.file, out.stats);
    out.file.truncated = out.stats.issues().count("truncated") != 0;
    return;
  }
  const uintmax_t bytes = fs::file_size(path, error);
  out.file.bytes = error ? -1 : static_cast<int64_t>(bytes);
  {
    PeekedStream stream(open_bytes(path, packing, threads), kLookBytes);
    const Format format = sniff(stream.first());
    out.file.format = format_name(format);
    switch (format) {
      case Format::kChromeJson:
        out.skipped = !read_chrome_json(stream, path, *out.trace, out.file, out.stats, {threads, 0});
        if (out.skipped && input.named) {
          throw Error(ErrorCode::kCorruptData, cat(path, ": has no \"traceEvents\": not a trace"));
        }
        break;
      case Format::kPerfetto:
        read_perfetto(stream, path, *out.trace, out.file, out.stats);
        break;
      case Format::kNative:
        read_mstrace(all_of(stream), path, *out.trace, out.file, out.stats);
        break;
      case Format::kSqlite:
        read_ascend_database(all_of(stream), path, *out.trace, out.file, out.stats);
        break;
      case Format::kKernelTable:
        read_ascend_kernels(stream, path, *out.trace, out.file, out.stats);
        break;
      case Format::kRouterTrace:
        out.skipped = !read_router_trace(stream, path, *out.trace, out.file, out.stats);
        if (out.skipped && input.named) throw Error(ErrorCode::kCorruptData, cat(path, ": metrics without experts"));
        break;
      case Format::kXPlane:
        throw Error(ErrorCode::kUnsupported,
                    cat(path,
                        ": is an XPlane profile (JAX, TensorFlow), which msprof does not read: give the .trace.json.gz "
                        "beside it, or record with jax.profiler.trace(DIR, create_perfetto_trace=True) and give "
                        "perfetto_trace.json.gz"));
      case Format::kUnknown:
        throw Error(ErrorCode::kCorruptData,
                    cat(path, ": is not a trace",
                        stream.first().empty() ? " (an empty file)" : " in a format that msprof reads"));
      default:
        throw Error(ErrorCode::kUnsupported, cat(path, ": is ", format_name(format), ", which msprof does not read"));
    }
  }
  out.stats.merge(packing);
  out.file.truncated = out.stats.issues().count("truncated") != 0;
  if (!out.skipped) inspect_trace(*out.trace, path, out.stats);
}

void read_all(const std::vector<Input>& inputs, std::vector<Loaded>& loaded, int threads) {
  std::atomic<size_t> next{0};
  const size_t all = static_cast<size_t>(std::max(threads, 1)), files = inputs.size();
  const auto of_one = static_cast<int>((all + files - 1) / files);
  const auto work = [&] {
    for (size_t i = next++; i < inputs.size(); i = next++) {
      try {
        read_file(inputs[i], of_one, loaded[i]);
      } catch (const Error& e) {
        loaded[i].error = e;
      } catch (const std::bad_alloc&) {
        loaded[i].error = Error(ErrorCode::kOutOfMemory, cat(inputs[i].path, ": does not fit into memory"));
      }
    }
  };
  std::vector<std::thread> pool;
  for (size_t t = 1; t < std::min(files, all); ++t) pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();
}

// "2024-05-01 13:04:05 UTC", or seconds if the clock is not unix time.
std::string time_text(const RankTrace& trace, int64_t ts) {
  constexpr int64_t kNsPerSecond = 1'000'000'000, kYear2000 = 946'684'800;
  const auto seconds = static_cast<std::time_t>((trace.base_unix_ns + ts) / kNsPerSecond);
  std::tm utc{};
  char text[40];
  if (seconds < kYear2000 || gmtime_r(&seconds, &utc) == nullptr ||
      std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc) == 0) {
    return cat(ts / kNsPerSecond, " s");
  }
  return text;
}

// Windows of one run follow each other within minutes; a longer gap probably means two runs.
void look_for_gap(const RankTrace& have, const std::string& path, const RankTrace& more, const std::string& more_path,
                  ImportStats& stats) {
  constexpr int64_t kFarNs = int64_t{3600} * 1'000'000'000;
  const bool later = more.first_ts >= have.last_end;
  const RankTrace &first = later ? have : more, &second = later ? more : have;
  if (second.first_ts - first.last_end < kFarNs) return;
  stats.add("far_apart",
            cat("rank ", have.rank, ": ", later ? path : more_path, " ends at ", time_text(first, first.last_end), ", ",
                later ? more_path : path, " begins at ", time_text(second, second.first_ts)));
}

constexpr int kListedRanks = 10;

// "0, 1, 4", or "0, 1, .. and 90 more" if there are more than `ranks` holds.
std::string list_ranks(const std::vector<int>& ranks, int64_t count) {
  std::string text;
  for (const int rank : ranks) text += cat(text.empty() ? "" : ", ", rank);
  return count > kListedRanks ? cat(text, " and ", count - kListedRanks, " more") : text;
}

void check_world(const Store& store, const LoadOptions& options, ImportStats& stats) {
  int world_size = -1;
  const RankTrace* first = nullptr;
  for (const auto& rank : store.ranks) {
    if (rank->world_size < 0) continue;
    if (first == nullptr) first = rank.get();
    if (world_size >= 0 && rank->world_size != world_size && !options.force) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("rank ", first->rank, " has world_size ", world_size, ", rank ", rank->rank, " has world_size ",
                      rank->world_size, ": give the traces of one job, or --force"));
    }
    world_size = rank->world_size;
  }
  std::set<int> present;
  for (const auto& rank : store.ranks) {
    if (rank->rank >= 0 && rank->rank < world_size) present.insert(rank->rank);
  }
  const int64_t missing = world_size - static_cast<int64_t>(present.size());
  if (world_size > 0 && missing > 0) {
    std::vector<int> absent;  // bounded, because world_size is untrusted
    for (int rank = 0; static_cast<int64_t>(absent.size()) < std::min<int64_t>(missing, kListedRanks); ++rank) {
      if (present.count(rank) == 0) absent.push_back(rank);
    }
    stats.add("missing_ranks", cat(missing == 1 ? "rank " : "ranks ", list_ranks(absent, missing), " of ", world_size),
              missing);
  }
  if (store.ranks.size() > 1) {
    for (const auto& rank : store.ranks) {
      if (rank->clocks.empty() && !rank->level.empty()) stats.add("no_clock", cat("rank ", rank->rank));
    }
  }
}

// Routing traces have no times that the others' could be compared with. Those that are found beside traces are skipped.
void separate_forms(const std::vector<Input>& inputs, std::vector<Loaded>& loaded) {
  const auto is_routing = [](const Loaded& one) { return one.file.format == format_name(Format::kRouterTrace); };
  const auto timed =
      std::ranges::find_if(loaded, [&](const Loaded& one) { return !one.error && !one.skipped && !is_routing(one); });
  if (timed == loaded.end()) return;
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (!is_routing(loaded[i]) || loaded[i].error) continue;
    loaded[i].skipped = true;
    if (!inputs[i].named) continue;
    throw Error(ErrorCode::kInvalidArgument,
                cat(inputs[i].path, " has no times, and ", timed->file.path, " has: give one of them"));
  }
}

}  // namespace

Store load(const std::vector<std::string>& paths, const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const RankOfPath rank_of(options.rank_from_name);
  Store store;
  std::vector<Input> inputs;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) throw Error(ErrorCode::kNotFound, cat(path, ": no such file or folder"));
    if (fs::is_directory(status)) {
      find_traces(path, rank_of, inputs, store.stats);
    } else {
      inputs.push_back({path, true, false});
    }
  }
  if (inputs.empty())
    throw Error(ErrorCode::kInvalidArgument, "no input: give trace files or folders that contain them");

  std::vector<Loaded> loaded(inputs.size());
  for (const Loaded& one : loaded) one.trace->keep_file_order = options.keep_file_order;
  read_all(inputs, loaded, options.threads);
  const auto failed = std::count_if(loaded.begin(), loaded.end(), [](const Loaded& l) { return l.error.has_value(); });
  if (failed > 0 && static_cast<size_t>(failed) == loaded.size()) throw *loaded[0].error;
  if (std::all_of(loaded.begin(), loaded.end(), [](const Loaded& l) { return l.error || l.skipped; })) {
    const auto found = std::find_if(loaded.begin(), loaded.end(), [](const Loaded& l) { return l.error.has_value(); });
    if (found != loaded.end()) throw *found->error;
    throw Error(ErrorCode::kNotFound, cat(paths[0], ": contains no trace among its ", loaded.size(), " JSON files"));
  }
  separate_forms(inputs, loaded);

  std::map<int, std::pair<std::unique_ptr<RankTrace>, std::string>> by_rank;
  for (Loaded& one : loaded) {
    if (one.error) {
      store.stats.add("unreadable_file", one.error->what());
      continue;
    }
    if (one.skipped) {
      store.stats.add("skipped_files", one.file.path);
      continue;
    }
    RankTrace& trace = *one.trace;
    const bool by_pattern = rank_of.has_pattern();
    if (trace.rank < 0 || by_pattern)
      trace.rank = rank_of(one.file.path).value_or(loaded.size() == 1 && !by_pattern ? 0 : -1);
    if (trace.rank < 0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          by_pattern
              ? cat(one.file.path, ": no rank in its name by --rank-from-name ", options.rank_from_name)
              : cat(one.file.path,
                    ": unknown rank: neither the file nor its name (rank_N) contains it; give --rank-from-name REGEX"));
    }
    trace.class_rules = options.class_rules;
    one.file.rank = trace.rank;
    store.stats.merge(one.stats);
    store.files.push_back(one.file);
    auto& [have, path] = by_rank[trace.rank];
    if (have == nullptr) {
      have = std::move(one.trace);
      path = one.file.path;
      continue;
    }
    const bool overlap = have->first_ts < trace.last_end && trace.first_ts < have->last_end;
    if (overlap && !options.force) {
      throw Error(ErrorCode::kInvalidArgument, cat(path, " and ", one.file.path, " both belong to rank ", trace.rank,
                                                   " and overlap in time: give one of them, or --force"));
    }
    look_for_gap(*have, path, trace, one.file.path, store.stats);
    append_trace(*have, trace);
    path = one.file.path;  // the rank's last file, for messages
  }
  std::set<int> present;
  for (auto& [rank, entry] : by_rank) {
    present.insert(rank);
    store.ranks.push_back(std::move(entry.first));
  }
  check_world(store, options, store.stats);
  for (const int64_t wanted : options.ranks) {
    if (present.count(static_cast<int>(wanted)) == 0) {
      const std::vector<int> first(
          present.begin(), std::next(present.begin(), std::min<std::ptrdiff_t>(std::ssize(present), kListedRanks)));
      throw Error(ErrorCode::kNotFound, cat("--rank ", wanted, ": not in the traces, which have ranks ",
                                            list_ranks(first, std::ssize(present))));
    }
  }
  if (!options.ranks.empty()) {
    std::erase_if(store.ranks, [&](const auto& trace) {
      return std::find(options.ranks.begin(), options.ranks.end(), trace->rank) == options.ranks.end();
    });
  }
  store.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return store;
}

}  // namespace ms::profile
