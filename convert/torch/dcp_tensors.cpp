#include "convert/torch/dcp_tensors.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "ckpt/plan.h"
#include "ckpt/shard_table.h"
#include "convert/detail/printable.h"
#include "core/error.h"

namespace ms::convert {
namespace {

constexpr int64_t kScratchBytes = 4 << 20;

// Rows and columns. A vector is a matrix of one column; a stack of matrices is one matrix with all their rows.
struct Area {
  int64_t row = 0, column = 0, rows = 0, columns = 0;
};

// Elements in a row of a tensor of more than three axes, which may be cut along the first axis only.
int64_t row_elements(std::span<const int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t length : shape.subspan(1)) elements *= length;
  return elements;
}

// For a stack: whole matrices only.
Area area_of(const core::Dims& offset, const core::Dims& extent) {
  if (extent.size() > 3) return {offset[0], 0, extent[0], row_elements(extent)};
  if (extent.size() == 3) return {offset[0] * extent[1], offset[2], extent[0] * extent[1], extent[2]};
  const bool matrix = extent.size() == 2;
  return {offset[0], matrix ? offset[1] : 0, extent[0], matrix ? extent[1] : 1};
}

Area overlap(const Area& a, const Area& b) {
  const int64_t row = std::max(a.row, b.row), column = std::max(a.column, b.column);
  return {row, column, std::min(a.row + a.rows, b.row + b.rows) - row,
          std::min(a.column + a.columns, b.column + b.columns) - column};
}

class DcpTensors final : public TensorFile {
 public:
  explicit DcpTensors(std::shared_ptr<const DcpReader> reader) : reader_(std::move(reader)) {
    uint64_t at = 0;
    ckpt::ShardTable boxes;
    for (const auto& [name, tensor] : reader_->tensors()) {
      if (tensor.shape.empty()) continue;
      for (const DcpReader::Chunk& chunk : tensor.chunks) {
        if (tensor.shape.size() > 3 &&
            !std::equal(chunk.extent.begin() + 1, chunk.extent.end(), tensor.shape.begin() + 1, tensor.shape.end())) {
          throw core::Error(
              core::ErrorCode::kUnsupported,
              core::cat(reader_->describe(chunk.payload), ": ", detail::printable(name), ", of ", tensor.shape.size(),
                        " axes, is cut along an axis other than the first, which is not supported yet"));
        }
        if (tensor.shape.size() == 3 && chunk.extent[1] != tensor.shape[1]) {
          throw core::Error(core::ErrorCode::kUnsupported,
                            core::cat(reader_->describe(chunk.payload), ": ", detail::printable(name),
                                      " is a stack of matrices cut by their rows, which is not supported yet"));
        }
        const auto dtype = to_core_dtype(tensor.dtype).value_or(core::DType::kUInt8);  // the type does not affect boxes
        boxes.push_back({name, core::TensorRole::kParam, dtype, tensor.shape, chunk.offset, chunk.extent});
      }
      const uint64_t item = bits_of(tensor.dtype) / 8;
      entries_.push_back({&name, &tensor, {tensor.shape.begin(), tensor.shape.end()}, item, at});
      at += static_cast<uint64_t>(core::num_elements(tensor.shape)) * item;  // elements that chunks hold
    }
    end_ = at;
    for (const std::string& finding : ckpt::check_coverage(boxes, 1)) {
      throw core::Error(core::ErrorCode::kCorruptData, core::cat(reader_->folder(), ": ", finding));
    }
  }

  const std::string& path() const override { return reader_->folder(); }
  size_t size() const override { return entries_.size(); }
  Tensor operator[](size_t index) const override {
    const Entry& entry = entries_[index];
    const uint64_t end = index + 1 < entries_.size() ? entries_[index + 1].at : end_;
    return {*entry.name, entry.tensor->dtype, entry.shape, entry.at, end};
  }
  std::optional<size_t> find(std::string_view name) const override {
    const auto found =
        std::lower_bound(entries_.begin(), entries_.end(), name,
                         [](const Entry& entry, std::string_view wanted) { return *entry.name < wanted; });
    const bool there = found != entries_.end() && *found->name == name;
    return there ? std::optional(static_cast<size_t>(found - entries_.begin())) : std::nullopt;
  }
  void read(uint64_t offset, std::span<std::byte> out) const override;
  void begin_one_pass() override { reader_->begin_one_pass(); }
  void end_one_pass(bool all) override { reader_->end_one_pass(all); }

 private:
  struct Entry {
    const std::string* name;
    const DcpReader::Tensor* tensor;
    std::vector<uint64_t> shape;
    uint64_t item, at;  // bytes per element; first byte in the concatenation of all tensors
  };
  void read_area(const Entry& entry, const Area& wanted, std::byte* out) const;

