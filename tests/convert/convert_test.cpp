#include "convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ckpt/native_sink.h"
#include "ckpt/reader.h"
#include "convert/huggingface_config.h"
#include "convert/safetensors.h"
#include "core/error.h"
#include "core/io/result_folder.h"
#include "kernels/bf16.h"
#include "tests/convert/whole_tensor.h"
#include "tests/support/files_of.h"
#include "tests/support/killed.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::ErrorCode;
using test::read_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string data(const std::string& name) { return core::cat(MS_TEST_DATA, "/", name); }

ConvertOptions options(const std::string& from, const std::string& to) {
  ConvertOptions result;
  result.load_dir = from;
  result.save_dir = to;
  return result;
}

std::string error_of(const ConvertOptions& asked, ErrorCode code) {
  try {
    convert_checkpoint(asked);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

struct RoundTrip {
  const char* model;
  int tp, pp;
  int64_t max_shard_size_bytes;
  int ep = 1;
  std::optional<int> etp = std::nullopt;
};

class ConvertRoundTripTest : public ::testing::TestWithParam<RoundTrip> {};

TEST_P(ConvertRoundTripTest, FolderIsByteIdenticalAfterNative) {
  const RoundTrip& trip = GetParam();
  const test::TemporaryFolder folder;
  ConvertOptions in = options(data(trip.model), folder / "ms");
  in.target_tensor_parallel_size = trip.tp;
  in.target_pipeline_parallel_size = trip.pp;
  in.target_expert_parallel_size = trip.ep;
  in.expert_tensor_parallel_size = trip.etp;
  const ConvertReport made = convert_checkpoint(in);
  EXPECT_EQ(made.to, Format::kNative);
  EXPECT_THAT(made.decisions, IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(made.path));
  const auto native = ckpt::open_native(folder / "ms");
  EXPECT_EQ(native->info().iteration, 0);
  EXPECT_FALSE(ckpt::has_role(*native, core::TensorRole::kExpAvg));

  ConvertOptions out = options(folder / "ms", folder / "hf");
  out.max_shard_size_bytes = trip.max_shard_size_bytes;
  const ConvertReport back = convert_checkpoint(out);
  EXPECT_EQ(back.path, folder / "hf");
  EXPECT_GE(back.bytes, made.bytes);  // multi-token prediction layers store copies of tensors that ours store once
  for (const auto& entry : std::filesystem::directory_iterator(data(trip.model))) {
    const std::string name = entry.path().filename().string();
    if (name == "reference.json") continue;
    EXPECT_EQ(read_file(core::cat(back.path, "/", name)), read_file(entry.path().string())) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, ConvertRoundTripTest,
    ::testing::Values(
        RoundTrip{"hf_llama_tiny", 1, 1, 5'000'000'000}, RoundTrip{"hf_llama_tiny", 2, 2, 5'000'000'000},
        RoundTrip{"hf_llama_tiny_sharded", 2, 1, 8'000}, RoundTrip{"hf_llama_tiny_sharded", 1, 2, 8'000},
        RoundTrip{"hf_qwen2_tiny", 2, 2, 5'000'000'000}, RoundTrip{"hf_qwen3_tiny", 2, 1, 5'000'000'000},
        RoundTrip{"hf_mixtral_tiny", 2, 2, 5'000'000'000, 2}, RoundTrip{"hf_qwen2_moe_tiny", 2, 3, 5'000'000'000, 2, 1},
        RoundTrip{"hf_qwen3_moe_tiny", 1, 2, 5'000'000'000, 4}, RoundTrip{"hf_qwen3_moe_tiny_sharded", 2, 1, 8'000, 2},
        RoundTrip{"hf_glm4_moe_tiny", 2, 2, 5'000'000'000, 2}, RoundTrip{"hf_deepseek_v2_tiny", 2, 2, 5'000'000'000, 2},
        RoundTrip{"hf_deepseek_v3_tiny", 2, 2, 5'000'000'000, 2},
        RoundTrip{"hf_deepseek_v3_tiny", 4, 1, 5'000'000'000, 4, 1}));

// On request transformers writes the experts of a layer as one tensor; we write them one by one.
TEST(ConvertTest, PackedAndSingleExpertsAreEqual) {
  for (const char* model : {"hf_deepseek_v3_tiny", "hf_mixtral_tiny"}) {
    const auto packed = open_source(data(core::cat(model, "_packed")));
    const auto single = open_source(data(model));
    for (size_t t = 0; t < packed->shards().num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      const std::string key(packed->shards().key(tensor));
      const core::TensorRole role = packed->shards().role(tensor);
      const std::vector<std::byte> bytes = test::whole_tensor(*packed, key, role);
      ASSERT_FALSE(bytes.empty());
      ASSERT_EQ(bytes, test::whole_tensor(*single, key, role)) << model << " " << key;
    }
    EXPECT_GT(packed->shards().num_tensors(), 20u);
  }
}

TEST(ConvertTest, DtypeCastRoundsToNearestEvenAndIsReported) {
  const test::TemporaryFolder folder;
  ConvertOptions asked = options(data("hf_llama_tiny_sharded"), folder / "bf16");
  asked.save_model_type = Format::kHuggingFace;
  asked.dtype = core::DType::kBf16;
  asked.max_shard_size_bytes = 1'000'000;  // one file
  const ConvertReport report = convert_checkpoint(asked);
  ASSERT_EQ(report.decisions.size(), 1u);
  EXPECT_THAT(report.decisions[0], HasSubstr("from fp32 to bf16"));
  EXPECT_EQ(read_hf_config(folder / "bf16").dtype, core::DType::kBf16);

  const SafetensorsReader cast(folder / "bf16/model.safetensors");
  const SafetensorsReader original(data("hf_llama_tiny_sharded/model-00001-of-00003.safetensors"));
  for (size_t i = 0; i < original.header().size(); ++i) {
    const auto from = original.header()[i];
    const auto to = cast.header()[*cast.header().find(from.name)];
    std::vector<float> wide((from.end - from.begin) / 4);
    std::vector<uint16_t> narrow((to.end - to.begin) / 2);
    ASSERT_EQ(wide.size(), narrow.size());
    original.read(from.begin, std::as_writable_bytes(std::span(wide)));
    cast.read(to.begin, std::as_writable_bytes(std::span(narrow)));
    for (size_t e = 0; e < wide.size(); ++e) ASSERT_EQ(narrow[e], kernels::bf16(wide[e]).bits) << from.name << " " << e;
  }
}

// transformers splits models with experts by shared memory; sizes alone do not determine the split.
TEST(ConvertTest, DefaultSplitIsThatOfTheConfigFolder) {
  for (const char* model : {"hf_llama_tiny_sharded", "hf_qwen3_moe_tiny_sharded"}) {
    const test::TemporaryFolder folder;
    ConvertOptions asked = options(data(model), folder / "ms");
    convert_checkpoint(asked);
    for (const bool from_native : {false, true}) {
      const std::string to = folder / (from_native ? "back" : "copy");
      asked = options(from_native ? folder / "ms" : data(model), to);
      asked.save_model_type = Format::kHuggingFace;
      if (from_native) asked.hf_cfg_dir = data(model);
      convert_checkpoint(asked);
      int files = 0;
      for (const auto& entry : fs::directory_iterator(data(model))) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with("model")) continue;
        EXPECT_TRUE(test::read_file(to + "/" + name) == test::read_file(entry.path().string())) << model << " " << name;
        ++files;
      }
      EXPECT_GT(files, 2);
    }
    asked.save_dir = folder / "single";
    asked.max_shard_size_bytes = 100'000'000;
    convert_checkpoint(asked);
    EXPECT_TRUE(fs::exists(folder / "single/model.safetensors")) << "what is asked for comes first";
  }
}

TEST(ConvertTest, SecondConversionToTheSameFolderIsRefused) {
  const test::TemporaryFolder folder;
  const core::ResultFolder first(folder / "out");
  for (const Format to : {Format::kHuggingFace, Format::kGguf, Format::kMegatron, Format::kDcp, Format::kUniversal}) {
    ConvertOptions asked = options(data("hf_llama_tiny"), folder / "out");
    asked.save_model_type = to;
    const test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(asked); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
    EXPECT_THAT(thrown.text, HasSubstr("is held by process"));
    EXPECT_FALSE(fs::exists(folder / "out"));
  }
}

// Before each call that writes, syncs or renames: also between the renames that publish the result.
TEST(ConvertTest, ConversionAfterAKillIntoAFolderWithOtherFilesSucceeds) {
  const test::TemporaryFolder folder;
  const auto shards_of = [&](const std::string& to, Format format, bool resume) {
    ConvertOptions asked = options(data("hf_llama_tiny"), to);
    asked.save_model_type = format;
    if (format == Format::kHuggingFaceBin) asked.max_shard_size_bytes = 100'000;
    asked.resume = resume;
    return asked;
  };
  for (const Format format : {Format::kHuggingFaceBin, Format::kMegatron}) {
    const std::string name(format_name(format)), whole = folder / (name + "_whole");
    fs::create_directory(whole);
    test::write_file(whole + "/mine", "mine");
    convert_checkpoint(shards_of(whole, format, false));
    const auto expected = test::files_of(whole);
    bool finished = false;
    for (int nth = 0; !finished; ++nth) {
      const std::string out = folder / "out";
      fs::create_directory(out);
      test::write_file(out + "/mine", "mine");
      finished = test::survives(nth, [&] { convert_checkpoint(shards_of(out, format, false)); });
      if (!finished && test::files_of(out) != expected) convert_checkpoint(shards_of(out, format, nth % 2 == 1));
      EXPECT_EQ(test::files_of(out), expected) << name << ", killed before call " << nth;
      fs::remove_all(out);
      fs::remove_all(out + ".msckpt-tmp");
    }
  }
}

TEST(ConvertTest, FolderThatCannotBeCreatedIsAnIoError) {
  for (const Format to : {Format::kHuggingFace, Format::kGguf, Format::kMegatron}) {
    ConvertOptions asked = options(data("hf_llama_tiny"), "/proc/out");
    asked.save_model_type = to;
    const test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(asked); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
    EXPECT_THAT(thrown.text, HasSubstr("/proc/out"));
  }
}

// During a conversion the target folder stays empty, whatever the format and write path.
TEST(ConvertTest, TargetFolderHasNoUnfinishedFiles) {
  for (const Format to : {Format::kHuggingFace, Format::kGguf, Format::kMegatron, Format::kMegatronDist, Format::kDcp,
                          Format::kUniversal}) {
    const test::TemporaryFolder folder;
    ConvertOptions asked = options(data("hf_llama_tiny"), folder / "out");
    asked.save_model_type = to;
    asked.write_path = core::WritePath::kBuffered;
    int seen = 0;
    asked.execute.progress = [&](int64_t, int64_t) {
      EXPECT_FALSE(fs::exists(folder / "out"));
      ++seen;
    };
    convert_checkpoint(asked);
    EXPECT_GT(seen, 0);
    EXPECT_FALSE(fs::exists(folder / "out.msckpt-tmp"));
  }
}

TEST(ConvertTest, DryRunWritesNothing) {
  const test::TemporaryFolder folder;
  for (const Format to : {Format::kNative, Format::kHuggingFace}) {
    ConvertOptions asked = options(data("hf_llama_tiny"), folder / "out");
    asked.save_model_type = to;
    asked.dry_run = true;
    const ConvertReport report = convert_checkpoint(asked);
    EXPECT_GT(report.bytes, 0);
    EXPECT_EQ(to_json(report).at("dry_run"), true);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

// A native checkpoint of the tiny model with an fp32 moment, as a trainer writes it.
void write_native_with_moments(const std::string& root) {
  const auto source = open_source(data("hf_llama_tiny"));
  std::vector<core::ShardedTensor> targets(source->shards().begin(), source->shards().end());
  const size_t params = targets.size();
  core::ShardedTensor moment{
      "decoder.final_layernorm.weight", core::TensorRole::kExpAvg, core::DType::kFp32, {16}, {0}, {16}};
  targets.push_back(moment);
  ckpt::NativeSinkOptions sink_options;
  sink_options.root = root;
  const auto sink = ckpt::make_native_sink(sink_options);
  sink->begin(source->info(), targets);
  for (size_t t = 0; t < targets.size(); ++t) {
    const int64_t count = core::num_elements(targets[t].local_shape);
    std::vector<std::byte> bytes(static_cast<size_t>(count * core::size_of(targets[t].dtype)));
    const core::Dims zero(targets[t].local_shape.size(), 0);
    if (t < params) source->read(static_cast<int32_t>(t), zero, targets[t].local_shape, bytes.data());
    sink->write(static_cast<int32_t>(t), 0, count, bytes.data());
  }
  sink->commit();
}

TEST(ConvertTest, OptimizerStateIsNotDroppedSilently) {
  const test::TemporaryFolder folder;
  write_native_with_moments(folder / "ms");
  ConvertOptions asked = options(folder / "ms", folder / "hf");
  EXPECT_THAT(error_of(asked, ErrorCode::kUnsupported), HasSubstr("--drop-optimizer"));
  EXPECT_FALSE(std::filesystem::exists(folder / "hf"));
  asked.drop_optimizer = true;
  EXPECT_THAT(convert_checkpoint(asked).decisions, ElementsAre(HasSubstr("exp_avg")));
  EXPECT_EQ(read_file(folder / "hf/model.safetensors"), read_file(data("hf_llama_tiny/model.safetensors")));
}

TEST(ConvertTest, ModelWithoutConfigGetsAGeneratedOne) {
  const test::TemporaryFolder folder;
  const auto source = open_source(data("hf_qwen3_tiny"));
  ckpt::CheckpointInfo info = source->info();
  info.model_extra = nlohmann::json::object();
  ckpt::NativeSinkOptions sink_options;
  sink_options.root = folder / "ms";
  ckpt::execute(*source, *ckpt::make_native_sink(sink_options), info, source->shards(), {});
  convert_checkpoint(options(folder / "ms", folder / "hf"));
  EXPECT_EQ(read_file(folder / "hf/model.safetensors"), read_file(data("hf_qwen3_tiny/model.safetensors")));
  const HfConfig made = read_hf_config(folder / "hf");
  EXPECT_EQ(made.family->model_type, "qwen3");
  EXPECT_TRUE(same_model(made.model, info.model));
  EXPECT_TRUE(made.original.at("pad_token_id").is_null()) << "absent, glm4's would be behind a small vocabulary";

  ConvertOptions asked = options(folder / "ms", folder / "hf2");
  asked.hf_cfg_dir = data("hf_qwen3_tiny");
  convert_checkpoint(asked);
  EXPECT_EQ(read_file(folder / "hf2/config.json"), read_file(data("hf_qwen3_tiny/config.json")));
  asked.save_dir = folder / "hf3";
  asked.hf_cfg_dir = data("hf_llama_tiny");
  EXPECT_THAT(error_of(asked, ErrorCode::kInvalidArgument), HasSubstr("another model"));
}

TEST(ConvertTest, ContradictoryOptionsAreRefusedBeforeWriting) {
  const test::TemporaryFolder folder;
  ConvertOptions asked = options(data("hf_llama_tiny"), data("hf_llama_tiny"));
  EXPECT_THAT(error_of(asked, ErrorCode::kInvalidArgument), HasSubstr("same folder"));
  asked = options(data("hf_llama_tiny"), folder / "out");
  asked.target_tensor_parallel_size = 3;  // 4 heads, 2 groups
  error_of(asked, ErrorCode::kInvalidArgument);
  asked.target_tensor_parallel_size = 2;
  asked.save_model_type = Format::kHuggingFace;
  EXPECT_THAT(error_of(asked, ErrorCode::kInvalidArgument),
              HasSubstr("--target-tensor-parallel-size applies to ms, mg and dist results"));
  asked = options(data("hf_llama_tiny"), folder / "out");
  asked.load_model_type = Format::kNative;
  error_of(asked, ErrorCode::kNotFound);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  convert_checkpoint(options(data("hf_llama_tiny"), folder / "ms"));
  asked = options(folder / "ms", folder / "ms2");
  asked.save_model_type = Format::kNative;
  EXPECT_THAT(error_of(asked, ErrorCode::kInvalidArgument), HasSubstr("msckpt reshard"));
  asked.save_model_type = Format::kHuggingFace;
  asked.use_distributed_optimizer = true;
  EXPECT_THAT(error_of(asked, ErrorCode::kInvalidArgument), HasSubstr("--use-distributed-optimizer"));
  asked.use_distributed_optimizer = false;
  asked.true_vocab_size = 17;
  EXPECT_THAT(error_of(asked, ErrorCode::kInvalidArgument),
              HasSubstr("--true-vocab-size applies to mg and dist sources"));
}

TEST(ConvertTest, FlagValuesAreParsed) {
  EXPECT_EQ(parse_target_format("hf", "--f"), Format::kHuggingFace);
  EXPECT_EQ(parse_target_format("ms", "--f"), Format::kNative);
  EXPECT_EQ(parse_target_format("mg", "--f"), Format::kMegatron);
  EXPECT_THROW(parse_target_format("onnx", "--f"), core::Error);
  EXPECT_EQ(parse_norm_naming("te", "--n"), MegatronNaming::kTransformerEngine);
  EXPECT_THROW(parse_norm_naming("mcore", "--n"), core::Error);
  EXPECT_EQ(parse_args_form("dict", "--a"), MegatronArgsForm::kDict);
  EXPECT_THROW(parse_args_form("", "--a"), core::Error);
  EXPECT_EQ(parse_weight_dtype("bf16", "--d"), core::DType::kBf16);
  EXPECT_THROW(parse_weight_dtype("int8", "--d"), core::Error);
  EXPECT_THROW(parse_weight_dtype("float32", "--d"), core::Error);
  EXPECT_EQ(parse_size_bytes("5GB", "--s"), 5'000'000'000);
  EXPECT_EQ(parse_size_bytes("2GiB", "--s"), int64_t{2} << 30);
  EXPECT_EQ(parse_size_bytes("17", "--s"), 17);
  for (const char* bad : {"", "GB", "0", "-1MB", "1TB", "5 GB", "1.5GB", "9223372036854775807GB"}) {
    EXPECT_THROW(parse_size_bytes(bad, "--s"), core::Error) << bad;
  }
}

// --model-type-hf: for a model that several families can express and that does not come from a folder.
TEST(ConvertTest, ModelTypeHfSetsTheResultsFamily) {
  const test::TemporaryFolder folder;
  ConvertOptions options;
  options.load_dir = core::cat(MS_TEST_DATA, "/megatron/swiglu_tp2_pp2_distributed");
  options.save_model_type = Format::kHuggingFace;
  options.drop_optimizer = true;
  const auto model_type = [&](const std::string& asked) {
    options.save_dir = folder / ("hf_" + asked);
    options.claims.model_type_hf = asked;
    convert_checkpoint(options);
    return read_json(options.save_dir + "/config.json", 1 << 20).at("model_type").get<std::string>();
  };
  EXPECT_EQ(model_type(""), "llama");
  EXPECT_EQ(model_type("magistral"), "mistral");
  const test::Thrown thrown = test::thrown_by([&] { model_type("qwen3"); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, testing::HasSubstr("a config.json of qwen3 cannot express this model"));
}

}  // namespace
}  // namespace ms::convert
