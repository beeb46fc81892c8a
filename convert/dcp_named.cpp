#include "convert/dcp_named.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "convert/detail/printable.h"
#include "convert/torch/dcp_reader.h"
#include "core/error.h"
#include "core/layout/box.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Dims;
using core::TensorRole;

constexpr int64_t kMaxObjectBytes = 256 << 20;

// Presents each chunk of each tensor as a tensor of a file.
class DcpChunks final : public TensorFile {
 public:
  explicit DcpChunks(std::shared_ptr<const DcpReader> reader) : reader_(std::move(reader)) {}

  size_t add(const std::string& name, const DcpReader::Tensor& tensor, const DcpReader::Chunk& chunk) {
    entries_.push_back({&name, &tensor, &chunk, {chunk.extent.begin(), chunk.extent.end()}, end_});
    end_ += static_cast<uint64_t>(core::num_elements(chunk.extent)) * (bits_of(tensor.dtype) / 8);
    return entries_.size() - 1;
  }

  const std::string& path() const override { return reader_->folder(); }
  size_t size() const override { return entries_.size(); }
  Tensor operator[](size_t index) const override {
    const Entry& entry = entries_[index];
    const uint64_t end = index + 1 < entries_.size() ? entries_[index + 1].at : end_;
    return {*entry.name, entry.tensor->dtype, entry.shape, entry.at, end};
  }
  std::optional<size_t> find(std::string_view name) const override {  // the first chunk
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (*entries_[i].name == name) return i;
    }
    return std::nullopt;
  }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    if (out.empty()) return;
    const auto after = std::upper_bound(entries_.begin(), entries_.end(), offset,
                                        [](uint64_t at, const Entry& entry) { return at < entry.at; });
    MS_CHECK(after != entries_.begin(), "byte ", offset, " is in no tensor");
    const Entry& entry = *std::prev(after);
    const auto item = static_cast<int64_t>(bits_of(entry.tensor->dtype) / 8);
    const int64_t first = static_cast<int64_t>(offset - entry.at) / item;
    const int64_t count = static_cast<int64_t>(out.size()) / item;
    layout::for_each_box_of_range(entry.chunk->extent, first, count, [&](const layout::Box& box, int64_t at) {
      reader_->read(*entry.tensor, *entry.chunk, box.offset, box.extent, out.data() + (at - first) * item);
    });
  }

 private:
  struct Entry {
    const std::string* name;
    const DcpReader::Tensor* tensor;
    const DcpReader::Chunk* chunk;
    std::vector<uint64_t> shape;
    uint64_t at;  // offset in the concatenation of all chunks
  };
  std::shared_ptr<const DcpReader> reader_;
  std::vector<Entry> entries_;  // ordered by `at`
  uint64_t end_ = 0;
};

std::string step_text(const DcpPath::value_type& step) {
  const auto* name = std::get_if<std::string>(&step);
  return name != nullptr ? *name : cat(std::get<int64_t>(step));
}

std::string joined(const DcpPath& path, size_t first) {
  std::string out;
  for (size_t i = first; i < path.size(); ++i) out += cat(i == first ? "" : ".", step_text(path[i]));
  return out;
}

struct OptimizerEntry {
  std::string parameter, field;
};

// Parses ("optim", "state", NAME, "exp_avg") or, flattened, ("optim", "state.NAME.exp_avg").
std::optional<OptimizerEntry> optimizer_entry(const DcpPath& path) {
  if (path.size() > 2 && step_text(path[path.size() - 3]) == "state") {
    return OptimizerEntry{step_text(path[path.size() - 2]), step_text(path.back())};
  }
  constexpr std::string_view kState = "state.";
  const std::string last = step_text(path.back());
  size_t begin = last.find(kState);
  if (begin != 0 && (begin == std::string::npos || last[begin - 1] != '.')) return std::nullopt;
  begin += kState.size();
  const size_t dot = last.rfind('.');
  constexpr std::string_view kFields[] = {"exp_avg", "exp_avg_sq", "step", "max_exp_avg_sq", "momentum_buffer"};
  const std::string_view field = std::string_view(last).substr(dot + 1);
  if (dot <= begin || std::find(std::begin(kFields), std::end(kFields), field) == std::end(kFields))
    return std::nullopt;
  return OptimizerEntry{last.substr(begin, dot - begin), std::string(field)};
}

