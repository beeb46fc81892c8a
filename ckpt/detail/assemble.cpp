#include "ckpt/detail/assemble.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "ckpt/plan.h"
#include "core/error.h"
#include "core/io/json.h"

namespace ms::ckpt {

using nlohmann::json;

void assemble_tensors(Manifest& manifest, const std::vector<RankFileRecord>& records,
                      const std::filesystem::path& directory) {
  manifest.files.clear();
  manifest.boxes = {};
  manifest.places.clear();
  manifest.first_chunk.clear();
  manifest.chunk_xxh3.clear();
  manifest.logical_xxh3.clear();
  // The table is faster with boxes sorted by tensor; the records have them by rank.
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
        MS_CHECK(false, record.name, ": it differs from another rank's: ", e.what());
      }
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.tensor < b.tensor; });
  for (const Entry& entry : entries) {
    const BoxRecord& box = entry.record->boxes[entry.box];
    const auto copy = dataset_copy(box.dataset, box.tensor.key, box.tensor.role);
    MS_CHECK(copy, box.dataset, " is not a dataset of ", box.tensor.key);
    manifest.add_box(entry.tensor, box.tensor.global_offset, box.tensor.local_shape, entry.file, *copy, box.at,
                     box.chunk_xxh3, box.compressed);
  }
  const auto findings = check_coverage(manifest.boxes, 1);
  MS_CHECK(findings.empty(), "the ranks' shards do not tile the tensor: ", findings.front());
  std::map<const RankFileRecord*, CutCellsReader> cut_cells;
  for (const RankFileRecord& record : records) {
    if (!record.cut_cells.empty()) cut_cells.emplace(&record, (directory / record.cut_cells).string());
  }
  for (auto entry = entries.begin(); entry != entries.end();) {
    const int32_t tensor = entry->tensor;
    LogicalPartial logical;  // one tensor at a time
    for (; entry != entries.end() && entry->tensor == tensor; ++entry) {
      logical.merge(entry->record->logical[entry->box]);
      const auto cut = cut_cells.find(entry->record);
      if (cut != cut_cells.end()) cut->second.put_back(static_cast<int32_t>(entry->box), logical);
    }
    const auto shape = manifest.boxes.global_shape(tensor);
    manifest.logical_xxh3.push_back(
        finish_logical(manifest.boxes.dtype(tensor), {shape.begin(), shape.end()}, logical));
  }
  for (const RankFileRecord& record : records) {
    if (!record.cut_cells.empty()) std::filesystem::remove(directory / record.cut_cells);
  }
}

namespace {

template <class T>
json binary(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return json::binary(std::move(bytes));
}

template <class T>
std::vector<T> from_binary(const json& item) {
  const auto& bytes = item.get_binary();
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

json record_to_json(const RankFileRecord& record) {
  json boxes = json::array();
  for (size_t i = 0; i < record.boxes.size(); ++i) {
    const BoxRecord& box = record.boxes[i];
    const LogicalPartial& logical = record.logical[i];
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
                     {"pieces", binary(logical.pieces)},
                     {"cut", binary(logical.bytes)}});
  }
  return {{"name", record.name},     {"bytes", record.bytes},         {"xxh3", record.xxh3},
          {"linked", record.linked}, {"cut_cells", record.cut_cells}, {"boxes", std::move(boxes)}};
}

RankFileRecord record_from_json(const json& message) {
  RankFileRecord record;
  record.linked = message.at("linked").get<bool>();
  record.cut_cells = message.at("cut_cells").get<std::string>();
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
    logical.pieces = from_binary<LogicalPartial::Piece>(item.at("pieces"));
    logical.bytes = from_binary<std::byte>(item.at("cut"));
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
