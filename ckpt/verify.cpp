#include "ckpt/verify.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <tuple>

#include "ckpt/commit.h"
#include "ckpt/detail/deal.h"
#include "ckpt/detail/rank_file.h"
#include "ckpt/logical_hash.h"
#include "ckpt/manifest.h"
#include "ckpt/plan.h"
#include "core/comm/agree.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/hdf5.h"
#include "core/io/json.h"
#include "core/layout/parameter_specs.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
namespace fs = std::filesystem;

std::string name_of(const ShardTable& table, int32_t tensor) {
  const std::string key(table.key(tensor));
  return table.role(tensor) == core::TensorRole::kParam ? key
                                                        : cat(key, " (", core::role_name(table.role(tensor)), ")");
}

class Verifier {
 public:
  Verifier(const fs::path& directory, const VerifyOptions& options) : directory_(directory), options_(options) {
    report_.path = directory;
  }

  VerifyReport run() {
    if (options_.team == nullptr) {
      check();
    } else {
      core::collectively(*options_.team, "verify", [&] { check(); });
      share_findings();
    }
    std::sort(report_.findings.begin(), report_.findings.end(), [](const Finding& a, const Finding& b) {
      return std::tie(a.file, a.begin, a.tensor, a.text) < std::tie(b.file, b.begin, b.tensor, b.text);
    });
    return std::move(report_);
  }

