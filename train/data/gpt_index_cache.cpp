// GptIndices::build_or_load: the cache of the three indices on disk.

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/log.h"
#include "kernels/checksum.h"
#include "train/data/detail/mapped_file.h"
#include "train/data/detail/npy.h"
#include "train/data/gpt_dataset.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

constexpr int64_t kMaxDescriptionBytes = 1 << 16;
constexpr std::array<const char*, 3> kNames = {"document_index", "sample_index", "shuffle_index"};
constexpr std::array<int64_t, 3> kColumns = {1, 2, 1};

// Everything the indices depend on: not the tokens, only their lengths, which the .idx holds.
json describe_inputs(const IndexedDataset& dataset, const GptIndexRequest& request) {
  return {{"class", "GPTDataset"},
          {"version", 1},
          {"idx_xxh3", core::hex16(dataset.idx_hash())},
          {"num_sequences", dataset.num_sequences()},
          {"num_tokens", dataset.num_tokens()},
          {"begin", request.begin},
          {"end", request.end},
          {"num_samples", request.num_samples},
          {"sequence_length", request.seq_length},
          {"random_seed", request.seed},
          {"split", request.split_name}};
}

struct CachePaths {
  CachePaths(const std::string& dir, const json& inputs, const std::string& split) {
    const std::string text = inputs.dump();
    stem = cat(dir, "/", core::hex16(kernels::xxh3(text.data(), text.size())), "-GPTDataset-", split, "-");
  }
  std::string description() const { return stem + "description.txt"; }
  std::string index(size_t which) const { return cat(stem, kNames[which], ".npy"); }
  std::string stem;
};

// One mapped .npy file; data follows the header.
struct MappedIndex {
  MappedIndex(const std::string& path, int64_t elements, int64_t columns) : file(path) {
    const std::string header = detail::npy_header(elements / columns, columns);
    const auto bytes = file.bytes();
    if (bytes.size() != header.size() + static_cast<size_t>(elements) * 8 ||
        std::memcmp(bytes.data(), header.data(), header.size()) != 0) {
      throw Error(ErrorCode::kCorruptData, cat(path, " is not the int64 array of its description"));
    }
    data = {reinterpret_cast<const int64_t*>(bytes.data() + header.size()), static_cast<size_t>(elements)};
  }
  detail::MappedFile file;
  std::span<const int64_t> data;
};

using MappedIndices = std::array<std::unique_ptr<MappedIndex>, 3>;

// nullptr if there is no usable cache.
std::shared_ptr<const MappedIndices> load(const CachePaths& paths, const json& inputs) {
  std::error_code ignored;
  if (!std::filesystem::exists(paths.description(), ignored)) return nullptr;
  try {
    const json description =
        core::parse_json(core::read_text(paths.description(), kMaxDescriptionBytes), paths.description());
    if (description.at("inputs") != inputs) {
      throw Error(ErrorCode::kCorruptData, cat(paths.description(), " describes other inputs"));
    }
    auto mapped = std::make_shared<MappedIndices>();
    for (size_t i = 0; i < kNames.size(); ++i) {
      const json& file = description.at("files").at(kNames[i]);
      const int64_t elements = core::json_integer(file, "elements", paths.description());
      if (elements < 0 || elements > INT64_MAX / 16 || elements % kColumns[i] != 0) {
        throw Error(ErrorCode::kCorruptData, cat(paths.description(), ": ", elements, " elements"));
      }
      (*mapped)[i] = std::make_unique<MappedIndex>(paths.index(i), elements, kColumns[i]);
      const auto data = (*mapped)[i]->data;
      if (core::hex16(kernels::xxh3(data.data(), data.size_bytes())) != file.at("xxh3").get<std::string>()) {
        throw Error(ErrorCode::kCorruptData, cat(paths.index(i), " differs from its checksum"));
      }
    }
    return mapped;
  } catch (const json::exception& e) {
    core::log_warning("data.cache", cat("not usable, built again: ", paths.description(), ": ", e.what()));
  } catch (const Error& e) {
    core::log_warning("data.cache", cat("not usable, built again: ", e.what()));
  }
  return nullptr;
}

