// A source of named tensors: every box of tensors of any number of axes and any type, and what is refused.
#include "convert/named_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "ckpt/copy_box.h"
#include "ckpt/reshard.h"
#include "ckpt/values.h"
#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::Dims;
using core::ErrorCode;
using core::TensorRole;
using testing::HasSubstr;

// Tensors of counting bytes, in memory.
class CountingFile final : public TensorFile {
 public:
  void add(std::string name, SafetensorsDType dtype, std::vector<uint64_t> shape) {
    uint64_t bytes = bits_of(dtype) / 8;
    for (const uint64_t length : shape) bytes *= length;
    entries_.push_back({std::move(name), dtype, std::move(shape), end_, end_ + bytes});
    end_ += bytes;
  }
  const std::string& path() const override { return path_; }
  size_t size() const override { return entries_.size(); }
  Tensor operator[](size_t index) const override {
    const Entry& entry = entries_[index];
    return {entry.name, entry.dtype, entry.shape, entry.begin, entry.end};
  }
  std::optional<size_t> find(std::string_view name) const override {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].name == name) return i;
    }
    return std::nullopt;
  }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    for (std::byte& byte : out) byte = static_cast<std::byte>(offset++ % 251);
  }

 private:
  struct Entry {
    std::string name;
    SafetensorsDType dtype;
    std::vector<uint64_t> shape;
    uint64_t begin, end;
  };
  std::string path_ = "counting";
  std::vector<Entry> entries_;
  uint64_t end_ = 0;
};

NamedShards shards_of(std::unique_ptr<CountingFile> file) {
  NamedShards shards;
  shards.where = "somewhere";
  add_whole_tensors(shards, std::move(file));
  return shards;
}

TEST(NamedSource, ReadsEveryBoxOfUpToFourAxes) {
  for (const std::vector<uint64_t>& shape :
       std::vector<std::vector<uint64_t>>{{}, {5}, {3, 4}, {2, 3, 4}, {2, 3, 2, 3}}) {
    auto file = std::make_unique<CountingFile>();
    file->add("before", SafetensorsDType::kU8, {3});
    file->add("x", SafetensorsDType::kI16, shape);
    const auto source = make_named_source(shards_of(std::move(file)), {});
    const Dims dims(shape.begin(), shape.end());
    std::vector<std::byte> all(static_cast<size_t>(core::num_elements(dims)) * 2);
    source->read(1, Dims(dims.size(), 0), dims, all.data());
    // Boxes: all pairs of begin and end along each axis.
    const std::function<void(size_t, Dims, Dims)> each = [&](size_t axis, const Dims& offset, const Dims& extent) {
      if (axis == dims.size()) {
        std::vector<std::byte> seen(static_cast<size_t>(core::num_elements(extent)) * 2), wanted(seen.size());
        source->read(1, offset, extent, seen.data());
        ckpt::copy_box(all.data(), dims, offset, wanted.data(), extent, Dims(dims.size(), 0), extent, 2);
        ASSERT_EQ(seen, wanted) << offset << " " << extent;
        return;
      }
      for (int64_t begin = 0; begin < dims[axis]; ++begin) {
        for (int64_t count = 1; begin + count <= dims[axis]; ++count) {
          Dims o = offset, e = extent;
          o.push_back(begin);
          e.push_back(count);
          each(axis + 1, o, e);
        }
      }
    };
    each(0, {}, {});
  }
}

TEST(NamedSource, NonComputeTypesAreCopied) {
  auto file = std::make_unique<CountingFile>();
  file->add("a", SafetensorsDType::kF8E4M3, {4});
  file->add("b", SafetensorsDType::kC64, {2});
  file->add("c", SafetensorsDType::kU64, {0, 3});
  const auto source = make_named_source(shards_of(std::move(file)), {});
  EXPECT_EQ(source->shards().dtype(0), core::DType::kFp8E4M3);
  EXPECT_EQ(source->shards().dtype(1), core::DType::kComplex64);
  EXPECT_EQ(source->shards().tensor_bytes(2), 0);
  for (const auto dtype : {SafetensorsDType::kF8E5M2, SafetensorsDType::kF8E8M0, SafetensorsDType::kU32}) {
    EXPECT_EQ(from_core_dtype(*to_stored_dtype(dtype)), dtype);
  }
}

