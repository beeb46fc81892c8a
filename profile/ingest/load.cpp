#include "profile/ingest/load.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/io/file.h"
#include "profile/ingest/append.h"
#include "profile/ingest/mstrace.h"
#include "profile/ingest/sniff.h"

namespace ms::profile {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

struct Input {
  std::string path;
  bool named = false;  // by the user, not found in a folder
};

struct Loaded {
  std::unique_ptr<RankTrace> trace = std::make_unique<RankTrace>();
  FileInfo file;
  ImportStats stats;
  std::optional<Error> error;
};

Format format_of(const std::string& path) {
  const core::File file = core::File::open_read(path);
  std::string first(static_cast<size_t>(std::min<int64_t>(kSniffBytes, file.size_bytes())), '\0');
  file.pread(std::as_writable_bytes(std::span(first)), 0);
  return sniff(first);
}

// Traces lie flat in their folder, or in one a node or a window: whoever names a home or a root meant another folder.
constexpr int kMaxFolderDepth = 4;
constexpr size_t kMaxFolderFiles = 100'000;

void find_traces(const std::string& folder, std::vector<Input>& out, ImportStats& stats) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; it != end && !error; it.increment(error)) {
    if (it.depth() == kMaxFolderDepth) it.disable_recursion_pending();
    if (it->is_regular_file() && !it->is_symlink()) paths.push_back(it->path().string());
    if (paths.size() > kMaxFolderFiles) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat(folder, ": more than ", kMaxFolderFiles, " files in it; give the folder that holds the traces"));
    }
  }
  if (error) throw Error(ErrorCode::kIo, cat("read folder ", folder, ": ", error.message()));
  std::sort(paths.begin(), paths.end());
  size_t found = 0;
  for (const std::string& path : paths) {
    // In a folder what mstrain converted for other tools (rank_00000.json) lies beside the native file of the rank.
    if (format_of(path) == Format::kNative) {
      out.push_back({path, false});
      ++found;
    } else {
      stats.add("skipped_files", path);
    }
  }
  if (found == 0) {
    throw Error(ErrorCode::kNotFound,
                cat(folder, ": no native trace (rank_*.mstrace) in this folder; record one with mstrain --profile"));
  }
}

// rank-3, rank_00003, worker3: digits after the word; of the last such word in the file's name.
std::optional<int> rank_in_name(const std::string& path) {
  std::string name = fs::path(path).filename().string();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view word : {"rank", "worker"}) {
    size_t at = name.rfind(word);
    if (at == std::string::npos) continue;
    at += word.size();
    if (at < name.size() && (name[at] == '-' || name[at] == '_')) ++at;
    size_t end = at;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    if (end > at && end - at <= 9) return std::stoi(name.substr(at, end - at));
  }
  return std::nullopt;
}

void read_file(const std::string& path, Loaded& out) {
  const core::File file = core::File::open_read(path);
  out.file.path = path;
  out.file.bytes = file.size_bytes();
  std::string bytes(static_cast<size_t>(out.file.bytes), '\0');
  const Format format = format_of(path);
  out.file.format = format_name(format);
  if (format != Format::kNative) {
    if (format == Format::kUnknown) {
      throw Error(ErrorCode::kCorruptData,
                  cat(path, ": is no trace", bytes.empty() ? " (an empty file)" : " that msprof knows"));
    }
    throw Error(ErrorCode::kUnsupported,
                cat(path, ": is ", format_name(format), "; this msprof reads native traces (rank_*.mstrace)"));
  }
  file.pread(std::as_writable_bytes(std::span(bytes)), 0);
  read_mstrace(bytes, path, *out.trace, out.file, out.stats);
}

void read_all(const std::vector<Input>& inputs, std::vector<Loaded>& loaded, int threads) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < inputs.size(); i = next++) {
      try {
        read_file(inputs[i].path, loaded[i]);
      } catch (const Error& e) {
        loaded[i].error = e;
      } catch (const std::bad_alloc&) {
        loaded[i].error = Error(ErrorCode::kOutOfMemory, cat(inputs[i].path, ": does not fit into memory"));
      }
    }
  };
  std::vector<std::thread> pool;
  for (size_t t = 1; t < std::min(inputs.size(), static_cast<size_t>(std::max(threads, 1))); ++t)
    pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();
}

constexpr int kListedRanks = 10;

// "0, 1, 4", or "0, 1, .. and 90 more" where there are more than `ranks` lists.
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
                  cat("rank ", first->rank, " is of a job of ", world_size, " ranks, rank ", rank->rank, " of one of ",
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
    std::vector<int> absent;  // world_size may be a lie: no list is that long
    for (int rank = 0; static_cast<int64_t>(absent.size()) < std::min<int64_t>(missing, kListedRanks); ++rank) {
      if (present.count(rank) == 0) absent.push_back(rank);
    }
    stats.add("missing_ranks", cat("of ", world_size, " ranks: ", list_ranks(absent, missing)), missing);
  }
  if (store.ranks.size() > 1) {
    for (const auto& rank : store.ranks) {
      if (rank->clocks.empty()) stats.add("no_clock", cat("rank ", rank->rank));
    }
  }
}

}  // namespace

Store load(const std::vector<std::string>& paths, const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Store store;
  std::vector<Input> inputs;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) throw Error(ErrorCode::kNotFound, cat(path, ": no such file or folder"));
    if (fs::is_directory(status)) {
      find_traces(path, inputs, store.stats);
    } else {
      inputs.push_back({path, true});
    }
  }
  if (inputs.empty()) throw Error(ErrorCode::kInvalidArgument, "no input: give trace files or folders that hold them");

  std::vector<Loaded> loaded(inputs.size());
  read_all(inputs, loaded, options.threads);
  const auto failed = std::count_if(loaded.begin(), loaded.end(), [](const Loaded& l) { return l.error.has_value(); });
  if (static_cast<size_t>(failed) == loaded.size()) throw *loaded[0].error;

  std::map<int, std::pair<std::unique_ptr<RankTrace>, std::string>> by_rank;
  for (Loaded& one : loaded) {
    if (one.error) {
      store.stats.add("unreadable_file", one.error->what());
      continue;
    }
    RankTrace& trace = *one.trace;
    if (trace.rank < 0) trace.rank = rank_in_name(one.file.path).value_or(loaded.size() == 1 ? 0 : -1);
    if (trace.rank < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat(one.file.path, ": of which rank? Neither the file nor its name (rank_N) says"));
    }
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
      throw Error(ErrorCode::kInvalidArgument, cat(path, " and ", one.file.path, " are both of rank ", trace.rank,
                                                   " and overlap in time: give one of them, or --force"));
    }
    append_trace(*have, trace);
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
      throw Error(ErrorCode::kNotFound, cat("--rank ", wanted, ": not among the traces; they are of ranks ",
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
