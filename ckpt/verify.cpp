#include "ckpt/verify.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "ckpt/box.h"
#include "ckpt/commit.h"
#include "ckpt/detail/rank_file.h"
#include "ckpt/logical_hash.h"
#include "ckpt/manifest.h"
#include "ckpt/plan.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/hdf5.h"
#include "core/io/json.h"
#include "kernels/checksum.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
namespace fs = std::filesystem;

core::ShardedTensor shard_of(const ManifestTensor& tensor, const ManifestBox& box) {
  return {tensor.name, tensor.role, tensor.dtype, tensor.shape, box.offset, box.shape, 0};
}

std::string name_of(const ManifestTensor& tensor) {
  return tensor.role == core::TensorRole::kParam ? tensor.name
                                                 : cat(tensor.name, " (", core::role_name(tensor.role), ")");
}

class Verifier {
 public:
  Verifier(const fs::path& directory, const VerifyOptions& options) : directory_(directory), options_(options) {
    report_.path = directory;
  }

  VerifyReport run() {
    try {
      manifest_ = read_manifest(directory_);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kCorruptData) throw;
      add({kManifestName, "", -1, -1, e.what()});
      return std::move(report_);
    }
    report_.iteration = manifest_.info.iteration;
    report_.files = static_cast<int64_t>(manifest_.files.size());
    report_.tensors = static_cast<int64_t>(manifest_.tensors.size());
    for (const ManifestTensor& tensor : manifest_.tensors) report_.bytes += tensor.size_bytes();
    check_files();
    check_coverage_of_all();
    if (!options_.fast) {
      check_data();
      check_structure();
    }
    std::sort(report_.findings.begin(), report_.findings.end(), [](const Finding& a, const Finding& b) {
      return std::tie(a.file, a.begin, a.tensor) < std::tie(b.file, b.begin, b.tensor);
    });
    return std::move(report_);
  }

 private:
  void add(Finding finding) {
    std::lock_guard lock(mutex_);
    report_.findings.push_back(std::move(finding));
  }

  std::string path_of(const ManifestFile& file) const { return (directory_ / file.name).string(); }

  void check_files() {
    std::set<std::string> known = {kManifestName};
    for (const ManifestFile& file : manifest_.files) {
      known.insert(file.name);
      std::error_code error;
      const auto size = fs::file_size(directory_ / file.name, error);
      readable_.push_back(!error && fs::is_regular_file(fs::symlink_status(directory_ / file.name, error)));
      if (!readable_.back()) {
        add({file.name, "", -1, -1, "the manifest names it, but it is absent or not a regular file"});
      } else if (static_cast<int64_t>(size) != file.bytes) {
        add({file.name, "", -1, -1, cat("it has ", size, " bytes, expected ", file.bytes)});
      }
    }
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const std::string name = entry.path().filename().string();
      if (known.count(name) == 0) report_.notes.push_back(cat(name, " does not belong to the checkpoint"));
    }
  }

  void check_coverage_of_all() {
    struct Range {
      int32_t file;
      int64_t begin, end;
      const ManifestTensor* tensor;
    };
    std::vector<Range> ranges;
    for (const ManifestTensor& tensor : manifest_.tensors) {
      std::vector<core::ShardedTensor> shards;
      for (const ManifestBox& box : tensor.boxes) {
        shards.push_back(shard_of(tensor, box));
        const int64_t size = core::num_elements(box.shape) * core::size_of(tensor.dtype);
        ranges.push_back({box.file, box.at, box.at + size, &tensor});
      }
      std::vector<std::string> findings = check_coverage(shards);
      if (shards.empty() && core::num_elements(tensor.shape) > 0) findings.push_back("it has no boxes");
      for (std::string& text : findings) add({kManifestName, name_of(tensor), -1, -1, std::move(text)});
      covered_.push_back(findings.empty());
    }
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return std::tie(a.file, a.begin) < std::tie(b.file, b.begin); });
    for (size_t i = 1; i < ranges.size(); ++i) {
      const Range &before = ranges[i - 1], &range = ranges[i];
      if (before.file == range.file && before.end > range.begin) {
        add({manifest_.files[static_cast<size_t>(range.file)].name, name_of(*range.tensor), range.begin, before.end,
             cat("these bytes also belong to ", name_of(*before.tensor))});
      }
    }
  }

  // Every chunk against its hash, and on the way every tensor's logical hash.
  void check_data() {
    struct Item {
      size_t tensor, box;
    };
    std::vector<Item> items;
    for (size_t t = 0; t < manifest_.tensors.size(); ++t) {
      for (size_t b = 0; b < manifest_.tensors[t].boxes.size(); ++b) items.push_back({t, b});
    }
    std::sort(items.begin(), items.end(), [&](const Item& x, const Item& y) {  // files front to back
      const auto &a = manifest_.tensors[x.tensor].boxes[x.box], &b = manifest_.tensors[y.tensor].boxes[y.box];
      return std::tie(a.file, a.at) < std::tie(b.file, b.at);
    });
    std::vector<LogicalPartial> logical(manifest_.tensors.size());
    std::vector<bool> damaged(manifest_.tensors.size());
    std::atomic<size_t> next{0};
    std::exception_ptr error;
    const auto work = [&] {
      std::vector<std::byte> chunk;
      try {
        for (size_t i = next++; i < items.size(); i = next++) {
          LogicalPartial partial;
          const bool good = check_box(items[i].tensor, items[i].box, chunk, partial);
          std::lock_guard lock(mutex_);
          logical[items[i].tensor].merge(partial);
          if (!good) damaged[items[i].tensor] = true;
        }
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (error == nullptr) error = std::current_exception();
        next = items.size();
      }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.threads; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    if (error != nullptr) std::rethrow_exception(error);
    for (size_t t = 0; t < manifest_.tensors.size(); ++t) {
      const ManifestTensor& tensor = manifest_.tensors[t];
      if (damaged[t] || !covered_[t]) continue;
      const uint64_t seen = finish_logical(tensor.dtype, tensor.shape, logical[t]);
      if (seen != tensor.logical_xxh3) {
        add({kManifestName, name_of(tensor), -1, -1,
             cat("logical_xxh3 is ", core::hex16(tensor.logical_xxh3), " but the values hash to ", core::hex16(seen))});
      }
    }
  }

  // True if all chunks hold.
  bool check_box(size_t t, size_t b, std::vector<std::byte>& chunk, LogicalPartial& partial) {
    const ManifestTensor& tensor = manifest_.tensors[t];
    const ManifestBox& box = tensor.boxes[b];
    const ManifestFile& entry = manifest_.files[static_cast<size_t>(box.file)];
    if (!readable_[static_cast<size_t>(box.file)]) return false;
    const core::File file = core::File::open_read(path_of(entry));
    const int64_t item = core::size_of(tensor.dtype), size = core::num_elements(box.shape) * item;
    const core::ShardedTensor shard = shard_of(tensor, box);
    bool good = true;
    for (int64_t begin = 0; begin < size; begin += kChunkBytes) {
      if (options_.stopped && options_.stopped()) throw Error(ErrorCode::kIo, "interrupted");
      chunk.resize(static_cast<size_t>(std::min(kChunkBytes, size - begin)));
      const auto count = static_cast<int64_t>(chunk.size());
      const int64_t at = box.at + begin;
      try {
        file.pread(chunk, at);
      } catch (const Error& e) {
        if (e.code() != ErrorCode::kCorruptData) throw;
        add({entry.name, name_of(tensor), at, at + count, "the file ends before them"});
        return false;
      }
      const uint64_t seen = kernels::xxh3(chunk.data(), chunk.size());
      const uint64_t expected = box.chunk_xxh3[static_cast<size_t>(begin / kChunkBytes)];
      if (seen != expected) {
        add({entry.name, name_of(tensor), at, at + count,
             cat("chunk ", begin / kChunkBytes, ": expected hash ", core::hex16(expected), ", seen ",
                 core::hex16(seen))});
        good = false;
      } else {
        add_logical(shard, begin / item, count / item, chunk.data(), partial);
      }
      std::lock_guard lock(mutex_);
      done_ += count;
      if (options_.progress) options_.progress(done_, report_.bytes);
    }
    return good;
  }

  // The bytes between the data; where they are as written, HDF5 can be trusted with the file, and must agree.
  void check_structure() {
    for (size_t f = 0; f < manifest_.files.size(); ++f) {
      const ManifestFile& entry = manifest_.files[f];
      if (!readable_[f]) continue;
      std::vector<BoxRecord> boxes;
      for (const ManifestTensor& tensor : manifest_.tensors) {
        for (const ManifestBox& box : tensor.boxes) {
          if (box.file == static_cast<int32_t>(f)) {
            boxes.push_back({shard_of(tensor, box), box.dataset, box.at, box.chunk_xxh3});
          }
        }
      }
      std::sort(boxes.begin(), boxes.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
      const core::File file = core::File::open_read(path_of(entry));
      if (file.size_bytes() != entry.bytes) continue;  // already found
      const uint64_t seen = hash_structure(file, boxes);
      if (seen != entry.xxh3) {
        add({entry.name, "", -1, -1,
             cat("the bytes outside the tensors (HDF5 structure) hash to ", core::hex16(seen), ", expected ",
                 core::hex16(entry.xxh3))});
        continue;
      }
      try {
        check_hdf5(entry, boxes);
      } catch (const Error& e) {
        add({entry.name, "", -1, -1, e.what()});
      }
    }
  }

  void check_hdf5(const ManifestFile& entry, const std::vector<BoxRecord>& boxes) {
    const core::H5File h5 = core::H5File::open_read(path_of(entry));
    const auto as_words = [](const core::Dims& dims) { return std::vector<uint64_t>(dims.begin(), dims.end()); };
    std::map<std::string, std::vector<const BoxRecord*>> packed;
    for (const BoxRecord& box : boxes) {
      if (box.dataset.rfind("/packed/", 0) == 0) {
        packed[box.dataset].push_back(&box);
        continue;
      }
      const auto info = h5.dataset(box.dataset);
      const core::DType stored = box.tensor.dtype == core::DType::kBf16 ? core::DType::kUInt16 : box.tensor.dtype;
      const auto differ = [&](const char* what) {
        add({entry.name, box.tensor.key, -1, -1,
             cat("HDF5 and manifest contradict about the ", what, " of ", box.dataset)});
      };
      if (!info) {
        differ("existence");
        continue;
      }
      if (info->offset != box.at) differ("place");
      if (info->shape != box.tensor.local_shape) differ("shape");
      if (info->dtype != stored || h5.attribute_text(box.dataset, "dtype") != core::dtype_name(box.tensor.dtype)) {
        differ("type");
      }
      if (h5.attribute_text(box.dataset, "role") != core::role_name(box.tensor.role)) differ("role");
      if (h5.attribute_values(box.dataset, "global_shape") != as_words(box.tensor.global_shape)) differ("global_shape");
      if (h5.attribute_values(box.dataset, "global_offset") != as_words(box.tensor.global_offset)) {
        differ("global_offset");
      }
      if (h5.attribute_values(box.dataset, "chunk_xxh3_stored") != box.chunk_xxh3) differ("chunk hashes");
    }
    for (const auto& [dataset, members] : packed) check_packed(h5, entry, dataset, members);
  }

  void check_packed(const core::H5File& h5, const ManifestFile& entry, const std::string& dataset,
                    const std::vector<const BoxRecord*>& members) {
    const auto differ = [&](const std::string& tensor, const char* what) {
      add({entry.name, tensor, -1, -1, cat("HDF5 and manifest contradict about the ", what, " of ", dataset)});
    };
    const auto info = h5.dataset(dataset);
    const auto index_info = h5.dataset(dataset + ".index");
    if (!info || !index_info || index_info->shape.size() != 1 || index_info->offset < 0) return differ("", "existence");
    std::string text(static_cast<size_t>(std::min(index_info->shape[0], entry.bytes)), '\0');
    core::File::open_read(path_of(entry)).pread(std::as_writable_bytes(std::span(text)), index_info->offset);
    const auto index = core::parse_json(text, cat(entry.name, ":", dataset, ".index"));
    const auto hashes = h5.attribute_values(dataset, "chunk_xxh3_stored");
    if (!index.is_array() || index.size() != members.size() || !hashes || hashes->size() != members.size()) {
      return differ("", "index");
    }
    for (size_t i = 0; i < members.size(); ++i) {
      const core::ShardedTensor& tensor = members[i]->tensor;
      const nlohmann::json expected = {{"name", tensor.key},
                                       {"dtype", core::dtype_name(tensor.dtype)},
                                       {"global_shape", tensor.global_shape},
                                       {"global_offset", tensor.global_offset},
                                       {"box_shape", tensor.local_shape},
                                       {"begin", members[i]->at - info->offset}};
      if (index[i] != expected) differ(tensor.key, "index entry");
      if ((*hashes)[i] != members[i]->chunk_xxh3.front()) differ(tensor.key, "chunk hash");
    }
  }

  const fs::path& directory_;
  const VerifyOptions& options_;
  Manifest manifest_;
  VerifyReport report_;
  std::vector<bool> readable_;  // per file
  std::vector<bool> covered_;   // per tensor
  std::mutex mutex_;
  int64_t done_ = 0;
};

struct TensorOfSource {
  core::DType dtype = core::DType::kFp32;
  core::Dims shape;
  std::vector<int32_t> shards;
};
using TensorName = std::pair<std::string, core::TensorRole>;

std::map<TensorName, TensorOfSource> tensors_of(const Source& source) {
  std::map<TensorName, TensorOfSource> tensors;
  const auto shards = source.shards();
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].replica_id != 0) continue;
    TensorOfSource& tensor = tensors[{shards[i].key, shards[i].role}];
    tensor.dtype = shards[i].dtype;
    tensor.shape = shards[i].global_shape;
    tensor.shards.push_back(static_cast<int32_t>(i));
  }
  return tensors;
}

