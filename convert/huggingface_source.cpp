#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "convert/detail/printable.h"
#include "convert/huggingface.h"
#include "convert/mapped_source.h"
#include "convert/tensor_file.h"
#include "convert/torch/state_dict.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/log.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
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

// The path of a file that the index names.
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
  if (!fs::exists(folder / name, error)) refuse("does not exist");
  return (folder / name).string();
}

// The files of a folder, and what is in them.
class HuggingFaceFolder {
 public:
  explicit HuggingFaceFolder(const std::string& folder) : folder_(folder) {}
  NamedTensors::Table open_files();
  std::vector<std::unique_ptr<TensorFile>> take_files() { return std::move(files_); }
  std::vector<ckpt::Leftover> take_leftovers() { return std::move(leftovers_); }

 private:
  NamedTensors::Table open_indexed(const std::string& index_path);

  fs::path folder_;
  const WeightFiles* kind_ = nullptr;
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::vector<ckpt::Leftover> leftovers_;
};

NamedTensors::Table HuggingFaceFolder::open_files() {
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
  NamedTensors::Table table;
  for (size_t i = 0; i < files_[0]->size(); ++i) table.emplace((*files_[0])[i].name, NamedTensors::Place{0, i});
  return table;
}

NamedTensors::Table HuggingFaceFolder::open_indexed(const std::string& index_path) {
  const json index = read_json(index_path, kMaxIndexBytes);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw Error(ErrorCode::kCorruptData, cat(index_path, ": no weight_map"));
  }
  std::map<std::string, int32_t> file_of;
  NamedTensors::Table table;
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
    table.emplace(tensor, NamedTensors::Place{at->second, *found});
  }
  uint64_t total_bytes = 0;
  for (size_t file = 0; file < files_.size(); ++file) {
    const TensorFile& tensors = *files_[file];
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto mapped = table.find(tensors[i].name);
      if (mapped == table.end() || mapped->second.file != static_cast<int32_t>(file)) {
        core::log_warning("convert.hf", cat(tensors.path(), ": tensor ", printable(tensors[i].name),
                                            " is not mapped to this file by the index; left out"));
        const std::string name(tensors[i].name), quoted = printable(name);  // quoted if it is not plain
        leftovers_.push_back({quoted == cat('"', name, '"') ? name : quoted, tensors.path(),
                              "the index does not map it to this file", mapped != table.end()});
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

}  // namespace

std::string huggingface_sign(const std::string& folder) {
  for (const WeightFiles& files : kWeightFiles) {
    for (const char* name : {files.single, files.index}) {
      if (!fs::exists(fs::path(folder) / name)) continue;
      if (fs::exists(fs::path(folder) / "config.json")) return cat("config.json and ", name);
      throw Error(ErrorCode::kNotFound,
                  cat(folder, ": ", name, " without a config.json; the model's shape is in that"));
    }
  }
  return "";
}

std::unique_ptr<ckpt::Source> open_huggingface(const std::string& folder, const Family* family) {
  core::confine_reads(folder);
  const HfConfig config = read_hf_config((fs::path(folder) / "config.json").string(), family);
  HuggingFaceFolder files(folder);
  NamedTensors tensors;
  tensors.where = folder;
  tensors.tables[core::TensorRole::kParam] = files.open_files();
  tensors.files = files.take_files();
  tensors.leftovers = files.take_leftovers();
  ckpt::CheckpointInfo info;
  const fs::path generation = fs::path(folder) / "generation_config.json";
  if (fs::exists(generation)) info.model_extra["hf_generation_config"] = read_json(generation.string(), 1 << 20);
  return make_mapped_source(std::move(tensors), config, std::move(info));
}

}  // namespace ms::convert
