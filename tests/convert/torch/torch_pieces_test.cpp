// Tensors merged from runs of tensors in several files.
#include "convert/torch/torch_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using testing::ElementsAre;
using testing::HasSubstr;
using Part = TorchPieces::Run;

// Files of one fp32 tensor of ten elements: 10 f, 10 f + 1, ..
class TorchPiecesTest : public testing::Test {
 protected:
  std::string file(int f) {
    std::string storage(40, '\0');
    for (int i = 0; i < 10; ++i) {
      const auto value = static_cast<float>(10 * f + i);
      std::memcpy(storage.data() + 4 * i, &value, 4);
    }
    const std::string pickle = make_pickle([](PickleWriter& p) {
      write_torch_tensor(p, {SafetensorsDType::kF32, 0, 10, 0, {10}});
    });
    const std::string path = folder_ / (std::to_string(f) + ".pt");
    test::write_file(path, make_torch_archive(pickle, std::span(&storage, 1)));
    return path;
  }
  uint32_t view(int f) {
    const TorchFile opened(file(f));
    return pieces_.add_view(pieces_.add_file(opened.where()), *opened.tensor(opened.root()));
  }
  std::vector<float> read(size_t index, size_t first, size_t count) {
    std::vector<float> values(count);
    pieces_.read(pieces_[index].begin + first * 4, std::as_writable_bytes(std::span(values)));
    return values;
  }
  const test::TemporaryFolder folder_;
  TorchPieces pieces_{"here"};
};

TEST_F(TorchPiecesTest, ReadsRunsOfManyFilesInAnyOrder) {
  std::vector<Part> runs;
  for (int f = 0; f < 200; ++f) runs.push_back({view(f), 3, 2});  // more than are open at a time
  const std::vector<Part> two = {{runs[7].view, 9, 1}, {runs[3].view, 0, 0}, {runs[1].view, 0, 5}};
  const size_t a = pieces_.add_tensor("a", {100, 4}, runs), b = pieces_.add_tensor("b", {2, 3}, two);
  EXPECT_EQ(pieces_.size(), 2U);
  EXPECT_EQ(pieces_.find("b"), b);
  EXPECT_EQ(pieces_.find("c"), std::nullopt);
  for (int pass = 0; pass < 2; ++pass) {
    const auto all = read(a, 0, 400);
    for (size_t i = 0; i < 400; ++i) ASSERT_EQ(all[i], static_cast<float>(10 * (i / 2) + 3 + i % 2));
  }
  EXPECT_THAT(read(a, 399, 1), ElementsAre(1994));
  EXPECT_THAT(read(b, 0, 6), ElementsAre(79, 10, 11, 12, 13, 14));
  EXPECT_THAT(read(b, 1, 2), ElementsAre(10, 11));
}

TEST_F(TorchPiecesTest, InvalidRunsAreRefused) {
  const uint32_t one = view(0);
  const auto refused = [&](std::vector<uint64_t> shape, std::vector<Part> runs, const std::string& part) {
    const test::Thrown thrown = test::thrown_by([&] { pieces_.add_tensor("a", std::move(shape), std::move(runs)); });
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
    EXPECT_THAT(thrown.text, HasSubstr(part));
  };
  refused({5}, {{one, 0, 4}}, "its parts have 4 elements");
  refused({5}, {{one, 6, 5}}, "elements 6 to 11 of a tensor in");
  refused({5}, {{one, UINT64_MAX, 5}}, "which has 10");
  refused({uint64_t{1} << 40, uint64_t{1} << 40}, {}, "to count");
  pieces_.add_tensor("a", {2}, {{one, 0, 2}});
  refused({2}, {{one, 0, 2}}, "occurs twice");
}

TEST_F(TorchPiecesTest, ReadFindsDamageAndPeekDoesNot) {
  const size_t index = pieces_.add_tensor("a", {10}, {{view(0), 0, 10}});
  std::string bytes = test::read_file(folder_ / "0.pt");
  const float nine = 9;
  std::string needle(4, '\0');
  std::memcpy(needle.data(), &nine, 4);
  const size_t at = bytes.find(needle);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 1;
  test::write_file(folder_ / "0.pt", bytes);
  float value = 0;
  pieces_.peek(index, 4, std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_EQ(value, 4);
  EXPECT_THAT(test::thrown_by([&] { read(index, 0, 1); }).text, HasSubstr("CRC-32"));
}

TEST_F(TorchPiecesTest, ChangedFileIsRefused) {
  const size_t index = pieces_.add_tensor("a", {10}, {{view(0), 0, 10}});
  test::write_file(folder_ / "0.pt", make_torch_archive(make_pickle([](PickleWriter& p) { p.none(); }), {}));
  const test::Thrown thrown = test::thrown_by([&] { read(index, 0, 1); });
  EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
  EXPECT_THAT(thrown.text, HasSubstr("changed while it was being read"));
}

}  // namespace
}  // namespace ms::convert
