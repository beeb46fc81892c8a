#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <unordered_set>

#include "convert/detail/dense_box.h"
#include "convert/detail/printable.h"
#include "convert/huggingface.h"
#include "convert/name_map.h"
#include "convert/tensor_file.h"
#include "convert/torch/state_dict.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using detail::kMergeGapBytes;
using detail::kScratchBytes;
using detail::printable;
using nlohmann::json;

// What the weights of a folder lie in, the first that is there.
struct WeightFiles {
  const char *single, *index;
  std::unique_ptr<TensorFile> (*open)(const std::string& path);
};
constexpr WeightFiles kWeightFiles[] = {
    {"model.safetensors", "model.safetensors.index.json", open_safetensors},
    {"pytorch_model.bin", "pytorch_model.bin.index.json", open_state_dict},
};
constexpr int64_t kMaxIndexBytes = 128 << 20;

struct FoundTensor {
  int32_t file = 0;
  size_t index = 0;  // in the file's header
};

// Where a shard's elements lie: whole rows, so one contiguous range; or, transposed, columns of a matrix.
struct Placement {
  int32_t file = 0;
  uint64_t offset_bytes = 0;       // of the first element, among those of the file's tensors
  size_t tensor = 0;               // in the file's header
  int64_t transposed_columns = 0;  // of the stored matrix; 0: it is stored as we have it
};

// The path of a file that the index names. A link may lead to the folder itself or, as in the hub's cache
// (snapshots/<revision>/x -> ../../blobs/<hash>), to the blobs beside the snapshots; nowhere else.
std::string checked_file(const fs::path& folder, const std::string& name, const std::string& index_path) {
  const auto refuse = [&](const char* why) {
    throw Error(ErrorCode::kCorruptData,
                cat(index_path, ": weight_map names the file ", printable(name), ", which ", why));
  };
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    refuse("is not a plain file name");
  }
  std::error_code error;
  const fs::path real = fs::canonical(folder / name, error);
  if (error) refuse("does not exist");
  const fs::path home = fs::canonical(folder);
  const auto inside = [&](const fs::path& root) {
    const fs::path relative = real.lexically_relative(root);
    return !relative.empty() && *relative.begin() != "..";
  };
  if (!inside(home) && !inside((home / ".." / ".." / "blobs").lexically_normal()))
    refuse("is a link out of the folder");
  return (folder / name).string();
}

class HuggingFaceSource : public ckpt::Source {
 public:
  explicit HuggingFaceSource(const std::string& folder);

  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return shards_; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override;
  std::string describe(int32_t shard) const override {
    const Placement& place = placements_.at(static_cast<size_t>(shard));
    const TensorFile& file = *files_[static_cast<size_t>(place.file)];
    return cat(file.path(), ":", printable(file[place.tensor].name));
  }

 private:
  using TensorTable = std::map<std::string, FoundTensor, std::less<>>;

  TensorTable open_files();
  TensorTable open_indexed(const std::string& index_path);
  void add_missing_prefix(TensorTable& table, const Family& family) const;
  void add_tensor(const MappedTensor& mapped, const FoundTensor& found);
  void check_tied_output(const FoundTensor& output, const FoundTensor& embedding, const std::string& embedding_name);
  void read_transposed(const core::ShardedTensor& meta, const Placement& place, const core::Dims& offset,
                       const core::Dims& extent, std::byte* out) const;

  fs::path folder_;
  ckpt::CheckpointInfo info_;
  const WeightFiles* kind_ = nullptr;
  std::vector<std::unique_ptr<TensorFile>> files_;
  ckpt::ShardTable shards_;
  std::vector<Placement> placements_;  // of shards_
};

HuggingFaceSource::HuggingFaceSource(const std::string& folder) : folder_(folder) {
  HfConfig config = read_hf_config((folder_ / "config.json").string());
  const std::string where = folder_.string();
  TensorTable table = open_files();
  add_missing_prefix(table, *config.family);
  const std::string embedding = cat(config.family->prefix, config.family->before[0].hf);
  std::unordered_set<std::string_view> used;
  for_each_tensor(*config.family, config.model, [&](const MappedTensor& mapped) {
    const auto found = table.find(mapped.name);
    if (found == table.end()) {
      throw Error(ErrorCode::kCorruptData,
                  cat(where, ": tensor ", mapped.name, " is missing; config.json (model_type ",
                      config.family->model_type, ", ", config.model.num_layers, " layers) asks for it"));
    }
    used.insert(found->first);
    add_tensor(mapped, found->second);
  });
  for (const auto& [name, found] : table) {
    if (used.contains(name) || is_ignored_buffer(name)) continue;
    if (name == kHfOutput && !config.model.untie_embeddings_and_output_weights) {
      check_tied_output(found, table.at(embedding), embedding);
      continue;
    }
    throw Error(ErrorCode::kUnsupported, cat(where, ": tensor ", printable(name), " belongs to no part of a ",
                                             config.family->model_type, " model with this config.json"));
  }
  info_.model = config.model;
  info_.model_extra = {{"family", config.family->model_type}, {"hf_config", config.original}};
  const fs::path generation = folder_ / "generation_config.json";
  if (fs::exists(generation)) info_.model_extra["hf_generation_config"] = read_json(generation.string(), 1 << 20);
}

