#include "ckpt/manifest.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>

#include "ckpt/detail/table_file.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/layout/box.h"
#include "kernels/checksum.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

constexpr const char* kMagic = "msuite-checkpoint";
constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMaxManifestBytes = int64_t{4} << 30;
constexpr std::string_view kSelfKey = "\"self_xxh3\":\"";

[[noreturn]] void corrupt(std::string_view where, const std::string& text) {
  throw Error(ErrorCode::kCorruptData, cat(where, ": ", text));
}

json model_to_json(const CheckpointInfo& info) {
  json model = info.model_extra;
  if (!model.is_object()) model = json::object();
  core::TransformerConfig::fields(
      [&](const char* name, auto member, const char*) { model[name] = info.model.*member; });
  return model;
}

void model_from_json(const json& model, CheckpointInfo& info, std::string_view where) {
  info.model_extra = model;
  info.model.hidden_dropout = info.model.attention_dropout = 0;  // for a file from before dropout was stored
  core::TransformerConfig::fields([&](const char* name, auto member, const char*) {
    auto& field = info.model.*member;
    using T = std::decay_t<decltype(field)>;
    const auto found = model.find(name);
    if (found == model.end()) return;  // a field newer than the file: keep its default
    const bool fits = std::is_same_v<T, bool>          ? found->is_boolean()
                      : std::is_same_v<T, std::string> ? found->is_string()
                      : std::is_same_v<T, int64_t>     ? found->is_number_integer()
                                                       : found->is_number();
    if (!fits) corrupt(where, cat("model: \"", name, "\" is ", found->dump().substr(0, 80), ", of the wrong type"));
    field = found->get<T>();
    info.model_extra.erase(name);
  });
}

// A list of sizes whose product does not overflow: checked before anything is allocated or multiplied.
core::Dims dims_from_json(const json& list, std::string_view where) {
  if (!list.is_array()) corrupt(where, "expected a list of sizes");
  if (list.size() > layout::kMaxAxes)
    corrupt(where, cat(list.size(), " axes; a tensor has at most ", layout::kMaxAxes));
  core::Dims dims;
  int64_t product = 1;
  for (const json& item : list) {
    if (!item.is_number_integer() || item < 0 || item > (int64_t{1} << 48)) {
      corrupt(where, cat(item.dump().substr(0, 40), " is not a size"));
    }
    dims.push_back(item.get<int64_t>());
    if (__builtin_mul_overflow(product, std::max<int64_t>(dims.back(), 1), &product) || product > int64_t{1} << 58) {
      corrupt(where, cat("shape ", list.dump().substr(0, 200), " is too large"));
    }
  }
  return dims;
}

core::TensorRole role_from_json(const json& item, std::string_view where) {
  try {
    return core::parse_role(core::json_string(item, "role", where));
  } catch (const Error& e) {
    throw e.within(where);
  }
}

constexpr const char* kFilter = "shuffle-zstd";

bool is_compressed(const json& box, std::string_view where) {
  if (!box.contains("filter")) return false;
  const std::string filter = core::json_string(box, "filter", where);
  if (filter == kFilter) return true;
  throw Error(ErrorCode::kUnsupported, cat(where, ": filter \"", filter, "\"; this program reads ", kFilter));
}

// Adds one entry of "tensors" to the table.
void add_tensor_from_json(const json& item, Manifest& manifest, std::string_view where) {
  const std::string name = core::json_string(item, "name", where);
  const std::string place = cat(where, ": ", name);
  const core::TensorRole role = role_from_json(item, place);
  const std::string dtype_text = core::json_string(item, "dtype", place);
  const auto dtype = core::parse_dtype(dtype_text);
  if (!dtype) corrupt(place, cat("dtype \"", dtype_text, "\" is not known"));
  const core::Dims shape = dims_from_json(core::json_array(item, "shape", place), place);
  const uint64_t logical = core::parse_hex16(core::json_string(item, "logical_xxh3", place), place);
  const int32_t tensor = detail::add_listed_tensor(manifest, name, role, *dtype, shape, logical, where);
  std::vector<uint64_t> chunks;
  for (const json& box : core::json_array(item, "boxes", place)) {
    const std::string dataset = core::json_string(box, "dataset", place);
    const auto copy = dataset_copy(dataset, name, role);
    if (!copy) corrupt(place, cat("\"", dataset, "\" is not a dataset of this tensor"));
    const std::string hashes = core::json_string(box, "xxh3", place);
    if (hashes.size() % 16 != 0) corrupt(place, cat("chunk hashes of ", hashes.size(), " digits"));
    chunks.clear();
    for (size_t i = 0; i < hashes.size(); i += 16) {
      chunks.push_back(core::parse_hex16(std::string_view(hashes).substr(i, 16), place));
    }
    detail::add_listed_box(manifest, tensor, dims_from_json(core::json_array(box, "offset", place), place),
                           dims_from_json(core::json_array(box, "shape", place), place),
                           core::json_integer(box, "file", place), *copy, core::json_integer(box, "at", place), chunks,
                           is_compressed(box, place), where);
  }
}

