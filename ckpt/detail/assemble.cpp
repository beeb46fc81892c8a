#include "ckpt/detail/assemble.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ckpt/plan.h"
#include "core/error.h"

namespace ms::ckpt {

using nlohmann::json;

void assemble_tensors(Manifest& manifest, const std::vector<RankFileRecord>& records) {
  manifest.files.clear();
  manifest.boxes = {};
  manifest.places.clear();
  manifest.chunk_xxh3.clear();
  manifest.logical_xxh3.clear();
  // The table wants its boxes tensor by tensor; the records have them rank by rank.
  struct Entry {
    int32_t tensor, file;
    const RankFileRecord* record;
    size_t box;
  };
  std::vector<Entry> entries;
  for (const RankFileRecord& record : records) {
    if (record.boxes.empty()) continue;
    const auto file = static_cast<int32_t>(manifest.files.size());
    manifest.files.push_back({record.name, record.bytes, record.xxh3, record.linked});
    for (size_t i = 0; i < record.boxes.size(); ++i) {
      const core::ShardedTensor& box = record.boxes[i].tensor;
      try {
        entries.push_back(
            {manifest.boxes.add_tensor(box.key, box.role, box.dtype, box.global_shape), file, &record, i});
      } catch (const core::Error& e) {
        MS_CHECK(false, record.name, ": another rank has it differently: ", e.what());
      }
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.tensor < b.tensor; });
  std::vector<LogicalPartial> logical(manifest.boxes.num_tensors());
  for (const Entry& entry : entries) {
    const BoxRecord& box = entry.record->boxes[entry.box];
    const auto copy = dataset_copy(box.dataset, box.tensor.key, box.tensor.role);
    MS_CHECK(copy, box.dataset, " is not a dataset of ", box.tensor.key);
    manifest.add_box(entry.tensor, box.tensor.global_offset, box.tensor.local_shape, entry.file, *copy, box.at,
                     box.chunk_xxh3, box.compressed);
    logical[static_cast<size_t>(entry.tensor)].merge(entry.record->logical[entry.box]);
  }
  const auto findings = check_coverage(manifest.boxes, 1);
  MS_CHECK(findings.empty(), "the ranks' shards do not make a tensor: ", findings.front());
  for (size_t t = 0; t < logical.size(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const auto shape = manifest.boxes.global_shape(tensor);
    manifest.logical_xxh3.push_back(
        finish_logical(manifest.boxes.dtype(tensor), {shape.begin(), shape.end()}, logical[t]));
    logical[t] = {};
  }
}

namespace {

json record_to_json(const RankFileRecord& record) {
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
                     {"compressed", box.compressed},
                     {"sum", logical.sum},
                     {"pieces", std::move(pieces)},
                     {"cut", json::binary(std::move(cut))}});
  }
  return {{"name", record.name},
          {"bytes", record.bytes},
          {"xxh3", record.xxh3},
          {"linked", record.linked},
          {"boxes", std::move(boxes)}};
}

RankFileRecord record_from_json(const json& message) {
  RankFileRecord record;
  record.linked = message.at("linked").get<bool>();
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
    box.compressed = item.at("compressed").get<bool>();
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

}  // namespace

std::string encode_records(const std::vector<RankFileRecord>& records) {
  json message = json::array();
  for (const RankFileRecord& record : records) message.push_back(record_to_json(record));
  std::string bytes;
  json::to_cbor(message, bytes);
  return bytes;
}

std::vector<RankFileRecord> decode_records(const std::string& bytes) {
  std::vector<RankFileRecord> records;
  for (const json& message : json::from_cbor(bytes)) records.push_back(record_from_json(message));
  return records;
}

}  // namespace ms::ckpt
