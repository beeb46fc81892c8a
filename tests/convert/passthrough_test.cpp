#include "convert/passthrough.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <set>

#include "ckpt/execute.h"
#include "ckpt/native_sink.h"
#include "ckpt/reader.h"
#include "ckpt/reshard.h"
#include "convert/convert.h"
#include "convert/detail/nd_box.h"
#include "convert/huggingface.h"
#include "convert/safetensors.h"
#include "core/error.h"
#include "core/layout/model_layout.h"
#include "tests/convert/conversions.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string data(const char* name) { return core::cat(MS_TEST_DATA, "/", name); }

ConvertOptions options(const std::string& from, const std::string& to, Format format) {
  ConvertOptions made;
  made.load_dir = from;
  made.save_dir = to;
  made.save_model_type = format;
  return made;
}

const char* const kWrappers[] = {"hf_qwen2_5_vl_tiny", "hf_qwen3_vl_tiny", "hf_gemma3_tiny", "hf_llava_tiny",
                                 "hf_llava_tiny_memory"};

TEST(Passthrough, SourceContainsLanguageModelAndUnchangedOtherTensors) {
  for (const char* name : kWrappers) {
    SCOPED_TRACE(name);
    const auto source = open_huggingface(data(name));
    const auto others = passthrough_tensors(*source);
    const SafetensorsReader file(data(name) + "/model.safetensors");
    ASSERT_GT(others.size(), 5U);
    for (const core::ShardedTensor& other : others) {
      const auto found = file.header().find(other.key);
      ASSERT_TRUE(found) << other.key;
      const auto tensor = file.header()[*found];
      std::vector<std::byte> bytes(tensor.end - tensor.begin);
      file.read(tensor.begin, bytes);
      EXPECT_EQ(test::whole_tensor(*source, other.key, core::TensorRole::kBuffer), bytes) << other.key;
    }
    EXPECT_TRUE(source->shards().find("decoder.final_layernorm.weight", core::TensorRole::kParam)) << name;
  }
}

// hf -> ours TP 2 -> mg -> ours -> dist -> hf, without --hf-cfg-dir: the same files.
TEST(Passthrough, WrappersAreByteIdenticalAfterEveryFormatThatKeepsThem) {
  for (const char* name : kWrappers) {
    SCOPED_TRACE(name);
    const test::TemporaryFolder folder;
    ConvertOptions native = options(data(name), folder / "ms", Format::kNative);
    native.target_tensor_parallel_size = native.target_pipeline_parallel_size = 2;
    EXPECT_THAT(convert_checkpoint(native).decisions, Contains(HasSubstr("are copied unchanged")));
    ConvertOptions tree = options(folder / "ms", folder / "mg", Format::kMegatron);
    tree.target_tensor_parallel_size = 2;
    tree.allow_custom_model = std::string(name).find("gemma3") != std::string::npos;
    convert_checkpoint(tree);
    convert_checkpoint(options(folder / "mg", folder / "again", Format::kNative));
    ConvertOptions dist = options(folder / "again", folder / "dist", Format::kMegatronDist);
    dist.allow_custom_model = tree.allow_custom_model;
    convert_checkpoint(dist);
    convert_checkpoint(options(folder / "dist", folder / "hf", Format::kHuggingFace));
    for (const char* file : {"model.safetensors", "config.json", "generation_config.json"}) {
      EXPECT_TRUE(test::read_file(core::cat(folder / "hf", "/", file)) ==
                  test::read_file(core::cat(data(name), "/", file)))
          << file;
    }
  }
}

TEST(Passthrough, DcpKeepsThem) {
  for (const char* name : kWrappers) {
    SCOPED_TRACE(name);
    const test::TemporaryFolder folder;
    ConvertOptions dcp = options(data(name), folder / "dcp", Format::kDcp);
    dcp.target_data_parallel_size = 3;
    convert_checkpoint(dcp);
    convert_checkpoint(options(folder / "dcp", folder / "hf", Format::kHuggingFace));
    for (const char* file : {"model.safetensors", "config.json"}) {
      EXPECT_TRUE(test::read_file(core::cat(folder / "hf", "/", file)) ==
                  test::read_file(core::cat(data(name), "/", file)))
          << file;
    }
  }
}

TEST(Passthrough, ReshardKeepsThem) {
  const test::TemporaryFolder folder;
  ConvertOptions native = options(data("hf_llava_tiny"), folder / "ms", Format::kNative);
  native.target_tensor_parallel_size = 2;
  convert_checkpoint(native);
  const auto source = ckpt::open_native(folder / "ms");
  layout::ModelLayout layout;
  layout.tensor_model_parallel_size = 1;
  layout.pipeline_model_parallel_size = 2;
  const ckpt::ReshardPlan plan = ckpt::plan_reshard(*source, layout, {});
  std::set<std::string> keys;
  for (const core::ShardedTensor& shard : plan.targets.shards) {
    if (shard.role == core::TensorRole::kBuffer) keys.insert(shard.key);
  }
  EXPECT_EQ(keys.size(), passthrough_tensors(*source).size());
}

