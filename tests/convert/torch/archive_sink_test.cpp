// A folder of archives: filled in any order, complete or absent.
#include "convert/torch/archive_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "convert/torch/torch_file.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "tests/support/fault_injection.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::ErrorCode;
using ::testing::HasSubstr;

constexpr int64_t kLarge = 40'000;  // elements; more than one aligned page

// Two files: a.pt with a number, a large tensor, and a small one of which only the middle is filled; b.pt without
// targets.
class ArchiveSinkTest : public ::testing::Test {
 protected:
  ArchiveSinkOptions options() {
    ArchiveSinkOptions options;
    options.root = folder_ / "root";
    options.folder = "made";
    options.files.push_back(
        {"deep/er/a.pt", {{0, {kLarge * 4, 40, 4}, [] { return pickle(); }, {{2, std::string("\0\0\x80\x3f", 4)}}}}});
    options.files.push_back(
        {"b.pt", {{0, {}, [] { return make_pickle([](PickleWriter& p) { p.text("nothing"); }); }, {}}}});
    options.places = {{0, 0, 0, 0, 0}, {0, 0, 1, 8, 0}};
    options.pointers.emplace_back("latest", "made");
    return options;
  }
  static std::string pickle() {
    return make_pickle([](PickleWriter& p) {
      p.dict([&] {
        p.text("large");
        write_torch_tensor(p, {.storage = 0, .storage_elements = kLarge, .shape = {kLarge}});
        p.text("small");
        write_torch_tensor(p, {.storage = 1, .storage_elements = 10, .shape = {10}});
        p.text("number");
        write_torch_tensor(p, {.storage = 2, .storage_elements = 1});
      });
    });
  }
  static ckpt::ShardTable targets() {
    return {core::ShardedTensor{"large", core::TensorRole::kParam, core::DType::kFp32, {kLarge}, {0}, {kLarge}},
            core::ShardedTensor{"small", core::TensorRole::kParam, core::DType::kFp32, {3}, {0}, {3}}};
  }
  // Writes everything, the later parts first.
  void write(ckpt::Sink& sink) {
    const ckpt::ShardTable table = targets();
    sink.begin({}, table);
    sink.write(1, 0, 3, bytes_of(small_));
    sink.write(0, 30'000, kLarge - 30'000, bytes_of(large_) + 30'000 * 4);
    sink.write(0, 0, 30'000, bytes_of(large_));
    EXPECT_FALSE(fs::exists(folder_ / "root/made"));
    EXPECT_EQ(sink.commit(), fs::path(folder_ / "root/made"));
  }
  static const std::byte* bytes_of(const std::vector<float>& values) {
    return reinterpret_cast<const std::byte*>(values.data());
  }
  static std::vector<float> read(const TorchFile& file, const char* name) {
    const auto tensor = file.tensor(*file.root().find(name));
    std::vector<float> values(tensor->elements());
    file.read(*tensor, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }
  std::vector<float> counted(int64_t count) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i + 1));
    return values;
  }

  const test::TemporaryFolder folder_;
  std::vector<float> large_ = counted(kLarge), small_ = counted(3);
};

TEST_F(ArchiveSinkTest, WrittenDataReadsBack) {
  for (const core::WritePath path : {core::WritePath::kBuffered, core::WritePath::kDirect}) {
    ArchiveSinkOptions asked = options();
    asked.writing.write_path = path;
    try {
      core::choose_write_path(folder_.path().string(), path);
    } catch (const core::Error&) {
      continue;  // no O_DIRECT there
    }
    write(*make_archive_sink(std::move(asked)));
    const TorchFile file(folder_ / "root/made/deep/er/a.pt");
    EXPECT_TRUE(read(file, "large") == large_);
    EXPECT_EQ(read(file, "small"), (std::vector<float>{0, 0, 1, 2, 3, 0, 0, 0, 0, 0}));
    EXPECT_EQ(read(file, "number"), std::vector<float>{1});
    EXPECT_EQ(TorchFile(folder_ / "root/made/b.pt").root().text(), "nothing");
    EXPECT_EQ(test::read_file(folder_ / "root/latest"), "made");
    fs::remove_all(folder_ / "root");
  }
}