HuggingFaceSource::TensorTable HuggingFaceSource::open_files() {
  const auto there = [&](const WeightFiles& kind) {
    return fs::exists(folder_ / kind.single) || fs::exists(folder_ / kind.index);
  };
  kind_ = std::find_if(std::begin(kWeightFiles), std::end(kWeightFiles), there);
  if (kind_ == std::end(kWeightFiles)) {
    throw Error(ErrorCode::kNotFound, cat(folder_.string(),
                                          ": neither model.safetensors nor pytorch_model.bin, nor an "
                                          "index of several"));
  }
  const fs::path single = folder_ / kind_->single, index = folder_ / kind_->index;
  if (!fs::exists(single)) return open_indexed(index.string());
  if (fs::exists(index)) {
    core::log_warning("convert.hf", cat(folder_.string(), ": both ", kind_->single, " and ", kind_->index,
                                        " exist; the single file is read, as transformers does"));
  }
  files_.push_back(kind_->open(single.string()));
  TensorTable table;
  for (size_t i = 0; i < files_[0]->size(); ++i) table.emplace((*files_[0])[i].name, FoundTensor{0, i});
  return table;
}

// Files of some families on the hub hold the bare model, whose tensors lack the prefix of the model with its head.
void HuggingFaceSource::add_missing_prefix(TensorTable& table, const Family& family) const {
  if (!family.prefix_is_optional || !table.contains(family.before[0].hf)) return;
  TensorTable renamed;
  for (auto& [name, found] : table) {
    const bool bare = name != kHfOutput && !name.starts_with(family.prefix);
    const std::string full = bare ? cat(family.prefix, name) : name;
    if (!renamed.emplace(full, found).second) {
      throw Error(ErrorCode::kCorruptData,
                  cat(folder_.string(), ": holds ", printable(full), " with and without ", family.prefix));
    }
  }
  table = std::move(renamed);
}

HuggingFaceSource::TensorTable HuggingFaceSource::open_indexed(const std::string& index_path) {
  const json index = read_json(index_path, kMaxIndexBytes);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw Error(ErrorCode::kCorruptData, cat(index_path, ": no weight_map"));
  }
  std::map<std::string, int32_t> file_of;
  TensorTable table;
  for (const auto& [tensor, value] : index["weight_map"].items()) {
    if (!value.is_string()) {
      throw Error(ErrorCode::kCorruptData,
                  cat(index_path, ": weight_map of ", printable(tensor), " is not a file name"));
    }
    const std::string name = value.get<std::string>();
    const auto [at, is_new] = file_of.emplace(name, static_cast<int32_t>(files_.size()));
    if (is_new) files_.push_back(kind_->open(checked_file(folder_, name, index_path)));
    const auto found = files_[static_cast<size_t>(at->second)]->find(tensor);
    if (!found) {
      throw Error(ErrorCode::kCorruptData, cat(index_path, ": says that ", printable(tensor), " is in ",
                                               printable(name), ", which does not hold it"));
    }
    table.emplace(tensor, FoundTensor{at->second, *found});
  }
  uint64_t total_bytes = 0;
  for (size_t file = 0; file < files_.size(); ++file) {
    const TensorFile& tensors = *files_[file];
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto mapped = table.find(tensors[i].name);
      if (mapped == table.end() || mapped->second.file != static_cast<int32_t>(file)) {
        core::log_warning("convert.hf", cat(tensors.path(), ": tensor ", printable(tensors[i].name),
                                            " is not mapped to this file by the index; left out"));
        continue;
      }
      total_bytes += tensors[i].end - tensors[i].begin;
    }
  }
  const json metadata = index.value("metadata", json::object());
  if (metadata.is_object() && metadata.contains("total_size") && metadata["total_size"] != total_bytes) {
    core::log_warning("convert.hf", cat(index_path, ": total_size is ", metadata["total_size"].dump(),
                                        " but the tensors have ", total_bytes, " bytes"));
  }
  return table;
}

