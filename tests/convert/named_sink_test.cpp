// Files of named tensors: their split, and that empty tensors and empty files are written completely.
#include "convert/named_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "convert/safetensors.h"
#include "convert/torch/state_dict.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::DType;
using core::TensorRole;

// Writes tensors of counting bytes, each in two parts.
fs::path write(NamedSinkOptions options) {
  ckpt::ShardTable targets;
  for (const NamedOutput& output : options.outputs) {
    if (core::num_elements(output.shape) == 0) continue;
    targets.push_back(
        {output.key, output.role, output.dtype, output.shape, core::Dims(output.shape.size(), 0), output.shape});
  }
  const auto sink = make_named_sink(std::move(options));
  sink->begin({}, targets);
  std::byte next{};
  for (size_t t = 0; t < targets.size(); ++t) {
    const int64_t count = targets.elements(t), item = core::size_of(targets.dtype_of(t));
    for (const auto& [first, end] : {std::pair<int64_t, int64_t>{0, count / 2}, {count / 2, count}}) {
      if (first == end) continue;
      std::vector<std::byte> bytes(static_cast<size_t>((end - first) * item));
      for (std::byte& byte : bytes) {
        byte = next;
        next = static_cast<std::byte>(static_cast<int>(next) + 1);
      }
      sink->write(static_cast<int32_t>(t), first, end - first, bytes.data());
    }
  }
  return sink->commit();
}

std::vector<NamedOutput> outputs() {
  return {{"a", TensorRole::kParam, DType::kUInt8, {3, 5}},
          {"b", TensorRole::kParam, DType::kInt16, {4}},
          {"empty", TensorRole::kParam, DType::kFp32, {0, 7}},
          {"s", TensorRole::kParam, DType::kInt64, {}}};
}

TEST(NamedSink, FolderHasSeveralFilesAndAnIndex) {
  for (const bool torch : {false, true}) {
    const test::TemporaryFolder folder;
    NamedSinkOptions options;
    options.folder = folder / "out";
    options.torch = torch;
    options.stem = torch ? "pytorch_model" : "model";
    options.max_shard_size_bytes = 15;
    options.outputs = outputs();
    options.texts = {{"config.json", "{}"}};
    EXPECT_EQ(write(options), folder / "out");
    const std::string stem = (options.folder / options.stem).string(), ending = torch ? ".bin" : ".safetensors";
    const auto index = nlohmann::json::parse(test::read_file(stem + ending + ".index.json"));
    EXPECT_EQ(index["metadata"]["total_size"], 15 + 8 + 8);
    EXPECT_EQ(index["weight_map"].size(), 4U);
    std::byte next{};
    for (const NamedOutput& output : options.outputs) {
      const std::string path = (options.folder / index["weight_map"][output.key].get<std::string>()).string();
      const auto file = torch ? open_state_dict(path) : open_safetensors(path);
      const auto found = file->find(output.key);
      ASSERT_TRUE(found.has_value()) << output.key;
      const TensorFile::Tensor tensor = (*file)[*found];
      EXPECT_EQ(to_stored_dtype(tensor.dtype), output.dtype);
      std::vector<std::byte> bytes(tensor.end - tensor.begin);
      file->read(tensor.begin, bytes);
      for (const std::byte byte : bytes) {
        EXPECT_EQ(byte, next) << output.key;
        next = static_cast<std::byte>(static_cast<int>(next) + 1);
      }
    }
    EXPECT_EQ(next, static_cast<std::byte>(15 + 8 + 8));
    EXPECT_EQ(test::read_file((options.folder / "config.json").string()), "{}");
  }
}

TEST(NamedSink, SingleFileIsAddedToAFolder) {
  for (const bool torch : {false, true}) {
    const test::TemporaryFolder folder;
    test::write_file(folder / "model.safetensors", "another");
    NamedSinkOptions options;
    options.folder = folder.path();
    options.single = "x.pt";
    options.torch = torch;
    options.outputs = outputs();
    EXPECT_EQ(write(options), folder / "x.pt");
    EXPECT_EQ(test::read_file(folder / "model.safetensors"), "another");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2);
    EXPECT_EQ(test::code_of([&] { make_named_sink(options); }), core::ErrorCode::kInvalidArgument);
  }
}