  std::shared_ptr<const DcpReader> reader_;
  std::vector<Entry> entries_;  // ordered by name, so by `at` too
  uint64_t end_ = 0;
};

// A range of a matrix is a partial row, whole rows, and a partial row.
void DcpTensors::read(uint64_t offset, std::span<std::byte> out) const {
  const auto after = std::upper_bound(entries_.begin(), entries_.end(), offset,
                                      [](uint64_t at, const Entry& entry) { return at < entry.at; });
  if (out.empty()) return;
  MS_CHECK(after != entries_.begin(), "byte ", offset, " is in no tensor");
  const Entry& entry = *std::prev(after);
  const core::Dims& shape = entry.tensor->shape;
  const int64_t columns = shape.size() > 3 ? row_elements(shape) : shape.size() > 1 ? shape.back() : 1;
  auto first = static_cast<int64_t>((offset - entry.at) / entry.item);
  auto count = static_cast<int64_t>(out.size() / entry.item);
  std::byte* to = out.data();
  while (count > 0) {
    const int64_t row = first / columns, column = first % columns;
    const bool whole = column == 0 && count >= columns;
    const Area area =
        whole ? Area{row, 0, count / columns, columns} : Area{row, column, 1, std::min(count, columns - column)};
    read_area(entry, area, to);
    const int64_t done = area.rows * area.columns;
    first += done;
    count -= done;
    to += done * static_cast<int64_t>(entry.item);
  }
}

void DcpTensors::read_area(const Entry& entry, const Area& wanted, std::byte* out) const {
  const bool matrix = entry.shape.size() == 2;
  const auto item = static_cast<int64_t>(entry.item);
  const auto read_part = [&](const DcpReader::Chunk& chunk, const Area& held, const Area& part, std::byte* to) {
    core::Dims offset = {part.row - held.row}, extent = {part.rows};
    if (chunk.extent.size() > 3) {
      offset.resize(chunk.extent.size(), 0);
      extent.insert(extent.end(), chunk.extent.begin() + 1, chunk.extent.end());
      if (part.columns == held.columns) return reader_->read(*entry.tensor, chunk, offset, extent, to);
      MS_CHECK(part.rows == 1, "parts of several rows");
      std::vector<std::byte> row(static_cast<size_t>(held.columns * item));  // rows of which a part is wanted
      reader_->read(*entry.tensor, chunk, offset, extent, row.data());
      std::memcpy(to, row.data() + part.column * item, static_cast<size_t>(part.columns * item));
      return;
    }
    if (chunk.extent.size() == 3) {
      const int64_t rows = chunk.extent[1];  // of one matrix
      for (int64_t row = offset[0], end = row + part.rows, count = 0; row < end; row += count) {
        count = std::min(rows - row % rows, end - row);
        reader_->read(*entry.tensor, chunk, {row / rows, row % rows, part.column - held.column},
                      {1, count, part.columns}, to);
        to += count * part.columns * item;
      }
      return;
    }
    if (matrix) {
      offset.push_back(part.column - held.column);
      extent.push_back(part.columns);
    }
    reader_->read(*entry.tensor, chunk, offset, extent, to);
  };
  for (const DcpReader::Chunk& chunk : entry.tensor->chunks) {
    const Area held = area_of(chunk.offset, chunk.extent);
    const Area part = overlap(held, wanted);
    if (part.rows <= 0 || part.columns <= 0) continue;
    const auto place = [&](int64_t row) {
      return out + ((row - wanted.row) * wanted.columns + part.column - wanted.column) * item;
    };
    if (part.columns == wanted.columns) {
      read_part(chunk, held, part, place(part.row));
      continue;
    }
    const int64_t width = part.columns * item, at_once = std::max<int64_t>(1, kScratchBytes / width);
    std::vector<std::byte> scratch(static_cast<size_t>(std::min(at_once, part.rows) * width));
    for (int64_t row = 0; row < part.rows; row += at_once) {
      const Area some{part.row + row, part.column, std::min(at_once, part.rows - row), part.columns};
      read_part(chunk, held, some, scratch.data());
      for (int64_t r = 0; r < some.rows; ++r) {
        std::memcpy(place(some.row + r), scratch.data() + r * width, static_cast<size_t>(width));
      }
    }
  }
}

}  // namespace

std::unique_ptr<TensorFile> open_dcp_tensors(std::shared_ptr<const DcpReader> reader) {
  return std::make_unique<DcpTensors>(std::move(reader));
}

}  // namespace ms::convert