void HuggingFaceSource::add_tensor(const MappedTensor& mapped, const FoundTensor& found) {
  const TensorFile& file = *files_[static_cast<size_t>(found.file)];
  const TensorFile::Tensor tensor = file[found.index];
  const auto same_dim = [](uint64_t seen, int64_t wanted) { return seen == static_cast<uint64_t>(wanted); };
  if (!std::equal(tensor.shape.begin(), tensor.shape.end(), mapped.shape.begin(), mapped.shape.end(), same_dim)) {
    throw Error(ErrorCode::kCorruptData, cat(file.path(), ": tensor ", mapped.name, " has shape ",
                                             std::vector<uint64_t>(tensor.shape.begin(), tensor.shape.end()),
                                             " but config.json says ", mapped.shape));
  }
  const auto dtype = to_core_dtype(tensor.dtype);
  if (dtype != core::DType::kFp32 && dtype != core::DType::kBf16 && dtype != core::DType::kFp16) {
    throw Error(ErrorCode::kUnsupported,
                cat(file.path(), ": tensor ", mapped.name, " is ", safetensors_dtype_name(tensor.dtype),
                    "; weights may be F32, BF16 or F16"));
  }
  const int64_t columns = mapped.transposed ? mapped.shape[1] : 0;
  const int64_t step =  // between the rows of a piece
      mapped.transposed ? core::size_of(*dtype) : static_cast<int64_t>(tensor.end - tensor.begin) / mapped.shape[0];
  for (const TensorPiece& piece : mapped.pieces) {
    shards_.push_back({mapped.key, core::TensorRole::kParam, *dtype, mapped.global_shape, piece.offset, piece.extent});
    placements_.push_back({found.file, tensor.begin + static_cast<uint64_t>(piece.row * step), found.index, columns});
  }
}

void HuggingFaceSource::check_tied_output(const FoundTensor& output, const FoundTensor& embedding,
                                          const std::string& embedding_name) {
  const TensorFile& output_file = *files_[static_cast<size_t>(output.file)];
  const TensorFile& embedding_file = *files_[static_cast<size_t>(embedding.file)];
  const TensorFile::Tensor a = output_file[output.index];
  const TensorFile::Tensor b = embedding_file[embedding.index];
  bool equal = a.dtype == b.dtype && std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end());
  const uint64_t size = a.end - a.begin;
  std::vector<std::byte> left(1 << 20), right(1 << 20);
  for (uint64_t done = 0; equal && done < size; done += left.size()) {
    const size_t count = std::min<uint64_t>(left.size(), size - done);
    output_file.read(a.begin + done, std::span(left).first(count));
    embedding_file.read(b.begin + done, std::span(right).first(count));
    equal = std::memcmp(left.data(), right.data(), count) == 0;
  }
  if (!equal) {
    throw Error(ErrorCode::kCorruptData, cat(output_file.path(), ": ", kHfOutput, " differs from ", embedding_name,
                                             " but config.json says tie_word_embeddings: true"));
  }
}

void HuggingFaceSource::read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) {
  const core::ShardedTensor meta = shards_[static_cast<size_t>(shard)];
  const Placement& place = placements_[static_cast<size_t>(shard)];
  const TensorFile& file = *files_[static_cast<size_t>(place.file)];
  detail::check_box(meta.local_shape, offset, extent);
  if (place.transposed_columns > 0) return read_transposed(meta, place, offset, extent, out);
  detail::read_dense_box(meta.local_shape, core::size_of(meta.dtype), offset, extent, out,
                         [&](int64_t at, std::span<std::byte> bytes) {
                           file.read(place.offset_bytes + static_cast<uint64_t>(at), bytes);
                         });
}

// Our box [rows, columns] is, as stored, [columns, rows]: stored rows are read whole over the box's width, some at
// once, and turned.
void HuggingFaceSource::read_transposed(const core::ShardedTensor& meta, const Placement& place,
                                        const core::Dims& offset, const core::Dims& extent, std::byte* out) const {
  const TensorFile& file = *files_[static_cast<size_t>(place.file)];
  const int64_t item = core::size_of(meta.dtype);
  const int64_t run = extent[0] * item, stride = place.transposed_columns * item;
  if (run == 0) return;
  const bool merges = stride - run < kMergeGapBytes && stride <= kScratchBytes;
  const int64_t at_once = merges ? std::max<int64_t>(1, kScratchBytes / stride) : 1;
  std::vector<std::byte> scratch(static_cast<size_t>(merges ? at_once * stride : run));
  for (int64_t column = 0; column < extent[1]; column += at_once) {
    const int64_t count = std::min(at_once, extent[1] - column);
    const uint64_t at = place.offset_bytes + static_cast<uint64_t>((offset[1] + column) * stride + offset[0] * item);
    file.read(at, std::span(scratch.data(), static_cast<size_t>((count - 1) * stride + run)));
    for (int64_t c = 0; c < count; ++c) {
      for (int64_t row = 0; row < extent[0]; ++row) {
        std::memcpy(out + (row * extent[1] + column + c) * item, scratch.data() + c * stride + row * item,
                    static_cast<size_t>(item));
      }
    }
  }
}

}  // namespace

std::unique_ptr<ckpt::Source> open_huggingface(const std::string& folder) {
  return std::make_unique<HuggingFaceSource>(folder);
}

}  // namespace ms::convert