TEST(NamedSink, EmptyTensorsAloneAreWritten) {
  const test::TemporaryFolder folder;
  NamedSinkOptions options;
  options.folder = folder.path();
  options.single = "x.pt";
  options.torch = true;
  options.outputs = {{"empty", TensorRole::kParam, DType::kFp32, {0, 7}}};
  write(options);
  EXPECT_EQ((*open_state_dict(folder / "x.pt"))[0].shape.size(), 2U);
}

TEST(NamedSink, WithoutCommitNothingIsLeft) {
  const test::TemporaryFolder folder;
  NamedSinkOptions options;
  options.folder = folder / "out";
  options.outputs = {{"a", TensorRole::kParam, DType::kUInt8, {2}}};
  {
    ckpt::ShardTable targets;
    targets.push_back({"a", TensorRole::kParam, DType::kUInt8, {2}, {0}, {2}});
    const auto sink = make_named_sink(options);
    sink->begin({}, targets);
    const std::byte data[2]{};
    sink->write(0, 0, 2, data);
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// An earlier attempt wrote the first part of each tensor, into a file of each kind, and was stopped.
TEST(NamedSink, ResumeKeepsWrittenData) {
  constexpr int64_t kPart = 64 << 10, kCount = 2 * kPart;
  for (const char* name : {"x.safetensors", "x.pt"}) {
    const test::TemporaryFolder folder;
    NamedSinkOptions options;
    options.folder = folder.path() / "out";
    options.single = name;
    options.torch = options.single == "x.pt";
    options.outputs = {{"a", TensorRole::kParam, DType::kUInt8, {kCount}},
                       {"b", TensorRole::kParam, DType::kUInt8, {kCount}}};
    options.writing = {.write_path = {}, .job = "a job", .resume = true};
    ckpt::ShardTable targets;
    for (const NamedOutput& output : options.outputs) {
      targets.push_back({output.key, output.role, output.dtype, output.shape, {0}, output.shape});
    }
    const auto bytes_of = [&](int32_t target, int64_t part) {
      return std::vector<std::byte>(static_cast<size_t>(kPart), static_cast<std::byte>(1 + 2 * target + part));
    };
    {
      const auto sink = make_named_sink(options);
      sink->begin({}, targets);
      for (const int32_t target : {0, 1}) sink->write(target, 0, kPart, bytes_of(target, 0).data());
    }
    EXPECT_FALSE(fs::exists(options.folder)) << "nothing unfinished lies in the folder";
    const auto sink = make_named_sink(options);
    sink->begin({}, targets);
    for (const int32_t target : {0, 1}) {
      for (const int64_t part : {0, 1}) {
        std::vector<std::byte> scratch(static_cast<size_t>(kPart));
        const bool kept = sink->keep(target, part * kPart, kPart, scratch.data());
        EXPECT_EQ(kept, part == 0) << name << ", target " << target;
        if (!kept) sink->write(target, part * kPart, kPart, bytes_of(target, part).data());
      }
    }
    const fs::path made = sink->commit();
    const auto file = options.torch ? open_state_dict(made.string()) : open_safetensors(made.string());
    for (const int32_t target : {0, 1}) {
      const TensorFile::Tensor tensor = (*file)[static_cast<size_t>(target)];
      std::vector<std::byte> read(static_cast<size_t>(kCount)), expected = bytes_of(target, 0);
      file->read(tensor.begin, read);
      expected.insert(expected.end(), static_cast<size_t>(kPart), bytes_of(target, 1)[0]);
      EXPECT_EQ(read, expected) << name << ", target " << target;
    }
  }
}

}  // namespace
}  // namespace ms::convert