// A name beside `path` that differs between threads, processes and (by the time) hosts, because any number of ranks may
// write the same cache at once.
std::string temporary_name(const std::string& path) {
  static std::atomic<int> counter{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return cat(path, ".tmp-", ::getpid(), "-", ++counter, "-", now);
}

// Calls write(temporary path), then renames it to `path`.
template <class Write>
void appear_whole(const std::string& path, Write write) {
  const std::string temporary = temporary_name(path);
  try {
    write(temporary);
    core::rename_durably(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

// The current time of the clock that dates the files in `dir`, which may be a file server's: the time of a file made
// there now.
std::filesystem::file_time_type now_in(const std::string& dir) {
  const std::string path = temporary_name(dir + "/clock-GPTDataset-");
  core::File::create(path).close();
  std::error_code error;
  const auto now = std::filesystem::last_write_time(path, error);
  ::unlink(path.c_str());
  return error ? std::filesystem::file_time_type::min() : now;  // then no file counts as old
}

// Removes temporary files that killed processes left, of any index in the folder. A process that still writes one has
// touched it recently. Other ranks may do the same at the same time, so a file that is already gone is not an error.
void remove_abandoned(const std::string& dir) {
  constexpr auto kAbandoned = std::chrono::hours(1);
  const auto now = now_in(dir);
  std::error_code end;
  for (std::filesystem::directory_iterator at(dir, end), none; !end && at != none; at.increment(end)) {
    const std::string name = at->path().filename().string();
    if (name.find("-GPTDataset-") == std::string::npos || name.find(".tmp-") == std::string::npos) continue;
    std::error_code vanished;
    const auto written = at->last_write_time(vanished);
    if (!vanished && written < now && now - written > kAbandoned) std::filesystem::remove(at->path(), vanished);
  }
}

void store(const CachePaths& paths, const json& inputs, const GptIndices& indices) {
  const std::array<std::span<const int64_t>, 3> data = {indices.document_index(), indices.sample_index(),
                                                        indices.shuffle_index()};
  json description = {{"inputs", inputs}};
  for (size_t i = 0; i < kNames.size(); ++i) {
    appear_whole(paths.index(i),
                 [&](const std::string& temporary) { detail::write_npy(temporary, data[i], kColumns[i]); });
    description["files"][kNames[i]] = {{"elements", data[i].size()},
                                       {"xxh3", core::hex16(kernels::xxh3(data[i].data(), data[i].size_bytes()))}};
  }
  appear_whole(paths.description(), [&](const std::string& temporary) {  // the commit
    core::write_text_atomically(temporary, description.dump(2) + "\n");
  });
}

}  // namespace

GptIndices GptIndices::build_or_load(const IndexedDataset& dataset, const GptIndexRequest& request,
                                     const std::string& cache_dir) {
  const json inputs = describe_inputs(dataset, request);
  const CachePaths paths(cache_dir, inputs, request.split_name);
  auto mapped = load(paths, inputs);
  if (!mapped) {
    const GptIndices built = build(dataset.sequence_lengths(request.begin, request.end), request);
    std::error_code error;
    std::filesystem::create_directories(cache_dir, error);
    if (error) {
      throw Error(ErrorCode::kIo, cat("cannot create the data cache ", cache_dir, ": ", error.message(),
                                      ". Give a writable folder with --data-cache-path"));
    }
    remove_abandoned(cache_dir);
    store(paths, inputs, built);
    mapped = load(paths, inputs);
    if (!mapped) {
      throw Error(ErrorCode::kIo, cat("the data cache ", cache_dir, " returns other data than was written to it"));
    }
  }
  GptIndices indices;
  indices.document_index_ = (*mapped)[0]->data;
  indices.sample_index_ = (*mapped)[1]->data;
  indices.shuffle_index_ = (*mapped)[2]->data;
  indices.storage_ = std::move(mapped);
  return indices;
}

}  // namespace ms::train
