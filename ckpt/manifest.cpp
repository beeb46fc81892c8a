#include "ckpt/manifest.h"

#include <set>

#include "ckpt/detail/rank_file.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
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
  info.model.hidden_dropout = info.model.attention_dropout = 0;  // of a file from before there was any
  core::TransformerConfig::fields([&](const char* name, auto member, const char*) {
    auto& field = info.model.*member;
    using T = std::decay_t<decltype(field)>;
    const auto found = model.find(name);
    if (found == model.end()) return;  // a field newer than the file keeps its default
    const bool fits = std::is_same_v<T, bool>          ? found->is_boolean()
                      : std::is_same_v<T, std::string> ? found->is_string()
                      : std::is_same_v<T, int64_t>     ? found->is_number_integer()
                                                       : found->is_number();
    if (!fits) corrupt(where, cat("model: \"", name, "\" is ", found->dump().substr(0, 80), ", of the wrong type"));
    field = found->get<T>();
    info.model_extra.erase(name);
  });
}

// A list of sizes whose product fits: checked before anything is allocated or multiplied.
core::Dims dims_from_json(const json& list, std::string_view where) {
  if (!list.is_array() || list.size() > 16) corrupt(where, "expected a list of at most 16 sizes");
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

ManifestBox box_from_json(const json& item, const ManifestTensor& tensor, const std::vector<ManifestFile>& files,
                          const std::string& where) {
  ManifestBox box;
  const int64_t file = core::json_integer(item, "file", where);
  if (file < 0 || file >= static_cast<int64_t>(files.size())) {
    corrupt(where, cat("file ", file, " of ", files.size()));
  }
  box.file = static_cast<int32_t>(file);
  box.dataset = core::json_string(item, "dataset", where);
  box.offset = dims_from_json(core::json_array(item, "offset", where), where);
  box.shape = dims_from_json(core::json_array(item, "shape", where), where);
  if (box.offset.size() != tensor.shape.size() || box.shape.size() != tensor.shape.size()) {
    corrupt(where, cat("box ", box.offset, " + ", box.shape, " in a tensor of shape ", tensor.shape));
  }
  for (size_t axis = 0; axis < box.shape.size(); ++axis) {
    if (box.shape[axis] == 0 || box.offset[axis] > tensor.shape[axis] - box.shape[axis]) {
      corrupt(where, cat("box ", box.offset, " + ", box.shape, " does not lie in a tensor of shape ", tensor.shape));
    }
  }
  box.at = core::json_integer(item, "at", where);
  const int64_t size = core::num_elements(box.shape) * core::size_of(tensor.dtype);
  const ManifestFile& holder = files[static_cast<size_t>(file)];
  if (box.at < 0 || size > holder.bytes || box.at > holder.bytes - size) {
    corrupt(where, cat("bytes ", box.at, " + ", size, " do not lie in ", holder.name, " of ", holder.bytes, " bytes"));
  }
  const std::string hashes = core::json_string(item, "xxh3", where);
  const auto chunks = static_cast<size_t>((size + kChunkBytes - 1) / kChunkBytes);
  if (hashes.size() != chunks * 16) corrupt(where, cat(hashes.size() / 16, " chunk hashes, expected ", chunks));
  for (size_t i = 0; i < chunks; ++i) {
    box.chunk_xxh3.push_back(core::parse_hex16(std::string_view(hashes).substr(i * 16, 16), where));
  }
  return box;
}

}  // namespace

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
  }
  for (const ManifestTensor& tensor : manifest.tensors) {
    json boxes = json::array();
    for (const ManifestBox& box : tensor.boxes) {
      std::string hashes;
      for (const uint64_t hash : box.chunk_xxh3) hashes += core::hex16(hash);
      boxes.push_back({{"file", box.file},
                       {"dataset", box.dataset},
                       {"offset", box.offset},
                       {"shape", box.shape},
                       {"at", box.at},
                       {"xxh3", hashes}});
    }
    tensors.push_back({{"name", tensor.name},
                       {"role", core::role_name(tensor.role)},
                       {"dtype", core::dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"logical_xxh3", core::hex16(tensor.logical_xxh3)},
                       {"boxes", std::move(boxes)}});
  }
  // nlohmann's objects are sorted by key, so the text is a function of the content. self_xxh3 is put at the end by
  // hand.
  json document = {{"format_version", kFormatVersion},
                   {"producer", manifest.producer},
                   {"iteration", manifest.info.iteration},
                   {"attempt", manifest.attempt},
                   {"durability", manifest.durable ? "full" : "weak"},
                   {"layout", manifest.info.layout},
                   {"model", model_to_json(manifest.info)},
                   {"common", manifest.info.common},
                   {"files", std::move(files)},
                   {"tensors", std::move(tensors)}};
  std::string text = cat("{\"magic\":\"", kMagic, "\",", document.dump().substr(1));
  text.pop_back();
  text += cat(",", kSelfKey, std::string(16, '0'), "\"}\n");
  const uint64_t hash = kernels::xxh3(text.data(), text.size());
  text.replace(text.size() - 19, 16, core::hex16(hash));
  return text;
}