TEST(Passthrough, DropLeavesAStandaloneLanguageModel) {
  const test::TemporaryFolder folder;
  ConvertOptions alone = options(data("hf_llava_tiny"), folder / "hf", Format::kHuggingFace);
  alone.drop_passthrough = true;
  convert_checkpoint(alone);
  const HfConfig config = read_hf_config(folder / "hf");
  EXPECT_EQ(config.family->architecture, "LlamaForCausalLM");
  EXPECT_FALSE(config.is_wrapper);
  const SafetensorsReader file(core::cat(folder / "hf", "/model.safetensors"));
  EXPECT_TRUE(file.header().find("model.layers.1.mlp.up_proj.weight"));
  EXPECT_TRUE(passthrough_tensors(*open_huggingface(folder / "hf")).empty());
  ConvertOptions gguf = options(data("hf_llava_tiny"), folder / "gguf", Format::kGguf);
  const test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(gguf); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("--drop-passthrough"));
}

// What mstrain saves of a multimodal model: our checkpoint of its language model, with its config.json.
std::string language_part(const std::string& root, const char* model) {
  ConvertOptions native = options(data(model), root + "/whole", Format::kNative);
  convert_checkpoint(native);
  const auto whole = ckpt::open_native(root + "/whole");
  const auto extra = whole->info().model_extra;
  const auto source = drop_passthrough(ckpt::open_native(root + "/whole"));
  ckpt::ReshardPlan plan = ckpt::plan_reshard(*source, {}, {});
  plan.info.model_extra = extra;
  ckpt::NativeSinkOptions sink;
  sink.root = root + "/trained";
  sink.rank_of_target = plan.targets.ranks;
  sink.num_ranks = 1;
  sink.producer = "test";
  ckpt::execute(*source, *ckpt::make_native_sink(std::move(sink)), plan.info, plan.targets.shards, {});
  return root + "/trained";
}

TEST(Passthrough, ExportWithoutVisionTensorsReportsThatTheyAreMissing) {
  const test::TemporaryFolder folder;
  const std::string trained = language_part(folder.path().string(), "hf_llava_tiny");
  for (const Format format : {Format::kHuggingFace, Format::kDcp}) {
    const std::string to = folder / core::cat("to_", format_name(format));
    const ConvertReport report = convert_checkpoint(options(trained, to, format));
    EXPECT_THAT(report.decisions, Contains(::testing::AllOf(HasSubstr("vision tensors of its llava model"),
                                                            HasSubstr("--passthrough-from FOLDER"))));
  }
  ConvertOptions alone = options(trained, folder / "alone", Format::kHuggingFace);
  alone.drop_passthrough = true;
  const ConvertReport report = convert_checkpoint(alone);
  EXPECT_THAT(report.decisions, ::testing::Not(Contains(HasSubstr("vision tensors"))));
  EXPECT_FALSE(read_hf_config(folder / "alone").is_wrapper);
}

TEST(Passthrough, PassthroughFromOriginalFolderCompletesTheExport) {
  for (const char* model : {"hf_llava_tiny", "hf_qwen2_5_vl_tiny", "hf_gemma3_tiny"}) {
    SCOPED_TRACE(model);
    const test::TemporaryFolder folder;
    ConvertOptions back = options(language_part(folder.path().string(), model), folder / "hf", Format::kHuggingFace);
    back.passthrough_from = data(model);
    const ConvertReport report = convert_checkpoint(back);
    EXPECT_THAT(report.decisions, ::testing::Not(Contains(HasSubstr("the result lacks the vision tensors"))));
    for (const char* file : {"/model.safetensors", "/config.json"}) {
      EXPECT_TRUE(test::read_file((folder / "hf") + file) == test::read_file(data(model) + file)) << file;
    }
  }
}

TEST(Passthrough, PassthroughFromAnotherModelIsRefused) {
  const test::TemporaryFolder folder;
  const std::string trained = language_part(folder.path().string(), "hf_llava_tiny");
  const auto refusal = [&](const std::string& from, const std::string& passthrough_from) {
    ConvertOptions back = options(from, folder / "hf", Format::kHuggingFace);
    back.passthrough_from = passthrough_from;
    const test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(back); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument) << thrown.text;
    return thrown.text;
  };
  EXPECT_THAT(refusal(trained, data("hf_gemma3_tiny")), HasSubstr("its language model differs from the checkpoint's"));
  EXPECT_THAT(refusal(trained, data("hf_llama_tiny")), HasSubstr("every tensor in it belongs to the language model"));
  EXPECT_THAT(refusal(folder / "whole", data("hf_llava_tiny")), HasSubstr("contains such tensors itself"));
}