// The codes 0 to 127, which are not negative.
TEST(NamedSource, EightBitNumbersHaveStatistics) {
  struct Case {
    SafetensorsDType dtype;
    double max;
    int64_t nans, infinities;
  };
  for (const Case& c : {Case{SafetensorsDType::kF8E4M3, 448, 1, 0}, Case{SafetensorsDType::kF8E5M2, 57344, 3, 1},
                        Case{SafetensorsDType::kF8E8M0, 1, 0, 0}, Case{SafetensorsDType::kF8E4M3Fnuz, 240, 0, 0},
                        Case{SafetensorsDType::kF8E5M2Fnuz, 57344, 0, 0}}) {
    auto file = std::make_unique<CountingFile>();
    file->add("x", c.dtype, {128});
    const auto source = make_named_source(shards_of(std::move(file)), {});
    const ckpt::TensorStatistics statistics = ckpt::tensor_statistics(*source, 0);
    EXPECT_EQ(statistics.max, c.max) << safetensors_dtype_name(c.dtype);
    EXPECT_EQ(statistics.nans, c.nans) << safetensors_dtype_name(c.dtype);
    EXPECT_EQ(statistics.infinities, c.infinities) << safetensors_dtype_name(c.dtype);
  }
}

void expect_refused(const std::function<void(CountingFile&)>& fill, ErrorCode code, const std::string& text) {
  auto file = std::make_unique<CountingFile>();
  fill(*file);
  const test::Thrown thrown = test::thrown_by([&] { make_named_source(shards_of(std::move(file)), {}); });
  EXPECT_EQ(thrown.code, code) << thrown.text;
  EXPECT_THAT(thrown.text, HasSubstr(text));
}

TEST(NamedSource, UnsupportedTensorsAreRefused) {
  expect_refused([](CountingFile& f) { f.add("x", SafetensorsDType::kF4, {2}); }, ErrorCode::kUnsupported,
                 "not whole bytes");
  expect_refused([](CountingFile& f) { f.add("x", SafetensorsDType::kU8, std::vector<uint64_t>(9, 1)); },
                 ErrorCode::kUnsupported, "9 axes");
  expect_refused([](CountingFile& f) { f.add("a\xff", SafetensorsDType::kU8, {2}); }, ErrorCode::kCorruptData,
                 "not UTF-8");
  expect_refused([](CountingFile& f) { f.add("a\xc0\x80", SafetensorsDType::kU8, {2}); }, ErrorCode::kCorruptData,
                 "not UTF-8");
  expect_refused([](CountingFile&) {}, ErrorCode::kNotFound, "no tensors");
  expect_refused(
      [](CountingFile& f) {
        f.add("x", SafetensorsDType::kU8, {2});
        f.add("x", SafetensorsDType::kU8, {2});
      },
      ErrorCode::kCorruptData, "x");
}

TEST(NamedSource, OverlappingOrIncompletePartsAreRefused) {
  for (const int64_t second : {1, 2, 3}) {
    auto file = std::make_unique<CountingFile>();
    file->add("a", SafetensorsDType::kU8, {2, 3});
    file->add("b", SafetensorsDType::kU8, {2, 3});
    NamedShards shards;
    shards.where = "somewhere";
    shards.files.push_back(std::move(file));
    shards.shards.push_back({"x", TensorRole::kParam, {5, 3}, {0, 0}, {2, 3}, 0, 0, {2, 3}, {0, 0}});
    shards.shards.push_back({"x", TensorRole::kParam, {5, 3}, {second, 0}, {2, 3}, 0, 1, {2, 3}, {0, 0}});
    EXPECT_EQ(test::code_of([&] { make_named_source(std::move(shards), {}); }), ErrorCode::kCorruptData) << second;
  }
}

TEST(NamedSource, ParallelLayoutNeedsAFamilyAndSuggestsNameMap) {
  auto file = std::make_unique<CountingFile>();
  file->add("x", SafetensorsDType::kF32, {4});
  const auto source = make_named_source(shards_of(std::move(file)), {});
  EXPECT_FALSE(source->info().has_model);
  const test::Thrown thrown = test::thrown_by([&] { ckpt::plan_reshard(*source, {}, {}); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("--name-map"));
}

}  // namespace
}  // namespace ms::convert