Manifest parse_manifest(std::string_view text, std::string_view where) {
  const json document = core::parse_json(text, where);
  if (!document.is_object() || document.value("magic", json()) != kMagic) {
    corrupt(where, cat("not a checkpoint manifest: \"magic\" is not \"", kMagic, "\""));
  }
  const uint64_t self = core::parse_hex16(core::json_string(document, "self_xxh3", where), where);
  if (const uint64_t seen = manifest_self_hash(std::string(text), where); seen != self) {
    corrupt(where, cat("self_xxh3 is ", core::hex16(self), " but the document hashes to ", core::hex16(seen),
                       ": it was changed or damaged"));
  }
  if (const int64_t version = core::json_integer(document, "format_version", where); version != kFormatVersion) {
    throw Error(ErrorCode::kUnsupported, cat(where, ": format_version ", version, "; this program reads version ",
                                             kFormatVersion, ". Use a newer msuite."));
  }
  Manifest manifest;
  manifest.producer = core::json_string(document, "producer", where);
  manifest.attempt = core::json_integer(document, "attempt", where);
  manifest.durable = document.value("durability", json("full")) == "full";
  manifest.info.iteration = core::json_integer(document, "iteration", where);
  manifest.info.layout = core::json_object(document, "layout", where);
  manifest.info.common = core::json_object(document, "common", where);
  model_from_json(core::json_object(document, "model", where), manifest.info, where);
  std::set<std::string> names;
  for (const json& item : core::json_array(document, "files", where)) {
    ManifestFile file;
    file.name = core::json_string(item, "name", where);
    if (file.name.empty() || file.name[0] == '.' || file.name.find('/') != std::string::npos ||
        file.name.find('\0') != std::string::npos || !names.insert(file.name).second) {
      corrupt(where, cat("\"", file.name, "\" is not a name of a file in this directory, or comes twice"));
    }
    file.bytes = core::json_integer(item, "bytes", where);
    if (file.bytes < 0) corrupt(where, cat(file.name, ": ", file.bytes, " bytes"));
    file.xxh3 = core::parse_hex16(core::json_string(item, "xxh3", where), where);
    manifest.files.push_back(std::move(file));
  }
  std::set<std::pair<std::string, core::TensorRole>> keys;
  for (const json& item : core::json_array(document, "tensors", where)) {
    ManifestTensor tensor;
    tensor.name = core::json_string(item, "name", where);
    const std::string place = cat(where, ": ", tensor.name);
    tensor.role = core::parse_role(core::json_string(item, "role", place));
    const std::string dtype = core::json_string(item, "dtype", place);
    const auto parsed = core::parse_dtype(dtype);
    if (!parsed) corrupt(place, cat("dtype \"", dtype, "\" is not known"));
    tensor.dtype = *parsed;
    tensor.shape = dims_from_json(core::json_array(item, "shape", place), place);
    tensor.logical_xxh3 = core::parse_hex16(core::json_string(item, "logical_xxh3", place), place);
    if (!keys.insert({tensor.name, tensor.role}).second) corrupt(place, "the tensor is listed twice");
    for (const json& box : core::json_array(item, "boxes", place)) {
      tensor.boxes.push_back(box_from_json(box, tensor, manifest.files, place));
    }
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& directory) {
  const std::string path = (directory / kManifestName).string();
  return parse_manifest(core::read_text(path, kMaxManifestBytes), path);
}

}  // namespace ms::ckpt