// Returns "0.lr" for ("optim", "param_groups", 0, "lr"), "NAME.lr" for ("optim", "param_groups.NAME.lr"); empty for any
// other path.
std::string setting_of(const DcpPath& path) {
  constexpr std::string_view kGroups = "param_groups";
  for (size_t i = 0; i < path.size(); ++i) {
    const std::string step = step_text(path[i]);
    if (step == kGroups && i + 1 < path.size()) return joined(path, i + 1);
    if (step.starts_with(cat(kGroups, "."))) return step.substr(kGroups.size() + 1);
  }
  return "";
}

DcpPath path_of(const DcpReader& reader, const std::string& key) {
  const auto found = reader.paths().find(key);
  return found == reader.paths().end() ? DcpPath{key} : found->second;
}

// A tensor and its name in the source.
struct Entry {
  const std::string* key;
  const DcpReader::Tensor* tensor;
  DcpPath path;
  TensorRole role;
  std::string name;
  bool of_optimizer;
};

// common: receives the dictionaries that contain all weights.
std::vector<Entry> entries_of(const DcpReader& reader, std::optional<DcpPath>& common) {
  for (const auto& [key, tensor] : reader.tensors()) {
    DcpPath path = path_of(reader, key);
    if (optimizer_entry(path) || !setting_of(path).empty()) continue;
    path.pop_back();
    if (!common) common = path;
    const auto differs = std::mismatch(common->begin(), common->end(), path.begin(), path.end()).first;
    common->erase(differs, common->end());
  }
  std::vector<Entry> entries;
  for (const auto& [key, tensor] : reader.tensors()) {
    DcpPath path = path_of(reader, key);
    const auto state = optimizer_entry(path);
    const std::string setting = setting_of(path);  // such as a learning rate stored as a tensor
    Entry entry{&key, &tensor, {}, TensorRole::kParam, "", state || !setting.empty()};
    if (state) {
      entry.role = state->field == "exp_avg"      ? TensorRole::kExpAvg
                   : state->field == "exp_avg_sq" ? TensorRole::kExpAvgSq
                                                  : TensorRole::kBuffer;
      entry.name = entry.role == TensorRole::kBuffer ? cat("optim.state.", state->parameter, ".", state->field)
                                                     : state->parameter;
    } else if (!setting.empty()) {
      entry.role = TensorRole::kBuffer;
      entry.name = cat("optim.param_groups.", setting);
    } else {
      entry.name = joined(path, common->size());
    }
    entry.path = std::move(path);
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

NamedShards read_dcp_named(const std::string& folder, bool drop_optimizer, std::vector<std::string>& decisions) {
  const auto reader = std::make_shared<const DcpReader>(folder);
  NamedShards shards;
  shards.where = folder;
  auto chunks = std::make_unique<DcpChunks>(reader);
  std::optional<DcpPath> common;
  int64_t dropped = 0;
  for (const Entry& entry : entries_of(*reader, common)) {
    if (entry.of_optimizer && drop_optimizer) {
      ++dropped;
      continue;
    }
    for (const DcpReader::Chunk& chunk : entry.tensor->chunks) {
      if (core::num_elements(chunk.extent) == 0 && entry.tensor->chunks.size() > 1) continue;
      const size_t index = chunks->add(*entry.key, *entry.tensor, chunk);
      shards.shards.push_back({entry.name, entry.role, entry.tensor->shape, chunk.offset, chunk.extent, 0, index,
                               chunk.extent, Dims(chunk.extent.size(), 0)});
    }
  }
  shards.files.push_back(std::move(chunks));
  if (dropped > 0) decisions.push_back("optimizer state is left out");
  if (!reader->objects().empty()) {
    decisions.push_back(cat(reader->objects().size(), " entries that are not tensors, such as ",
                            detail::printable(reader->objects().begin()->first), ", are copied only to a dcp result"));
  }
  if (common && !common->empty()) {
    decisions.push_back(cat("reading the weights under ", detail::printable(joined(*common, 0))));
  }
  return shards;
}

DcpEntries read_dcp_entries(const std::string& folder, bool with_settings) {
  const DcpReader reader(folder);
  DcpEntries entries;
  std::optional<DcpPath> common;
  for (Entry& entry : entries_of(reader, common)) {
    entries.tensors.emplace(std::pair(entry.role, std::move(entry.name)),
                            DcpEntries::Place{*entry.key, std::move(entry.path)});
  }
  int64_t left = kMaxObjectBytes;
  for (const auto& [key, payload] : reader.objects()) {
    DcpPath path = path_of(reader, key);
    const bool of_optimizer = optimizer_entry(path) || !setting_of(path).empty();
    if (of_optimizer && !with_settings) continue;
    entries.objects.push_back({{key, std::move(path)}, reader.read_object(payload, left)});
    left -= std::min(left, payload.bytes);
  }
  return entries;
}

}  // namespace ms::convert