 private:
  void check() {
    try {
      manifest_ = read_manifest(directory_);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kCorruptData) throw;
      add({kManifestName, "", -1, -1, e.what()});
      return keep_as_first();
    }
    report_.iteration = manifest_.info.iteration;
    report_.files = static_cast<int64_t>(manifest_.files.size());
    report_.tensors = static_cast<int64_t>(manifest_.boxes.num_tensors());
    report_.bytes = total_ = manifest_.tensor_bytes();
    check_files();
    check_coverage_of_all();
    check_model();
    keep_as_first();
    if (options_.fast) return;
    take_part();
    check_data();
    check_structure();
  }

  // Findings that all processes of a team have are reported by the first one.
  void keep_as_first() {
    if (options_.team != nullptr && options_.team->rank() != 0) report_.findings.clear();
  }

  // Assigns whole tensors, and the structure of whole files, to one process each.
  void take_part() {
    const ShardTable& boxes = manifest_.boxes;
    my_tensors_.assign(boxes.num_tensors(), true);
    my_files_.assign(manifest_.files.size(), true);
    if (options_.team == nullptr) return;
    const int parts = options_.team->size(), me = options_.team->rank();
    std::vector<int64_t> bytes(boxes.num_tensors());
    for (size_t i = 0; i < boxes.size(); ++i) bytes[static_cast<size_t>(boxes.tensor_of(i))] += boxes.size_bytes(i);
    const std::vector<int> owners = deal(bytes, parts);
    for (size_t t = 0; t < owners.size(); ++t) my_tensors_[t] = owners[t] == me;
    for (size_t f = 0; f < my_files_.size(); ++f) my_files_[f] = static_cast<int>(f) % parts == me;
    total_ = 0;
    for (size_t t = 0; t < bytes.size(); ++t) total_ += my_tensors_[t] ? bytes[t] : 0;
  }

  void share_findings() {
    nlohmann::json mine = nlohmann::json::array();
    for (const Finding& finding : report_.findings) {
      mine.push_back({finding.file, finding.tensor, finding.begin, finding.end, finding.text});
    }
    report_.findings.clear();
    const auto keep = nlohmann::json::error_handler_t::replace;  // names from a damaged file may contain any bytes
    for (const std::string& part : options_.team->allgather_strings(mine.dump(-1, ' ', false, keep))) {
      for (const auto& finding : nlohmann::json::parse(part)) {
        report_.findings.push_back({finding[0], finding[1], finding[2], finding[3], finding[4]});
      }
    }
  }

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

  std::string tensor_name(size_t box) const { return name_of(manifest_.boxes, manifest_.boxes.tensor_of(box)); }

  void check_coverage_of_all() {
    const ShardTable& boxes = manifest_.boxes;
    covered_.assign(boxes.num_tensors(), true);
    check_coverage(boxes, 16, [&](int32_t tensor, std::string text) {
      covered_[static_cast<size_t>(tensor)] = false;
      add({kManifestName, name_of(boxes, tensor), -1, -1, std::move(text)});
    });
    by_place_.resize(boxes.size());
    std::iota(by_place_.begin(), by_place_.end(), uint32_t{0});
    std::sort(by_place_.begin(), by_place_.end(), [&](uint32_t a, uint32_t b) {  // by file and offset
      const BoxPlace &x = manifest_.places[a], &y = manifest_.places[b];
      return std::pair(x.file, x.at) < std::pair(y.file, y.at);
    });
    for (size_t i = 1; i < by_place_.size(); ++i) {
      const size_t before = by_place_[i - 1], here = by_place_[i];
      const int64_t end = manifest_.places[before].at + manifest_.placed_bytes(before),
                    begin = manifest_.places[here].at;
      if (manifest_.places[before].file == manifest_.places[here].file && end > begin) {
        add({manifest_.file_of(here).name, tensor_name(here), begin, end,
             cat("these bytes also belong to ", tensor_name(before))});
      }
    }
  }

  // Checks that the parameters are those of the model that the manifest describes.
  void check_model() {
    const core::TransformerConfig& model = manifest_.info.model;
    const ShardTable& boxes = manifest_.boxes;
    const auto stored = static_cast<int64_t>(boxes.num_tensors());
    if (model.num_layers <= 0) return;                    // it describes no model
    if (manifest_.info.common.contains("local")) return;  // local part: one rank's boxes are its tensors
    // Callers of the library may save only some tensors of a model. Every complete model has this one in its first
    // layer.
    if (!boxes.find("decoder.layers.0.self_attention.linear_proj.weight", core::TensorRole::kParam)) return;
    const auto add_text = [&](std::string tensor, std::string text) {
      add({kManifestName, std::move(tensor), -1, -1, std::move(text)});
    };
    // Every layer and every expert has its own tensors: a model with more of them than tensors need not be listed.
    const int64_t layers = model.num_layers + std::max<int64_t>(model.mtp_num_layers, 0);
    if (layers > stored || model.num_experts > stored || layers * model.num_experts > 64 * stored) {
      return add_text("", cat("the model has ", layers, " layers and ", model.num_experts, " experts, but only ",
                              stored, " tensors are stored"));
    }
    std::vector<layout::ParameterSpec> specs;
    try {
      specs = layout::parameter_specs(model);
    } catch (const Error& e) {
      return add_text("", cat("the model is invalid: ", e.what()));
    }
    constexpr size_t kMaxNamed = 8;
    std::vector<std::string> absent;
    for (const layout::ParameterSpec& spec : specs) {
      const auto found = boxes.find(spec.key, spec.is_buffer ? core::TensorRole::kBuffer : core::TensorRole::kParam);
      if (!found) {
        absent.push_back(spec.key);
        continue;
      }
      const auto shape = boxes.global_shape(*found);
      if (std::equal(shape.begin(), shape.end(), spec.global_shape.begin(), spec.global_shape.end())) continue;
      add_text(spec.key, cat("it has shape ", shape, ", but in the model it has ", spec.global_shape));
    }
    for (size_t i = 0; i < std::min(absent.size(), kMaxNamed); ++i) {
      add_text(absent[i], "the model has it, but it is not stored");
    }
    if (absent.size() > kMaxNamed) {
      add_text("", cat(absent.size() - kMaxNamed, " further parameters of the model are not stored"));
    }
    for (size_t t = 0; t < boxes.num_tensors(); ++t) {
      const std::string_view key = boxes.key(static_cast<int32_t>(t));
      constexpr std::string_view kLayers = "decoder.layers.";
      if (!key.starts_with(kLayers)) continue;
      int64_t layer = -1;
      std::from_chars(key.data() + kLayers.size(), key.data() + key.size(), layer);
      if (layer >= model.num_layers) {
        add_text(std::string(key), cat("it is of layer ", layer, ", but the model has ", model.num_layers, " layers"));
      }
    }
  }

  // By file and offset, except boxes that split cells (logical_hash.h), which go tensor by tensor: their pieces are
  // held until the tensor is complete.
  std::vector<uint32_t> reading_order() const {
    const ShardTable& boxes = manifest_.boxes;
    std::vector<bool> cut(boxes.num_tensors());
    for (size_t b = 0; b < boxes.size(); ++b) {
      const int32_t tensor = boxes.tensor_of(b);
      if (boxes.axes(tensor) == 0) continue;
      const size_t last = boxes.axes(tensor) - 1;
      const int64_t begin = boxes.offset(b, last), end = begin + boxes.extent(b, last);
      if (begin % kLogicalCell != 0 || (end % kLogicalCell != 0 && end != boxes.global_shape(tensor)[last])) {
        cut[static_cast<size_t>(tensor)] = true;
      }
    }
    std::vector<uint32_t> order = by_place_;
    const auto whole = std::stable_partition(order.begin(), order.end(),
                                             [&](uint32_t b) { return !cut[static_cast<size_t>(boxes.tensor_of(b))]; });
    std::stable_sort(whole, order.end(),
                     [&](uint32_t a, uint32_t b) { return boxes.tensor_of(a) < boxes.tensor_of(b); });
    return order;
  }

  // Verifies the hash of every chunk, and computes every tensor's logical hash from the same data.
  void check_data() {
    const ShardTable& boxes = manifest_.boxes;
    std::vector<LogicalPartial> logical(boxes.num_tensors());
    std::vector<uint64_t> seen(boxes.num_tensors());
    std::vector<bool> damaged(boxes.num_tensors());
    std::vector<int32_t> missing(boxes.num_tensors());  // boxes not yet read
    for (size_t b = 0; b < boxes.size(); ++b) ++missing[static_cast<size_t>(boxes.tensor_of(b))];
    const std::vector<uint32_t> order = reading_order();
    std::atomic<size_t> next{0};
    std::exception_ptr error;
    const auto work = [&] {
      std::vector<std::byte> chunk;
      try {
        for (size_t i = next++; i < order.size(); i = next++) {
          LogicalPartial partial;
          const int32_t tensor = boxes.tensor_of(order[i]);
          const auto t = static_cast<size_t>(tensor);
          if (!my_tensors_[t]) continue;
          const bool good = check_box(order[i], chunk, partial);
          std::lock_guard lock(mutex_);
          logical[t].merge(partial);
          if (!good) damaged[t] = true;
          if (--missing[t] > 0) continue;
          const auto shape = boxes.global_shape(tensor);
          if (!damaged[t] && covered_[t]) {
            seen[t] = finish_logical(boxes.dtype(tensor), {shape.begin(), shape.end()}, logical[t]);
          }
          logical[t] = {};
        }
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (error == nullptr) error = std::current_exception();
        next = order.size();
      }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.threads; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    if (error != nullptr) std::rethrow_exception(error);
    for (size_t t = 0; t < boxes.num_tensors(); ++t) {
      if (damaged[t] || !covered_[t] || !my_tensors_[t]) continue;
      if (seen[t] != manifest_.logical_xxh3[t]) {
        add({kManifestName, name_of(boxes, static_cast<int32_t>(t)), -1, -1,
             cat("logical_xxh3 is ", core::hex16(manifest_.logical_xxh3[t]), " but the values hash to ",
                 core::hex16(seen[t]))});
      }
    }
  }

  // True if all chunks are intact.
  bool check_box(size_t b, std::vector<std::byte>& chunk, LogicalPartial& partial) {
    const BoxPlace& box = manifest_.places[b];
    const ManifestFile& entry = manifest_.file_of(b);
    if (!readable_[static_cast<size_t>(box.file)]) return false;
    const core::File file = core::File::open_read(path_of(entry));
    const core::ShardedTensor shard = manifest_.boxes[b];
    const int64_t item = core::size_of(shard.dtype), size = manifest_.boxes.size_bytes(b);
    const auto hashes = manifest_.chunks_of(b);
    bool good = true;
    std::vector<ChunkEntry> entries;
    std::vector<std::byte> stored;
    try {
      if (box.compressed) entries = read_chunk_index(file, manifest_, b);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kCorruptData) throw;
      add({entry.name, tensor_name(b), box.at, box.at + manifest_.placed_bytes(b), e.what()});
      return false;
    }
    for (int64_t begin = 0; begin < size; begin += kChunkBytes) {
      if (options_.stopped && options_.stopped()) throw Error(ErrorCode::kIo, "interrupted");
      chunk.resize(static_cast<size_t>(std::min(kChunkBytes, size - begin)));
      const auto count = static_cast<int64_t>(chunk.size());
      const auto index = static_cast<size_t>(begin / kChunkBytes);
      const int64_t at = box.compressed ? entries[index].at : box.at + begin;
      try {
        if (box.compressed) {
          chunk.resize(static_cast<size_t>(full_chunk_bytes(size)));
          stored.resize(static_cast<size_t>(entries[index].bytes));
          file.pread(stored, at);
          check_stored(file.path(), entries[index], stored);
          decode_stored(stored, static_cast<int>(item), chunk);
          chunk.resize(static_cast<size_t>(count));
        } else {
          file.pread(chunk, at);
        }
      } catch (const Error& e) {
        if (e.code() != ErrorCode::kCorruptData) throw;
        add({entry.name, tensor_name(b), at, at + (box.compressed ? entries[index].bytes : count),
             box.compressed ? e.what() : "the file ends before them"});
        good = false;
        if (box.compressed) continue;
        return false;
      }
      LogicalPartial own;
      const uint64_t seen = hash_chunk(shard, begin / item, count / item, chunk.data(), own);
      const uint64_t expected = hashes[static_cast<size_t>(begin / kChunkBytes)];
      if (seen != expected) {
        add({entry.name, tensor_name(b), at, at + count,
             cat("chunk ", begin / kChunkBytes, ": expected hash ", core::hex16(expected), ", seen ",
                 core::hex16(seen))});
        good = false;
      } else {
        partial.merge(own);
      }
      std::lock_guard lock(mutex_);
      done_ += count;
      if (options_.progress) options_.progress(done_, total_);
    }
    return good;
  }

  // Verifies the bytes between the data. If they are as written, the file is safe for HDF5 to parse, and must agree
  // with the manifest.
  void check_structure() {
    size_t next = 0;  // into by_place_, which has the boxes of file 0 first
    for (size_t f = 0; f < manifest_.files.size(); ++f) {
      std::vector<BoxRecord> boxes;
      std::vector<size_t> numbers;
      for (; next < by_place_.size() && manifest_.places[by_place_[next]].file == static_cast<int32_t>(f); ++next) {
        const size_t box = by_place_[next];
        const auto chunks = manifest_.chunks_of(box);
        boxes.push_back({manifest_.boxes[box],
                         manifest_.dataset_of(box),
                         manifest_.places[box].at,
                         {chunks.begin(), chunks.end()},
                         manifest_.places[box].compressed,
                         {}});
        numbers.push_back(box);
      }
      const ManifestFile& entry = manifest_.files[f];
      if (!my_files_[f] || !readable_[f] || entry.linked) continue;  // a linked file may hold other boxes
      const core::File file = core::File::open_read(path_of(entry));
      if (file.size_bytes() != entry.bytes) continue;  // already reported
      try {
        for (size_t i = 0; i < boxes.size(); ++i) {
          if (boxes[i].compressed) boxes[i].stored = read_chunk_index(file, manifest_, numbers[i]);
        }
      } catch (const Error& e) {
        if (e.code() != ErrorCode::kCorruptData) throw;
        continue;  // already reported
      }
      const uint64_t seen = hash_structure(file, boxes);
      if (seen != entry.xxh3) {
        add({entry.name, "", -1, -1,
             cat("the bytes outside the tensors (HDF5 structure) hash to ", core::hex16(seen), ", expected ",
                 core::hex16(entry.xxh3))});
        continue;
      }
      if (static_cast<int32_t>(f) == manifest_.table_file) continue;
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
        add({entry.name, box.tensor.key, -1, -1, cat("HDF5 and manifest differ in the ", what, " of ", box.dataset)});
      };
      if (!info) {
        differ("existence");
        continue;
      }
      if (!box.compressed && info->offset != box.at) differ("place");
      const core::Dims flat = {core::num_elements(box.tensor.local_shape)};
      if (info->shape != (box.compressed ? flat : box.tensor.local_shape)) differ("shape");
      if (info->dtype != stored || h5.attribute_text(box.dataset, "dtype") != core::dtype_name(box.tensor.dtype)) {
        differ("type");
      }
      if (h5.attribute_text(box.dataset, "role") != core::role_name(box.tensor.role)) differ("role");
      if (h5.attribute_values(box.dataset, "global_shape") != as_words(box.tensor.global_shape)) differ("global_shape");
      if (h5.attribute_values(box.dataset, "global_offset") != as_words(box.tensor.global_offset)) {
        differ("global_offset");
      }
      const char* const values = box.compressed ? "chunk_xxh3_logical" : "chunk_xxh3_stored";
      if (h5.attribute_values(box.dataset, values) != box.chunk_xxh3) differ("chunk hashes");
      std::vector<uint64_t> hashes;
      for (const ChunkEntry& chunk : box.stored) hashes.push_back(chunk.xxh3);
      if (box.compressed && h5.attribute_values(box.dataset, "chunk_xxh3_stored") != hashes) differ("stored hashes");
    }
    for (const auto& [dataset, members] : packed) check_packed(h5, entry, dataset, members);
  }

  void check_packed(const core::H5File& h5, const ManifestFile& entry, const std::string& dataset,
                    const std::vector<const BoxRecord*>& members) {
    const auto differ = [&](const std::string& tensor, const char* what) {
      add({entry.name, tensor, -1, -1, cat("HDF5 and manifest differ in the ", what, " of ", dataset)});
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
  std::vector<bool> readable_;      // per file
  std::vector<bool> covered_;       // per tensor
  std::vector<uint32_t> by_place_;  // boxes by file and offset
  std::vector<bool> my_tensors_, my_files_;
  std::mutex mutex_;
  int64_t done_ = 0, total_ = 0;  // bytes that this process reads
};

}  // namespace

std::string finding_text(const Finding& finding) {
  std::string text = finding.file;
  if (!finding.tensor.empty()) text += cat(text.empty() ? "" : ": ", finding.tensor);
  if (finding.begin >= 0) text += cat(": bytes ", finding.begin, " to ", finding.end);
  return text.empty() ? finding.text : cat(text, ": ", finding.text);
}

VerifyReport verify_generation(const fs::path& directory, const VerifyOptions& options) {
  return Verifier(directory, options).run();
}

}  // namespace ms::ckpt
