#include "convert/hf_split.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "convert/huggingface_config.h"
#include "core/error.h"
#include "core/io/json.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using nlohmann::json;

constexpr int64_t kMaxIndexBytes = 128 << 20;

std::string file_name(size_t index, size_t count, const HfFiles& kind) {
  if (count == 1) return cat(kind.stem, kind.extension);
  const auto five = [](size_t number) {
    const std::string digits = std::to_string(number);
    return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
  };
  return cat(kind.stem, "-", five(index + 1), "-of-", five(count), kind.extension);
}

bool is_plain(const std::string& name, const HfFiles& kind) {
  return name.starts_with(kind.stem) && name.ends_with(kind.extension) &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

}  // namespace

std::string hf_index_name(const HfFiles& kind) { return cat(kind.stem, kind.extension, ".index.json"); }

HfSplit split_by_size(std::span<const int64_t> tensor_bytes, int64_t max_shard_bytes, const HfFiles& kind) {
  std::vector<std::vector<size_t>> files;
  std::vector<size_t> current;
  int64_t current_bytes = 0;
  for (size_t t = 0; t < tensor_bytes.size(); ++t) {
    if (tensor_bytes[t] > max_shard_bytes) {
      files.push_back({t});
      continue;
    }
    if (current_bytes + tensor_bytes[t] > max_shard_bytes) {
      files.push_back(std::exchange(current, {}));
      current_bytes = 0;
    }
    current.push_back(t);
    current_bytes += tensor_bytes[t];
  }
  if (!current.empty()) files.push_back(std::move(current));
  HfSplit split;
  split.file_of.resize(tensor_bytes.size());
  for (size_t f = 0; f < files.size(); ++f) {
    split.files.push_back(file_name(f, files.size(), kind));
    for (const size_t tensor : files[f]) split.file_of[tensor] = f;
  }
  return split;
}

std::optional<HfSplit> split_of_index(const std::string& folder, std::span<const std::string> tensors,
                                      const HfFiles& kind) {
  const fs::path path = fs::path(folder) / hf_index_name(kind);
  if (folder.empty() || !fs::exists(path)) return std::nullopt;
  const json index = read_json(path.string(), kMaxIndexBytes);
  const json weight_map = index.is_object() ? index.value("weight_map", json()) : json();
  if (!weight_map.is_object()) {
    throw core::Error(core::ErrorCode::kCorruptData, cat(path.string(), ": no weight_map"));
  }
  if (weight_map.size() != tensors.size()) return std::nullopt;
  std::map<std::string, size_t> files;
  std::vector<std::string> file_of;
  for (const std::string& tensor : tensors) {
    const auto file = weight_map.find(tensor);
    if (file == weight_map.end() || !file->is_string()) return std::nullopt;
    file_of.push_back(file->get<std::string>());
    if (!is_plain(file_of.back(), kind)) return std::nullopt;
    files.emplace(file_of.back(), 0);
  }
  HfSplit split;
  for (auto& [name, number] : files) {
    number = split.files.size();
    split.files.push_back(name);
  }
  for (const std::string& name : file_of) split.file_of.push_back(files.at(name));
  return split;
}

}  // namespace ms::convert
