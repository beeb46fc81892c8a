#include "convert/hf_weights.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>

#include "convert/detail/printable.h"
#include "convert/huggingface_config.h"
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

constexpr int64_t kMaxIndexBytes = 128 << 20;

// Returns the path of a file in the folder. core::confine_reads decides where links may lead.
std::string checked_file(const fs::path& folder, const std::string& name, const std::string& named_by) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    throw Error(ErrorCode::kCorruptData, cat(named_by, ": the file ", printable(name), " is not a plain file name"));
  }
  std::error_code absent;
  if (fs::status(folder / name, absent).type() == fs::file_type::not_found) {
    throw Error(ErrorCode::kCorruptData, cat(named_by, ": the file ", printable(name), " does not exist"));
  }
  return (folder / name).string();
}

bool is_there(const fs::path& path) {
  std::error_code ignored;  // also true for a dangling or cyclic link, so that opening it reports the error
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

class WeightFolder {
 public:
  WeightFolder(const std::string& folder, const WeightFiles& weights, OtherEntries others)
      : folder_(folder), weights_(weights), others_(others) {}

  NamedTensors open() && {
    NamedTensors tensors;
    tensors.where = folder_.string();
    NamedTensors::Table& table = tensors.tables[core::TensorRole::kParam];
    if (weights_.index.empty()) {
      open_all(table);
    } else {
      open_indexed((folder_ / weights_.index).string(), table);
    }
    tensors.files = std::move(files_);
    tensors.leftovers = std::move(leftovers_);
    return tensors;
  }

 private:
  std::unique_ptr<TensorFile> open_file(const std::string& name, const std::string& named_by) const {
    const std::string path = checked_file(folder_, name, named_by);
    return weights_.torch ? open_state_dict(path, others_) : open_safetensors(path);
  }
  void open_all(NamedTensors::Table& table);
  void open_indexed(const std::string& index_path, NamedTensors::Table& table);

  fs::path folder_;
  const WeightFiles& weights_;
  OtherEntries others_;
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::vector<ckpt::Leftover> leftovers_;
};

void WeightFolder::open_all(NamedTensors::Table& table) {
  for (const std::string& name : weights_.files) {
    files_.push_back(open_file(name, folder_.string()));
    const auto number = static_cast<int32_t>(files_.size() - 1);
    for (size_t i = 0; i < files_.back()->size(); ++i) {
      const std::string_view tensor = (*files_.back())[i].name;
      const auto [at, is_new] = table.emplace(tensor, NamedTensors::Place{number, i});
      if (is_new) continue;
      throw Error(ErrorCode::kCorruptData,
                  cat(folder_.string(), ": ", printable(tensor), " is in ", printable(name), " and in ",
                      files_[static_cast<size_t>(at->second.file)]->path(), "; give the path of one of the files"));
    }
  }
}

void WeightFolder::open_indexed(const std::string& index_path, NamedTensors::Table& table) {
  const json index = read_json(index_path, kMaxIndexBytes);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw Error(ErrorCode::kCorruptData, cat(index_path, ": no weight_map"));
  }
  std::map<std::string, int32_t> file_of;
  for (const auto& [tensor, value] : index["weight_map"].items()) {
    if (!value.is_string()) {
      throw Error(ErrorCode::kCorruptData,
                  cat(index_path, ": weight_map of ", printable(tensor), " is not a file name"));
    }
    const std::string name = value.get<std::string>();
    const auto [at, is_new] = file_of.emplace(name, static_cast<int32_t>(files_.size()));
    if (is_new) files_.push_back(open_file(name, index_path));
    const auto found = files_[static_cast<size_t>(at->second)]->find(tensor);
    if (!found) {
      throw Error(ErrorCode::kCorruptData, cat(index_path, ": says that ", printable(tensor), " is in ",
                                               printable(name), ", which does not contain it"));
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
        const std::string name(tensors[i].name), quoted = printable(name);  // quoted, unless plain
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
}

struct Stem {
  const char* name;
  bool torch;
};
constexpr Stem kModel[] = {{"model", false}, {"pytorch_model", true}};
constexpr Stem kOthers[] = {{"adapter_model", false},
                            {"adapter_model", true},
                            {"diffusion_pytorch_model", false},
                            {"diffusion_pytorch_model", true}};

// Returns the files or index with one of these stems: the first that exists.
std::optional<WeightFiles> find_by_stem(const fs::path& folder, std::span<const Stem> stems) {
  for (const Stem& stem : stems) {
    const std::string single = cat(stem.name, stem.torch ? ".bin" : ".safetensors"), index = single + ".index.json";
    const bool has_single = is_there(folder / single), has_index = is_there(folder / index);
    if (has_single && has_index) {
      core::log_warning("convert.hf", cat(folder.string(), ": both ", single, " and ", index,
                                          " exist; the single file is read, as transformers does"));
    }
    if (has_single) return WeightFiles{stem.torch, "", {single}};
    if (has_index) return WeightFiles{stem.torch, index, {}};
  }
  return std::nullopt;
}

}  // namespace

std::optional<WeightFiles> find_model_files(const std::string& folder) { return find_by_stem(folder, kModel); }

std::optional<WeightFiles> find_weight_files(const std::string& folder) {
  if (auto found = find_model_files(folder)) return found;
  if (auto found = find_by_stem(folder, kOthers)) return found;
  std::vector<std::string> indices, files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".safetensors.index.json")) indices.push_back(name);
    if (name.ends_with(".safetensors")) files.push_back(name);
  }
  if (indices.size() > 1) {
    std::sort(indices.begin(), indices.end());
    throw Error(ErrorCode::kInvalidArgument,
                cat(folder, ": ", indices.size(), " indices, such as ", printable(indices[0]), " and ",
                    printable(indices[1]), ": keep only the index to read"));
  }
  if (indices.size() == 1) return WeightFiles{false, indices[0], {}};
  if (files.empty()) return std::nullopt;
  std::sort(files.begin(), files.end());
  return WeightFiles{false, "", std::move(files)};
}

NamedTensors open_weight_files(const std::string& folder, const WeightFiles& weights, OtherEntries others) {
  core::confine_reads(folder);
  return WeightFolder(folder, weights, others).open();
}

}  // namespace ms::convert