// Checks the file and offset of every box.
void check_places(const Manifest& manifest, std::string_view where) {
  for (size_t i = 0; i < manifest.boxes.size(); ++i) {
    const BoxPlace& place = manifest.places[i];
    const auto refuse = [&](const std::string& text) {
      corrupt(where, cat(manifest.boxes.key(manifest.boxes.tensor_of(i)), ": ", text));
    };
    if (place.file < 0 || place.file >= static_cast<int32_t>(manifest.files.size()) ||
        place.file == manifest.table_file) {
      refuse(cat("file ", place.file, " of ", manifest.files.size(), " is not a rank file"));
    }
    const ManifestFile& file = manifest.file_of(i);
    const int64_t size = manifest.placed_bytes(i);
    if (place.at < 0 || size > file.bytes || place.at > file.bytes - size) {
      refuse(cat("bytes ", place.at, " + ", size, " lie outside ", file.name, " of ", file.bytes, " bytes"));
    }
  }
}

std::vector<ManifestFile> files_from_json(const json& list, std::string_view where) {
  std::vector<ManifestFile> files;
  std::set<std::string> names;
  for (const json& item : list) {
    ManifestFile file;
    file.name = core::json_string(item, "name", where);
    if (file.name.empty() || file.name[0] == '.' || file.name.find('/') != std::string::npos ||
        file.name.find('\0') != std::string::npos || !names.insert(file.name).second) {
      corrupt(where, cat("\"", file.name, "\" is not a plain file name, or is listed twice"));
    }
    file.bytes = core::json_integer(item, "bytes", where);
    if (file.bytes < 0) corrupt(where, cat(file.name, ": ", file.bytes, " bytes"));
    file.xxh3 = core::parse_hex16(core::json_string(item, "xxh3", where), where);
    file.linked = item.value("linked", json(false)) == true;
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

void Manifest::add_box(int32_t tensor, std::span<const int64_t> offset, std::span<const int64_t> shape, int32_t file,
                       int32_t copy, int64_t at, std::span<const uint64_t> chunks, bool compressed) {
  boxes.add_shard(tensor, offset, shape);
  places.push_back({.file = file, .compressed = compressed, .copy = copy, .at = at});
  first_chunk.push_back(static_cast<uint32_t>(chunk_xxh3.size()));
  chunk_xxh3.insert(chunk_xxh3.end(), chunks.begin(), chunks.end());
}

int64_t Manifest::placed_bytes(size_t box) const {
  const int64_t size = boxes.size_bytes(box);
  return places[box].compressed ? chunks_in(size) * kChunkEntryBytes : size;
}

std::span<const uint64_t> Manifest::chunks_of(size_t box) const {
  return {chunk_xxh3.data() + first_chunk[box], static_cast<size_t>(chunks_in(boxes.size_bytes(box)))};
}

std::string Manifest::dataset_of(size_t box) const {
  const int32_t tensor = boxes.tensor_of(box);
  return dataset_name(boxes.key(tensor), boxes.role(tensor), places[box].copy);
}

int64_t Manifest::tensor_bytes() const {
  int64_t bytes = 0;
  for (size_t t = 0; t < boxes.num_tensors(); ++t) bytes += boxes.tensor_bytes(static_cast<int32_t>(t));
  return bytes;
}

std::string_view dataset_group(core::TensorRole role) {
  switch (role) {
    case core::TensorRole::kParam:
      return "/model";
    case core::TensorRole::kMaster:
      return "/optim/master";
    case core::TensorRole::kExpAvg:
      return "/optim/exp_avg";
    case core::TensorRole::kExpAvgSq:
      return "/optim/exp_avg_sq";
    case core::TensorRole::kMomentumBuffer:
      return "/optim/momentum_buffer";
    case core::TensorRole::kBuffer:
      return "/buffers";
  }
  return "";
}

std::string dataset_name(std::string_view key, core::TensorRole role, int32_t copy) {
  if (copy == BoxPlace::kPacked) return cat("/packed/", core::role_name(role));
  return copy == 0 ? cat(dataset_group(role), "/", key) : cat(dataset_group(role), "/", key, "#", copy);
}

std::optional<int32_t> dataset_copy(std::string_view dataset, std::string_view key, core::TensorRole role) {
  if (dataset == dataset_name(key, role, BoxPlace::kPacked)) return BoxPlace::kPacked;
  const std::string plain = dataset_name(key, role, 0);
  if (dataset.substr(0, plain.size()) != plain) return std::nullopt;
  if (dataset.size() == plain.size()) return 0;
  int32_t copy = 0;
  const auto [end, error] = std::from_chars(dataset.data() + plain.size() + 1, dataset.data() + dataset.size(), copy);
  if (error != std::errc() || end != dataset.data() + dataset.size() || copy < 1) return std::nullopt;
  return dataset == dataset_name(key, role, copy) ? std::optional(copy) : std::nullopt;
}

uint64_t manifest_self_hash(std::string text, std::string_view where) {
  const size_t key = text.rfind(kSelfKey);
  if (key == std::string::npos || key + kSelfKey.size() + 17 > text.size()) corrupt(where, "it has no self_xxh3");
  text.replace(key + kSelfKey.size(), 16, 16, '0');
  return kernels::xxh3(text.data(), text.size());
}

std::string dump_manifest(const Manifest& manifest) {
  json files = json::array(), tensors = json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", core::hex16(file.xxh3)}});
    if (file.linked) files.back()["linked"] = true;
  }
  const ShardTable& table = manifest.boxes;
  size_t box = 0;
  for (size_t t = 0; t < table.num_tensors() && manifest.table_file < 0; ++t) {
    const auto tensor = static_cast<int32_t>(t);
    json boxes = json::array();
    for (; box < table.size() && table.tensor_of(box) == tensor; ++box) {
      std::string hashes;
      for (const uint64_t hash : manifest.chunks_of(box)) hashes += core::hex16(hash);
      boxes.push_back({{"file", manifest.places[box].file},
                       {"dataset", manifest.dataset_of(box)},
                       {"offset", table.offsets(box)},
                       {"shape", table.extents(box)},
                       {"at", manifest.places[box].at},
                       {"xxh3", hashes}});
      if (manifest.places[box].compressed) boxes.back()["filter"] = kFilter;
    }
    const auto shape = table.global_shape(tensor);
    tensors.push_back({{"name", table.key(tensor)},
                       {"role", core::role_name(table.role(tensor))},
                       {"dtype", core::dtype_name(table.dtype(tensor))},
                       {"shape", core::Dims(shape.begin(), shape.end())},
                       {"logical_xxh3", core::hex16(manifest.logical_xxh3[t])},
                       {"boxes", std::move(boxes)}});
  }
  // nlohmann's objects are sorted by key, so the text depends only on the content. self_xxh3 is appended by hand.
  json document = {{"format_version", kFormatVersion},
                   {"producer", manifest.producer},
                   {"iteration", manifest.info.iteration},
                   {"attempt", manifest.attempt},
                   {"durability", manifest.durable ? "full" : "weak"},
                   {"layout", manifest.info.layout},
                   {"model", model_to_json(manifest.info)},
                   {"common", manifest.info.common},
                   {"files", std::move(files)}};
  if (manifest.table_file >= 0) {
    document["table"] = {{"file", manifest.table_file}, {"tensors", table.num_tensors()}, {"boxes", table.size()}};
  } else {
    document["tensors"] = std::move(tensors);
  }
  std::string text = cat("{\"magic\":\"", kMagic, "\",", document.dump().substr(1));
  text.pop_back();
  text += cat(",", kSelfKey, std::string(16, '0'), "\"}\n");
  const uint64_t hash = kernels::xxh3(text.data(), text.size());
  text.replace(text.size() - 19, 16, core::hex16(hash));
  return text;
}

Manifest parse_manifest(std::string_view text, std::string_view where, const std::filesystem::path& directory) {
  // Check the hash first: damage should not be reported as some other error.
  std::optional<uint64_t> seen;
  if (const size_t key = text.rfind(kSelfKey); key != std::string::npos && key + kSelfKey.size() + 17 <= text.size()) {
    seen = manifest_self_hash(std::string(text), where);
    const std::string_view digits = text.substr(key + kSelfKey.size(), 16);
    if (digits != core::hex16(*seen)) {
      corrupt(where, cat("self_xxh3 is ", digits, " but the document hashes to ", core::hex16(*seen),
                         ": it was changed or damaged"));
    }
  }
  Manifest manifest;
  // Entries of "tensors" are added to the table one by one and dropped from the document, which thus stays small.
  bool in_tensors = false, tensors_seen = false;
  const json document = core::parse_json(text, where, [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth == 1 && event == json::parse_event_t::key) {
      in_tensors = parsed == "tensors";
      if (in_tensors && tensors_seen) corrupt(where, "it has two lists of tensors");
      tensors_seen = tensors_seen || in_tensors;
    } else if (depth == 2 && in_tensors && event == json::parse_event_t::object_end) {
      add_tensor_from_json(parsed, manifest, where);
      return false;
    }
    return true;
  });
  if (!document.is_object() || document.value("magic", json()) != kMagic) {
    corrupt(where, cat("not a checkpoint manifest: \"magic\" is not \"", kMagic, "\""));
  }
  if (core::parse_hex16(core::json_string(document, "self_xxh3", where), where) != seen) {
    corrupt(where, "self_xxh3 is not the last member");
  }
  if (const int64_t version = core::json_integer(document, "format_version", where); version != kFormatVersion) {
    throw Error(ErrorCode::kUnsupported, cat(where, ": format_version ", version, "; this program reads version ",
                                             kFormatVersion, ". Use a newer msuite."));
  }
  manifest.producer = core::json_string(document, "producer", where);
  manifest.attempt = core::json_integer(document, "attempt", where);
  manifest.durable = document.value("durability", json("full")) == "full";
  manifest.info.iteration = core::json_integer(document, "iteration", where);
  manifest.info.layout = core::json_object(document, "layout", where);
  manifest.info.common = core::json_object(document, "common", where);
  model_from_json(core::json_object(document, "model", where), manifest.info, where);
  manifest.files = files_from_json(core::json_array(document, "files", where), where);
  if (document.contains("table") && !tensors_seen) {
    const json& table = core::json_object(document, "table", where);
    const int64_t file = core::json_count(table, "file", where);
    if (file >= static_cast<int64_t>(manifest.files.size())) corrupt(where, cat("table: file ", file));
    manifest.table_file = static_cast<int32_t>(file);
    detail::read_table((directory / manifest.files[static_cast<size_t>(file)].name).string(),
                       manifest.files[static_cast<size_t>(file)], core::json_count(table, "tensors", where),
                       core::json_count(table, "boxes", where), manifest);
  } else if (!core::json_array(document, "tensors", where).empty()) {
    corrupt(where, "\"tensors\": expected a list of objects");
  }
  check_places(manifest, where);
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& directory) {
  core::confine_reads(directory.string());
  const std::string path = (directory / kManifestName).string();
  return parse_manifest(core::read_text(path, kMaxManifestBytes), path, directory);
}

void write_manifest(const std::filesystem::path& directory, Manifest& manifest, size_t max_json_boxes) {
  if (manifest.boxes.size() > max_json_boxes) {
    if (manifest.table_file < 0) {
      manifest.table_file = static_cast<int32_t>(manifest.files.size());
      manifest.files.push_back({kTableName});
    }
    manifest.files[static_cast<size_t>(manifest.table_file)] =
        detail::write_table((directory / kTableName).string(), manifest);
  }
  core::write_text_atomically((directory / kManifestName).string(), dump_manifest(manifest));
}

}  // namespace ms::ckpt
