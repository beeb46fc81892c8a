// Conversions that keep names: from files of genuine programs to every format that takes any names, and back.
#include "convert/convert_named.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "convert/named.h"
#include "core/error.h"
#include "tests/convert/conversions.h"
#include "tests/convert/tensors_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::ErrorCode;
using core::TensorRole;
using testing::Contains;
using testing::HasSubstr;

const std::string kData = MS_TEST_DATA;

class ConvertNamed : public testing::Test {
 protected:
  ConvertReport convert(const std::string& from, const std::string& to, std::optional<Format> format,
                        const std::function<void(ConvertOptions&)>& change = {}) {
    ConvertOptions options;
    options.load_dir = from;
    options.save_dir = to;
    options.save_model_type = format;
    if (change) change(options);
    return convert_checkpoint(options);
  }
  test::TensorsOfSource tensors(const std::string& path, bool drop_optimizer = true) {
    std::vector<std::string> decisions;
    return test::tensors_of(*open_named(path, drop_optimizer, decisions));
  }
  void expect_refused(const std::function<void()>& action, ErrorCode code, const std::string& text) {
    const test::Thrown thrown = test::thrown_by(action);
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(text));
  }
  test::TemporaryFolder folder_;
};

const auto kDropped = [](ConvertOptions& options) { options.drop_optimizer = true; };

TEST_F(ConvertNamed, RankFilesEqualTorchsGather) {
  for (const char* kind : {"shard_2", "hsdp_4", "tp_4"}) {
    const std::string to = folder_ / kind;
    const ConvertReport report = convert(cat(kData, "/fsdp_ranks/", kind), to, std::nullopt, kDropped);
    EXPECT_EQ(report.to, Format::kHuggingFace);
    EXPECT_EQ(report.path, to);
    const auto wanted = tensors(cat(kData, "/fsdp_ranks/expected/", kind, ".safetensors"));
    EXPECT_EQ(test::first_difference(tensors(to), wanted), "") << kind;
  }
}

TEST_F(ConvertNamed, EveryKindOfTensorRoundTripsInEveryFormat) {
  const std::string first = kData + "/torch/state_dict.pt";
  const auto wanted = tensors(first);
  EXPECT_GT(wanted.size(), 15U);
  std::string at = first;
  for (const auto& [name, format] : {std::pair("a.safetensors", Format::kFile), std::pair("hf", Format::kHuggingFace),
                                     std::pair("bin", Format::kHuggingFaceBin), std::pair("a.pt", Format::kFile),
                                     std::pair("dcp", Format::kDcp), std::pair("hf2", Format::kHuggingFace)}) {
    const std::string to = folder_ / name;
    const auto change = [&](ConvertOptions& options) {
      if (format == Format::kDcp) {
        options.target_data_parallel_size = 3;
      } else {
        options.max_shard_size_bytes = 100;
      }
    };
    EXPECT_EQ(convert(at, to, format, change).path, to);
    EXPECT_EQ(test::first_difference(tensors(to), wanted), "") << name;
    at = to;
  }
  EXPECT_TRUE(fs::exists(folder_ / "hf/model.safetensors.index.json"));
  EXPECT_TRUE(fs::exists(folder_ / "bin/pytorch_model.bin.index.json"));
}

TEST_F(ConvertNamed, AdamStateConvertsFromDcpToDcp) {
  const std::string from = kData + "/dcp_fsdp", to = folder_ / "dcp";
  const auto report = convert(from, to, Format::kDcp, [](ConvertOptions& o) { o.target_data_parallel_size = 5; });
  EXPECT_EQ(test::first_difference(tensors(to, false), tensors(from, false)), "");
  EXPECT_THAT(report.decisions, Contains(HasSubstr("entries that are not tensors are copied unchanged")));
  expect_refused([&] { convert(from, folder_ / "hf", Format::kHuggingFace); }, ErrorCode::kUnsupported,
                 "give --drop-optimizer to leave it out");
}