uint64_t logical_of(Source& source, const TensorName& name, const TensorOfSource& tensor) {
  if (const auto stored = source.logical_xxh3(name.first, name.second)) return *stored;
  LogicalPartial partial;
  std::vector<std::byte> bytes;
  const int64_t item = core::size_of(tensor.dtype), step = kChunkBytes / item;
  for (const int32_t i : tensor.shards) {
    const core::ShardedTensor& shard = source.shards()[static_cast<size_t>(i)];
    const int64_t total = core::num_elements(shard.local_shape);
    for (int64_t first = 0; first < total; first += step) {
      for_each_box_of_range(shard.local_shape, first, std::min(step, total - first), [&](const Box& box, int64_t at) {
        const int64_t count = core::num_elements(box.extent);
        bytes.resize(static_cast<size_t>(count * item));
        source.read(i, box.offset, box.extent, bytes.data());
        add_logical(shard, at, count, bytes.data(), partial);
      });
    }
  }
  return finish_logical(tensor.dtype, tensor.shape, partial);
}

}  // namespace

std::string finding_text(const Finding& finding) {
  std::string text = finding.file;
  if (!finding.tensor.empty()) text += cat(": ", finding.tensor);
  if (finding.begin >= 0) text += cat(": bytes ", finding.begin, " to ", finding.end);
  return cat(text, ": ", finding.text);
}

VerifyReport verify_generation(const fs::path& directory, const VerifyOptions& options) {
  return Verifier(directory, options).run();
}

std::vector<Difference> diff_sources(Source& a, Source& b) {
  const auto first = tensors_of(a), second = tensors_of(b);
  std::vector<Difference> differences;
  for (const auto& [name, tensor] : first) {
    const auto found = second.find(name);
    std::string text;
    if (found == second.end()) {
      text = "only in the first";
    } else if (found->second.shape != tensor.shape) {
      text = cat("shape ", tensor.shape, " and ", found->second.shape);
    } else if (found->second.dtype != tensor.dtype) {
      text = cat("dtype ", core::dtype_name(tensor.dtype), " and ", core::dtype_name(found->second.dtype));
    } else if (logical_of(a, name, tensor) != logical_of(b, name, found->second)) {
      text = "values differ";
    }
    if (!text.empty()) differences.push_back({name.first, name.second, std::move(text)});
  }
  for (const auto& [name, tensor] : second) {
    if (first.count(name) == 0) differences.push_back({name.first, name.second, "only in the second"});
  }
  return differences;
}

}  // namespace ms::ckpt