// Two archives in one file: the first without targets, the second a transposed matrix; followed by a text.
TEST_F(ArchiveSinkTest, FileMayContainSeveralArchives) {
  ArchiveSinkOptions asked;
  asked.root = folder_ / "made";
  const auto tensor = [](core::Dims shape) {
    return make_pickle([&](PickleWriter& p) {
      p.dict([&] {
        p.text("it");
        write_torch_tensor(p, {.storage_elements = core::num_elements(shape), .shape = shape});
      });
    });
  };
  const Archive first{0, {4}, [&] { return tensor({1}); }, {{0, std::string("\0\0\x80\x3f", 4)}}};
  const Archive second{4096, {24}, [&] { return tensor({3, 2}); }, {}};
  asked.files.push_back({"both", {first, second}});
  asked.places = {{0, 1, 0, 0, 2}};
  asked.texts.emplace_back("note", [this] {
    EXPECT_FALSE(fs::exists(folder_ / "made"));
    return std::string("behind");
  });
  const auto sink = make_archive_sink(std::move(asked));
  const ckpt::ShardTable table = {
      core::ShardedTensor{"matrix", core::TensorRole::kParam, core::DType::kFp32, {2, 3}, {0, 0}, {2, 3}}};
  sink->begin({}, table);
  EXPECT_EQ(sink->chunk_elements(table[0]) % 3, 0) << "whole rows";
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  sink->write(0, 3, 3, bytes_of(rows) + 3 * 4);
  sink->write(0, 0, 3, bytes_of(rows));
  sink->commit();
  EXPECT_EQ(test::read_file(folder_ / "made/note"), "behind");
  ArchiveRange range = ArchiveRange::whole(folder_ / "made/both");
  const int64_t size = range.bytes;
  range.bytes = TorchWriter(tensor({1}), std::array<int64_t, 1>{4}).size_bytes();
  EXPECT_EQ(read(TorchFile(range), "it"), std::vector<float>{1});
  range.at = 4096;
  range.bytes = size - 4096;
  EXPECT_EQ(read(TorchFile(range), "it"), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST_F(ArchiveSinkTest, ExistingFolderIsRefused) {
  fs::create_directories(folder_ / "root/made");
  const auto sink = make_archive_sink(options());
  EXPECT_EQ(test::code_of([&] { write(*sink); }), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(fs::is_empty(folder_ / "root/made"));
  EXPECT_FALSE(fs::exists(folder_ / "root/latest"));
}

TEST_F(ArchiveSinkTest, WithoutCommitNothingIsLeft) {
  {
    const auto sink = make_archive_sink(options());
    const ckpt::ShardTable table = targets();
    sink->begin({}, table);
    sink->write(0, 0, kLarge, bytes_of(large_));
    EXPECT_FALSE(fs::exists(folder_ / "root")) << "nothing unfinished lies in it";
  }
  EXPECT_TRUE(fs::is_empty(folder_.path())) << "nor what is beside it";
}

TEST_F(ArchiveSinkTest, DiskFaultLeavesNothing) {
  using Kind = test::FaultInjection::Kind;
  for (const Kind kind : {Kind::kWrite, Kind::kFsync, Kind::kAllocate, Kind::kRename}) {
    int failures = 0;
    for (int nth = 0; nth < 16; ++nth) {
      try {
        const test::FaultInjection disk(kind, nth, ENOSPC);
        write(*make_archive_sink(options()));
      } catch (const core::Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
        ++failures;
      }
      if (fs::exists(folder_ / "root/made")) {  // all of it
        EXPECT_TRUE(read(TorchFile(folder_ / "root/made/deep/er/a.pt"), "large") == large_);
      }
      fs::remove_all(folder_ / "root");
      EXPECT_TRUE(fs::is_empty(folder_.path()));
    }
    EXPECT_GT(failures, 0) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace ms::convert
