#include "ckpt/detail/assemble.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "ckpt/plan.h"
#include "core/error.h"

namespace ms::ckpt {

using nlohmann::json;

void assemble_tensors(Manifest& manifest, const std::vector<RankFileRecord>& records) {
  struct Parts {
    size_t tensor = 0;  // index into manifest.tensors
    std::vector<core::ShardedTensor> shards;
    LogicalPartial logical;
  };
  std::map<std::pair<std::string, core::TensorRole>, Parts> by_name;
  manifest.files.clear();
  manifest.tensors.clear();
  for (const RankFileRecord& record : records) {
    if (record.boxes.empty()) continue;
    const auto file = static_cast<int32_t>(manifest.files.size());
    manifest.files.push_back({record.name, record.bytes, record.xxh3});
    for (size_t i = 0; i < record.boxes.size(); ++i) {
      const BoxRecord& box = record.boxes[i];
      const auto [entry, is_new] = by_name.try_emplace({box.tensor.key, box.tensor.role});
      Parts& parts = entry->second;
      if (is_new) {
        parts.tensor = manifest.tensors.size();
        manifest.tensors.push_back({box.tensor.key, box.tensor.role, box.tensor.dtype, box.tensor.global_shape, 0, {}});
      }
      ManifestTensor& tensor = manifest.tensors[parts.tensor];
      MS_CHECK(tensor.dtype == box.tensor.dtype && tensor.shape == box.tensor.global_shape, tensor.name, " in ",
               record.name, ": ", core::dtype_name(box.tensor.dtype), " ", box.tensor.global_shape,
               ", but another rank has ", core::dtype_name(tensor.dtype), " ", tensor.shape);
      tensor.boxes.push_back(
          {file, box.dataset, box.tensor.global_offset, box.tensor.local_shape, box.at, box.chunk_xxh3});
      parts.shards.push_back(box.tensor);
      parts.logical.merge(record.logical[i]);
    }
  }
  for (auto& [name, parts] : by_name) {
    const auto findings = check_coverage(parts.shards, 1);
    MS_CHECK(findings.empty(), "the ranks' shards do not make a tensor: ", findings.front());
    ManifestTensor& tensor = manifest.tensors[parts.tensor];
    tensor.logical_xxh3 = finish_logical(tensor.dtype, tensor.shape, parts.logical);
    parts.logical = {};
  }
}

std::string encode_record(const RankFileRecord& record) {
  json boxes = json::array();
  for (size_t i = 0; i < record.boxes.size(); ++i) {
    const BoxRecord& box = record.boxes[i];
    const LogicalPartial& logical = record.logical[i];
    std::vector<uint8_t> cut(logical.bytes.size());
    if (!cut.empty()) std::memcpy(cut.data(), logical.bytes.data(), cut.size());
    json pieces = json::array();
    for (const auto& piece : logical.pieces) {
      pieces.push_back(piece.cell);
      pieces.push_back(piece.begin);
      pieces.push_back(piece.count);
    }
    boxes.push_back({{"key", box.tensor.key},
                     {"role", static_cast<int>(box.tensor.role)},
                     {"dtype", static_cast<int>(box.tensor.dtype)},
                     {"global_shape", box.tensor.global_shape},
                     {"global_offset", box.tensor.global_offset},
                     {"local_shape", box.tensor.local_shape},
                     {"dataset", box.dataset},
                     {"at", box.at},
                     {"chunk_xxh3", box.chunk_xxh3},
                     {"sum", logical.sum},
                     {"pieces", std::move(pieces)},
                     {"cut", json::binary(std::move(cut))}});
  }
  const json message = {
      {"name", record.name}, {"bytes", record.bytes}, {"xxh3", record.xxh3}, {"boxes", std::move(boxes)}};
  std::string bytes;
  json::to_cbor(message, bytes);
  return bytes;
}

RankFileRecord decode_record(const std::string& bytes) {
  const json message = json::from_cbor(bytes);
  RankFileRecord record;
  record.name = message.at("name").get<std::string>();
  record.bytes = message.at("bytes").get<int64_t>();
  record.xxh3 = message.at("xxh3").get<uint64_t>();
  for (const json& item : message.at("boxes")) {
    BoxRecord box;
    box.tensor = {item.at("key").get<std::string>(),
                  static_cast<core::TensorRole>(item.at("role").get<int>()),
                  static_cast<core::DType>(item.at("dtype").get<int>()),
                  item.at("global_shape").get<core::Dims>(),
                  item.at("global_offset").get<core::Dims>(),
                  item.at("local_shape").get<core::Dims>(),
                  0};
    box.dataset = item.at("dataset").get<std::string>();
    box.at = item.at("at").get<int64_t>();
    box.chunk_xxh3 = item.at("chunk_xxh3").get<std::vector<uint64_t>>();
    LogicalPartial logical;
    logical.sum = item.at("sum").get<uint64_t>();
    const json& pieces = item.at("pieces");
    for (size_t i = 0; i + 2 < pieces.size(); i += 3) {
      logical.pieces.push_back(
          {pieces[i].get<uint64_t>(), pieces[i + 1].get<uint32_t>(), pieces[i + 2].get<uint32_t>()});
    }
    const auto& cut = item.at("cut").get_binary();
    logical.bytes.resize(cut.size());
    if (!cut.empty()) std::memcpy(logical.bytes.data(), cut.data(), cut.size());
    record.boxes.push_back(std::move(box));
    record.logical.push_back(std::move(logical));
  }
  return record;
}

}  // namespace ms::ckpt
