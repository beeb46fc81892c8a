#include "convert/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "ckpt/reader.h"
#include "convert/convert.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/io/result_folder.h"
#include "tests/support/files_of.h"
#include "tests/support/killed.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kModel = core::cat(MS_TEST_DATA, "/hf_qwen3_moe_tiny");

class ReportTest : public ::testing::Test {
 protected:
  ConvertReport convert(const std::string& from, const std::string& to, Format format,
                        const std::function<void(ConvertOptions&)>& change = {}) {
    ConvertOptions options;
    options.load_dir = from;
    options.save_dir = folder_ / to;
    options.save_model_type = format;
    if (change) change(options);
    return convert_checkpoint(options);
  }
  json kept(const std::string& name) const {
    return json::parse(test::read_file(folder_ / (name + ".msckpt_report.json")));
  }
  test::TemporaryFolder folder_;
};

TEST(ReportPath, IsNextToTheResultWithOrWithoutSlash) {
  EXPECT_EQ(report_path("a/out"), "a/out.msckpt_report.json");
  EXPECT_EQ(report_path("a/out/"), "a/out.msckpt_report.json");
  EXPECT_EQ(report_path("out"), "out.msckpt_report.json");
  EXPECT_EQ(report_path("a/b/../out//"), "a/out.msckpt_report.json");
  EXPECT_EQ(report_path("."), std::filesystem::current_path().string() + ".msckpt_report.json");
  EXPECT_EQ(test::code_of([] { report_path("/"); }), core::ErrorCode::kInvalidArgument);
}

// Killed before each call that changes the disk.
TEST_F(ReportTest, KillDuringWriteLeavesNothingAfterGc) {
  ConvertOptions options;
  options.save_dir = folder_ / "out";
  std::filesystem::create_directory(options.save_dir);
  bool through = false;
  for (int nth = 0; !through; ++nth) {
    through = test::survives(nth, [&] { keep_report({}, options); });
    core::remove_abandoned_results(options.save_dir);
    std::filesystem::remove(report_path(options.save_dir));
    const std::filesystem::directory_iterator left(folder_.path());
    EXPECT_EQ(std::distance(begin(left), end(left)), 1) << "call " << nth << ": only the result";
  }
}

TEST_F(ReportTest, HashesAreEqualInEveryFormat) {
  convert(kModel, "ms", Format::kNative);
  const auto native = ckpt::open_native(folder_ / "ms");
  for (const auto& [name, format] : {std::pair{"hf", Format::kHuggingFace},
                                     {"mg", Format::kMegatron},
                                     {"dist", Format::kMegatronDist},
                                     {"dcp", Format::kDcp}}) {
    const ConvertReport made = convert(folder_ / "ms", name, format, [](ConvertOptions& options) {
      options.prove = true;
      options.command = {"--to x"};
    });
    ASSERT_TRUE(made.proof) << name;
    EXPECT_THAT(made.proof->faults, IsEmpty()) << name;
    EXPECT_EQ(made.kept_at, folder_ / (std::string(name) + ".msckpt_report.json"));
    const json report = kept(name);
    EXPECT_EQ(report["schema"], "msckpt-report/1");
    EXPECT_EQ(report["source"]["format"], "ms");
    EXPECT_EQ(report["result"]["format"], name);
    EXPECT_EQ(report["command"], json({"--to x"}));
    EXPECT_EQ(report["proof"]["ok"], true);
    EXPECT_EQ(report["tensors"].size(), native->shards().num_tensors()) << name;
    for (const json& tensor : report["tensors"]) {
      const auto hash =
          native->logical_xxh3(tensor["name"].get<std::string>(), core::parse_role(tensor["role"].get<std::string>()));
      ASSERT_TRUE(hash);
      EXPECT_EQ(tensor["logical_xxh3"], core::hex16(*hash)) << name << ": " << tensor["name"];
    }
    for (const auto& [file, content] : test::files_of(folder_ / name))
      EXPECT_THAT(file, testing::Not(HasSubstr("report")));
  }
}

TEST_F(ReportTest, ListsCarriedDroppedAndFlagSettings) {
  const std::string source = core::cat(MS_TEST_DATA, "/megatron_dist");
  const ConvertReport made = convert(source, "ms", Format::kNative, [](ConvertOptions& options) {
    options.drop_optimizer = true;
    options.dtype = core::DType::kBf16;
  });
  EXPECT_THAT(made.carried, Contains(HasSubstr("param: ")));
  EXPECT_THAT(made.from_flags, Contains(HasSubstr("--dtype bf16")));
  EXPECT_EQ(kept("ms")["carried"], json(made.carried));
  EXPECT_EQ(kept("ms")["dropped"], json(made.dropped));
  EXPECT_EQ(kept("ms")["settings"], made.settings);
}

TEST_F(ReportTest, UniversalCheckpointIsProvedWithItsConfig) {
  const ConvertReport made = convert(core::cat(MS_TEST_DATA, "/hf_llama_tiny"), "ucp", Format::kUniversal,
                                     [](ConvertOptions& options) { options.prove = true; });
  ASSERT_TRUE(made.proof);
  EXPECT_THAT(made.proof->faults, IsEmpty());
}

TEST_F(ReportTest, DryRunAndFailedConversionWriteNoReport) {
  convert(kModel, "dry", Format::kNative, [](ConvertOptions& options) { options.dry_run = true; });
  EXPECT_FALSE(std::filesystem::exists(folder_ / "dry.msckpt_report.json"));
  test::thrown_by([&] {
    convert(kModel, "stopped", Format::kNative,
            [](ConvertOptions& options) { options.execute.stopped = [] { return true; }; });
  });
  EXPECT_FALSE(std::filesystem::exists(folder_ / "stopped.msckpt_report.json"));
}

TEST_F(ReportTest, ProofOfGgufIsInTheReport) {
  convert(core::cat(MS_TEST_DATA, "/hf_llama_tiny"), "gguf", Format::kGguf,
          [](ConvertOptions& options) { options.prove = true; });
  const json proof = kept("gguf")["proof"];
  EXPECT_THAT(proof["faults"], IsEmpty()) << proof.dump();
}

}  // namespace
}  // namespace ms::convert
