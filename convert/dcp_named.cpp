#include "convert/dcp_named.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "ckpt/box.h"
#include "convert/detail/printable.h"
#include "convert/torch/dcp_reader.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Dims;
using core::TensorRole;

// Each chunk of each tensor as a tensor of a file.
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
    MS_CHECK(after != entries_.begin(), "byte ", offset, " of no tensor");
    const Entry& entry = *std::prev(after);
    const auto item = static_cast<int64_t>(bits_of(entry.tensor->dtype) / 8);
    const int64_t first = static_cast<int64_t>(offset - entry.at) / item;
    const int64_t count = static_cast<int64_t>(out.size()) / item;
    ckpt::for_each_box_of_range(entry.chunk->extent, first, count, [&](const ckpt::Box& box, int64_t at) {
      reader_->read(*entry.tensor, *entry.chunk, box.offset, box.extent, out.data() + (at - first) * item);
    });
  }

 private:
  struct Entry {
    const std::string* name;
    const DcpReader::Tensor* tensor;
    const DcpReader::Chunk* chunk;
    std::vector<uint64_t> shape;
    uint64_t at;  // of its bytes among all
  };
  std::shared_ptr<const DcpReader> reader_;
  std::vector<Entry> entries_;  // by `at`
  uint64_t end_ = 0;
};

std::string joined(const DcpReader::Path& path, size_t first) {
  std::string out;
  for (size_t i = first; i < path.size(); ++i) out += cat(i == first ? "" : ".", path[i]);
  return out;
}

struct OptimizerEntry {
  std::string parameter, field;
};

// ("optim", "state", NAME, "exp_avg"), or, made flat, ("optim", "state.NAME.exp_avg").
std::optional<OptimizerEntry> optimizer_entry(const DcpReader::Path& path) {
  constexpr std::string_view kState = "state";
  for (size_t i = 0; i + 2 < path.size(); ++i) {
    if (path[i] == kState && i + 3 == path.size()) return OptimizerEntry{path[i + 1], path[i + 2]};
  }
  const std::string_view last = path.back();
  size_t begin = last.find("state.");
  if (begin != 0 && (begin == std::string_view::npos || last[begin - 1] != '.')) return std::nullopt;
  begin += kState.size() + 1;
  const size_t dot = last.rfind('.');
  constexpr std::string_view kFields[] = {"exp_avg", "exp_avg_sq", "step", "max_exp_avg_sq", "momentum_buffer"};
  const std::string_view field = last.substr(dot + 1);
  if (dot <= begin || std::find(std::begin(kFields), std::end(kFields), field) == std::end(kFields))
    return std::nullopt;
  return OptimizerEntry{std::string(last.substr(begin, dot - begin)), std::string(field)};
}

}  // namespace

NamedShards read_dcp_named(const std::string& folder, bool drop_optimizer, std::vector<std::string>& decisions) {
  const auto reader = std::make_shared<const DcpReader>(folder);
  const auto path_of = [&](const std::string& key) {
    const auto found = reader->paths().find(key);
    return found == reader->paths().end() ? DcpReader::Path{key} : found->second;
  };
  std::optional<DcpReader::Path> common;  // of all weights
  for (const auto& [key, tensor] : reader->tensors()) {
    DcpReader::Path path = path_of(key);
    if (optimizer_entry(path)) continue;
    path.pop_back();
    if (!common) common = path;
    const auto differs = std::mismatch(common->begin(), common->end(), path.begin(), path.end()).first;
    common->erase(differs, common->end());
  }
  NamedShards shards;
  shards.where = folder;
  auto chunks = std::make_unique<DcpChunks>(reader);
  int64_t dropped = 0;
  for (const auto& [key, tensor] : reader->tensors()) {
    const DcpReader::Path path = path_of(key);
    const auto state = optimizer_entry(path);
    if (state && drop_optimizer) {
      ++dropped;
      continue;
    }
    const bool first = state && state->field == "exp_avg", second = state && state->field == "exp_avg_sq";
    const TensorRole role = first    ? TensorRole::kExpAvg
                            : second ? TensorRole::kExpAvgSq
                            : state  ? TensorRole::kBuffer
                                     : TensorRole::kParam;
    const std::string name = first || second ? state->parameter : joined(path, state ? 0 : common->size());
    for (const DcpReader::Chunk& chunk : tensor.chunks) {
      if (core::num_elements(chunk.extent) == 0 && tensor.chunks.size() > 1) continue;
      const size_t index = chunks->add(key, tensor, chunk);
      shards.shards.push_back(
          {name, role, tensor.shape, chunk.offset, chunk.extent, 0, index, chunk.extent, Dims(chunk.extent.size(), 0)});
    }
  }
  shards.files.push_back(std::move(chunks));
  if (dropped > 0) decisions.push_back("optimizer state is left out");
  if (!reader->objects().empty()) {
    decisions.push_back(cat(reader->objects().size(), " entries that are no tensors are not taken over, as ",
                            detail::printable(reader->objects().begin()->first)));
  }
  if (common && !common->empty()) {
    decisions.push_back(cat("weights are those under ", detail::printable(joined(*common, 0))));
  }
  return shards;
}

}  // namespace ms::convert