TEST_F(ConvertNamed, DtypeAndNamesAreChanged) {
  const std::string from = kData + "/torch/state_dict.pt", to = folder_ / "x.safetensors";
  const auto report = convert(from, to, Format::kFile, [](ConvertOptions& options) {
    options.dtype = core::DType::kBf16;
    options.names.rename = {"^base$=renamed"};
    options.names.exclude = {"^turned$"};
  });
  const auto made = tensors(to);
  EXPECT_EQ(made.at({TensorRole::kParam, "renamed"}).dtype, core::DType::kBf16);
  EXPECT_EQ(made.at({TensorRole::kParam, "int64"}).dtype, core::DType::kInt64);
  EXPECT_EQ(made.at({TensorRole::kParam, "float64"}).dtype, core::DType::kFp64);
  EXPECT_FALSE(made.contains({TensorRole::kParam, "turned"}));
  EXPECT_THAT(report.decisions, Contains(HasSubstr("keep their type, fp64")));
}

TEST_F(ConvertNamed, AsNamedKeepsNamesOfAKnownFamily) {
  const std::string from = kData + "/hf_llama_tiny";
  EXPECT_EQ(convert(from, folder_ / "ms", std::nullopt).to, Format::kNative);
  const auto named = [](ConvertOptions& options) { options.as_named = true; };
  convert(from, folder_ / "hf", Format::kHuggingFace, named);
  for (const char* file : {"model.safetensors", "config.json"}) {
    EXPECT_EQ(test::read_file(folder_ / cat("hf/", file)), test::read_file(cat(from, "/", file))) << file;
  }
  convert(from, folder_ / "bin", Format::kHuggingFaceBin);  // always keeps names
  EXPECT_EQ(test::first_difference(tensors(folder_ / "bin"), tensors(from)), "");
  EXPECT_TRUE(open_source(folder_ / "bin")->info().has_model);
}

TEST_F(ConvertNamed, TargetsThatNeedAFamilyAreRefused) {
  const std::string from = kData + "/torch/state_dict.pt";
  for (const Format format : {Format::kNative, Format::kMegatron, Format::kMegatronDist, Format::kGguf}) {
    expect_refused([&] { convert(from, folder_ / "x", format); }, ErrorCode::kUnsupported, "--name-map");
  }
  expect_refused([&] { convert(from, folder_ / "x", std::nullopt, [](ConvertOptions& o) { o.lora = "a"; }); },
                 ErrorCode::kUnsupported, "--lora depends on the model's structure");
  expect_refused(
      [&] {
        convert(kData + "/hf_llama_tiny", folder_ / "x", Format::kNative,
                [](ConvertOptions& o) { o.names.include = {"x"}; });
      },
      ErrorCode::kUnsupported, "--as-named");
}

TEST_F(ConvertNamed, UnknownModelTypeToNativeNamesTypeAndBothCures) {
  const std::string from = folder_ / "odd";
  fs::create_directory(from);
  fs::copy(kData + "/hf_llama_tiny/model.safetensors", from + "/model.safetensors");
  test::write_file(from + "/config.json", R"({"model_type": "mamba9"})");
  for (const char* text : {"mamba9", "--name-map", "--as-named"}) {
    expect_refused([&] { convert(from, folder_ / "x", Format::kNative); }, ErrorCode::kUnsupported, text);
  }
}

TEST_F(ConvertNamed, NothingIsOverwritten) {
  const std::string from = kData + "/torch/state_dict.pt";
  test::write_file(folder_ / "x.pt", "mine");
  expect_refused([&] { convert(from, folder_ / "x.pt", Format::kFile); }, ErrorCode::kInvalidArgument,
                 "already exists");
  EXPECT_EQ(test::read_file(folder_ / "x.pt"), "mine");
  convert(from, folder_ / "hf", Format::kHuggingFace);
  expect_refused([&] { convert(from, folder_ / "hf", Format::kHuggingFace); }, ErrorCode::kInvalidArgument,
                 "already contains a model");
  expect_refused([&] { convert(from, folder_ / "x.npz", Format::kFile); }, ErrorCode::kInvalidArgument,
                 "the suffix must be");
}

TEST_F(ConvertNamed, DiskFaultLeavesNothing) {
  for (const auto& [name, format] : {std::pair("hf", Format::kHuggingFace), std::pair("x.pt", Format::kFile)}) {
    ConvertOptions options;
    options.load_dir = kData + "/torch/state_dict.pt";
    options.save_dir = folder_ / cat("out/", name);
    options.save_model_type = format;
    options.max_shard_size_bytes = 100;
    test::expect_survives_disk_errors(options, [&] {
      if (!fs::exists(options.save_dir)) return;
      EXPECT_EQ(test::first_difference(tensors(options.save_dir), tensors(options.load_dir)), "");
      fs::remove_all(options.save_dir);
    });
  }
}

}  // namespace
}  // namespace ms::convert
