// pytorch_model.bin as a file of named tensors.
#include "convert/torch/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "convert/torch/pickle_writer.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using testing::ElementsAre;
using testing::HasSubstr;

std::string data_file(const char* name) { return core::cat(MS_TEST_DATA, "/torch/", name); }

TEST(StateDictTest, ReadsAsOneRunOfBytes) {
  const auto file = open_state_dict(data_file("state_dict.pt"));
  const auto index = file->find("columns");
  ASSERT_TRUE(index.has_value());
  const TensorFile::Tensor tensor = (*file)[*index];
  EXPECT_THAT(tensor.shape, ElementsAre(4, 3));
  std::vector<float> row(3);
  file->read(tensor.begin + 3 * sizeof(float), std::as_writable_bytes(std::span(row)));
  EXPECT_THAT(row, ElementsAre(8, 9, 10));
  EXPECT_FALSE(file->find("column").has_value());
}

TEST(StateDictTest, ModelIsFoundInATrainingState) {
  const auto file = open_state_dict(data_file("nested.pt"));  // like Megatron's: args, iteration, model, ..
  EXPECT_TRUE(file->find("columns").has_value());
  EXPECT_EQ(file->size(), open_state_dict(data_file("state_dict.pt"))->size());
}

// {key: w [2] of fp32, ..}, at any nesting level.
void write_tensor(PickleWriter& p, size_t storage) {
  write_torch_tensor(p, {.storage = storage, .storage_elements = 2, .shape = {2}});
}
class WrappedStateDict : public testing::Test {
 protected:
  std::unique_ptr<TensorFile> open(const std::function<void(PickleWriter&)>& write, OtherEntries others) {
    const std::vector<std::string> storages = {std::string(8, 'a'), std::string(8, 'b')};
    test::write_file(folder_ / "x.pt", make_torch_archive(make_pickle(write), storages));
    return open_state_dict(folder_ / "x.pt", others);
  }
  test::TemporaryFolder folder_;
};

TEST_F(WrappedStateDict, IsFoundAmongOtherEntries) {
  for (const char* wrapper : {"state_dict", "model_state_dict", "model", "module"}) {
    const auto file = open(
        [&](PickleWriter& p) {
          p.dict([&] {
            p.text("epoch");
            p.integer(3);
            p.text(wrapper);
            p.dict([&] {
              p.text("a.weight");
              write_tensor(p, 0);
            });
          });
        },
        OtherEntries::kRefused);
    ASSERT_EQ(file->size(), 1U) << wrapper;
    EXPECT_EQ((*file)[0].name, "a.weight");
  }
}

TEST_F(WrappedStateDict, WrapperKeyAmongTensorsIsIgnored) {
  const auto file = open(
      [&](PickleWriter& p) {
        p.dict([&] {
          p.text("a");
          write_tensor(p, 0);
          p.text("model");
          p.dict([&] {
            p.text("b");
            write_tensor(p, 1);
          });
        });
      },
      OtherEntries::kLeftOut);
  EXPECT_TRUE(file->find("a").has_value());
  EXPECT_TRUE(file->find("model.b").has_value());
}

TEST_F(WrappedStateDict, OtherEntriesAreLeftOutOnRequest) {
  const auto write = [&](PickleWriter& p) {
    p.dict([&] {
      p.text("a");
      write_tensor(p, 0);
      p.text("count");
      p.integer(1);
    });
  };
  EXPECT_EQ(open(write, OtherEntries::kLeftOut)->size(), 1U);
  const test::Thrown thrown = test::thrown_by([&] { open(write, OtherEntries::kRefused); });
  EXPECT_THAT(thrown.text, HasSubstr("\"count\" is not a tensor"));
}

TEST_F(WrappedStateDict, FileWithoutTensorsIsRefused) {
  const test::Thrown thrown = test::thrown_by([&] {
    open(
        [](PickleWriter& p) {
          p.dict([&] {
            p.text("count");
            p.integer(1);
          });
        },
        OtherEntries::kLeftOut);
  });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("it contains no tensors"));
}

// x = {}; x["a"] = x["b"] = x, and so on: expanding it would never end.
TEST_F(WrappedStateDict, RecursiveDictionaryIsExpandedOnce) {
  using namespace std::string_literals;
  const std::string pickle = "\x80\x02}q\0("s + "X\1\0\0\0"s + "ah\0"s + "X\1\0\0\0"s + "bh\0u."s;
  test::write_file(folder_ / "x.pt", make_torch_archive(pickle, {}));
  const test::Thrown thrown = test::thrown_by([&] { open_state_dict(folder_ / "x.pt", OtherEntries::kLeftOut); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace ms::convert