// A head that no Llama has: refused by name, kept with --passthrough.
TEST(Passthrough, AnyModelKeepsTensorsThatMatchTheFlag) {
  const test::TemporaryFolder folder;
  std::filesystem::copy(data("hf_llama_tiny"), folder / "in");
  SafetensorsReader file(data("hf_llama_tiny") + "/model.safetensors");
  std::vector<SafetensorsEntry> entries;
  for (size_t i = 0; i < file.header().size(); ++i) {
    const auto tensor = file.header()[i];
    SafetensorsEntry entry{std::string(tensor.name)};
    entry.dtype = tensor.dtype;
    entry.shape.assign(tensor.shape.begin(), tensor.shape.end());
    entries.push_back(entry);
  }
  const std::pair<const char*, std::vector<uint64_t>> more[] = {
      {"v_head.summary.weight", {1, 16}}, {"v_head.scale", {}}, {"v_head.cube", {2, 3, 5}}};
  for (const auto& [name, shape] : more) {
    SafetensorsEntry entry{name};
    entry.dtype = SafetensorsDType::kF32;
    entry.shape.assign(shape.begin(), shape.end());
    entries.push_back(entry);
  }
  const SafetensorsPreamble preamble = make_safetensors_preamble(entries, {{"format", "pt"}});
  std::string bytes(preamble.file_size_bytes, '\0');
  std::memcpy(bytes.data(), preamble.bytes.data(), preamble.bytes.size());
  for (size_t e = 0; e < entries.size(); ++e) {
    const size_t size = entries[e].size_bytes();
    std::string content(size, static_cast<char>('a' + e));
    if (const auto found = file.header().find(entries[e].name)) {
      const auto tensor = file.header()[*found];
      file.read(tensor.begin, std::as_writable_bytes(std::span(content)));
    }
    std::memcpy(bytes.data() + preamble.data_offsets[e], content.data(), size);
  }
  test::write_file(core::cat(folder / "in", "/model.safetensors"), bytes);
  const test::Thrown thrown = test::thrown_by([&] { open_huggingface(folder / "in"); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text,
              ::testing::AllOf(HasSubstr("v_head.cube"), HasSubstr("v_head.scale"), HasSubstr("--passthrough")));
  EXPECT_EQ(test::thrown_by([&] { open_huggingface(folder / "in", nullptr, "v_head["); }).code,
            core::ErrorCode::kInvalidArgument);
  ConvertOptions native = options(folder / "in", folder / "ms", Format::kNative);
  native.passthrough = "^v_head\\.";
  native.target_tensor_parallel_size = 2;
  convert_checkpoint(native);
  convert_checkpoint(options(folder / "ms", folder / "mg", Format::kMegatron));
  convert_checkpoint(options(folder / "mg", folder / "hf", Format::kHuggingFace));
  EXPECT_TRUE(test::read_file(core::cat(folder / "hf", "/model.safetensors")) == bytes);
}

TEST(Passthrough, CanonicalNamesDoNotPass) {
  EXPECT_TRUE(is_canonical_name("decoder.layers.0.x"));
  EXPECT_TRUE(is_canonical_name("mtp.layers.0.x"));
  EXPECT_FALSE(is_canonical_name("model.visual.decoder.x"));
  const auto rule = passthrough_rule("head$", false);
  EXPECT_TRUE(rule("value_head"));
  EXPECT_FALSE(rule("head.weight"));
  EXPECT_FALSE(rule("visual.x"));
  EXPECT_TRUE(passthrough_rule("", true)("visual.x"));
}

TEST(NdBox, MatchesANaiveLoop) {
  const core::Dims shape = {3, 4, 2, 5};
  std::vector<std::byte> file(120);
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<std::byte>(i);
  for (const auto& [offset, extent] : {std::pair<core::Dims, core::Dims>{{0, 0, 0, 0}, {3, 4, 2, 5}},
                                       {{1, 0, 0, 0}, {2, 4, 2, 5}},
                                       {{0, 1, 0, 0}, {3, 2, 2, 5}},
                                       {{2, 3, 1, 2}, {1, 1, 1, 3}},
                                       {{0, 0, 1, 0}, {3, 4, 1, 5}},
                                       {{1, 1, 0, 4}, {2, 3, 2, 1}},
                                       {{0, 0, 0, 0}, {3, 0, 2, 5}}}) {
    std::vector<std::byte> expected, seen(static_cast<size_t>(core::num_elements(extent)));
    for (int64_t a = 0; a < extent[0]; ++a) {
      for (int64_t b = 0; b < extent[1]; ++b) {
        for (int64_t c = 0; c < extent[2]; ++c) {
          for (int64_t d = 0; d < extent[3]; ++d) {
            const int64_t at = (((offset[0] + a) * 4 + offset[1] + b) * 2 + offset[2] + c) * 5 + offset[3] + d;
            expected.push_back(file[static_cast<size_t>(at)]);
          }
        }
      }
    }
    detail::read_nd_box(shape, 1, offset, extent, seen.data(), [&](int64_t at, std::span<std::byte> bytes) {
      std::copy_n(file.begin() + at, bytes.size(), bytes.begin());
    });
    EXPECT_EQ(seen, expected) << offset << " " << extent;
  }
}

}  // namespace
}  // namespace ms::convert
