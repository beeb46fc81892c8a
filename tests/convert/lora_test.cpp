// A LoRA adapter merged while weights are read, compared with W + scale * B A in double, through every layout; and what
// is refused. lora_test.py compares with PEFT's own merge.
#include "convert/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "convert/convert.h"
#include "convert/huggingface.h"
#include "convert/safetensors.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::cat;
using core::ErrorCode;
using testing::Contains;
using testing::HasSubstr;

struct Values {
  std::vector<uint64_t> shape;
  std::vector<float> values;
};

// Numbers that depend only on the name.
Values numbers(const std::string& name, std::vector<uint64_t> shape) {
  uint64_t count = 1;
  for (const uint64_t length : shape) count *= length;
  Values made{std::move(shape), std::vector<float>(count)};
  uint64_t state = std::hash<std::string>()(name);
  for (float& value : made.values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = static_cast<float>(static_cast<int64_t>(state >> 40) - (1 << 23)) / (1 << 23);
  }
  return made;
}

void write_safetensors(const std::string& path, const std::map<std::string, Values>& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, values] : tensors) entries.push_back({name, SafetensorsDType::kF32, values.shape});
  const SafetensorsPreamble preamble = make_safetensors_preamble(entries, {});
  std::string bytes = preamble.bytes;
  bytes.resize(preamble.file_size_bytes);
  size_t next = 0;
  for (const auto& [name, values] : tensors) {
    std::memcpy(bytes.data() + preamble.data_offsets[next++], values.values.data(),
                values.values.size() * sizeof(float));
  }
  test::write_file(path, bytes);
}

std::map<std::string, Values> read_safetensors(const std::string& path) {
  std::map<std::string, Values> tensors;
  const SafetensorsReader reader(path);
  for (size_t i = 0; i < reader.header().size(); ++i) {
    const auto tensor = reader.header()[i];
    EXPECT_EQ(tensor.dtype, SafetensorsDType::kF32);
    Values& values = tensors[std::string(tensor.name)];
    values.shape.assign(tensor.shape.begin(), tensor.shape.end());
    values.values.resize((tensor.end - tensor.begin) / sizeof(float));
    reader.read(tensor.begin, std::as_writable_bytes(std::span(values.values)));
  }
  return tensors;
}

class Lora : public testing::Test {
 protected:
  void config(const std::string& more = "") {
    test::write_file(folder_ / "adapter/adapter_config.json",
                     cat(R"({"peft_type": "LORA", "lora_alpha": 6)", more, "}"));
  }
  void pair(const std::string& module, uint64_t out, uint64_t in, uint64_t rank = 3) {
    adapter_[cat("base_model.model.", module, ".lora_A.weight")] = numbers(module + "A", {rank, in});
    adapter_[cat("base_model.model.", module, ".lora_B.weight")] = numbers(module + "B", {out, rank});
  }
  void save() { write_safetensors(folder_ / "adapter/adapter_model.safetensors", adapter_); }
  ConvertOptions options(const std::string& model) {
    ConvertOptions options;
    options.load_dir = cat(MS_TEST_DATA, "/", model);
    options.lora = folder_ / "adapter";
    options.save_dir = folder_ / "merged";
    options.save_model_type = Format::kHuggingFace;
    return options;
  }
  Lora() { std::filesystem::create_directories(folder_ / "adapter"); }

  // transposed: the weight is stored [in, out].
  void expect_merged(const std::string& model, const std::string& module, double scale, bool transposed = false) {
    const auto before = read_safetensors(cat(MS_TEST_DATA, "/", model, "/model.safetensors"));
    const auto after = read_safetensors(folder_ / "merged/model.safetensors");
    const Values& a = adapter_.at(cat("base_model.model.", module, ".lora_A.weight"));
    const Values& b = adapter_.at(cat("base_model.model.", module, ".lora_B.weight"));
    const Values &old = before.at(module + ".weight"), &made = after.at(module + ".weight");
    const uint64_t rank = a.shape[0], in = a.shape[1], out = b.shape[0];
    for (uint64_t o = 0; o < out; ++o) {
      for (uint64_t i = 0; i < in; ++i) {
        double sum = 0, size = 0;
        for (uint64_t k = 0; k < rank; ++k) {
          const double product = double{b.values[o * rank + k]} * double{a.values[k * in + i]};
          sum += product;
          size += std::abs(product);
        }
        const size_t at = transposed ? i * out + o : o * in + i;
        const double wanted = double{old.values[at]} + scale * sum;
        const double bound = static_cast<double>(rank + 3) * 0x1p-24 * (std::abs(wanted) + scale * size);
        ASSERT_NEAR(made.values[at], wanted, bound) << module << " " << o << " " << i;
      }
    }
  }
  const test::TemporaryFolder folder_;
  std::map<std::string, Values> adapter_;
};

TEST_F(Lora, LlamaLinearLayersAreMerged) {
  config(R"(, "alpha_pattern": {"mlp.down_proj": 12})");
  for (int layer = 0; layer < 2; ++layer) {
    pair(cat("model.layers.", layer, ".self_attn.q_proj"), 64, 16);
    pair(cat("model.layers.", layer, ".self_attn.k_proj"), 32, 16);
    pair(cat("model.layers.", layer, ".mlp.up_proj"), 24, 16);
  }
  pair("model.layers.1.mlp.down_proj", 16, 24);
  save();
  EXPECT_THAT(convert_checkpoint(options("hf_llama3_tiny")).decisions, Contains(HasSubstr("merged into 7 weights")));
  for (const char* module :
       {"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.k_proj", "model.layers.0.mlp.up_proj"}) {
    expect_merged("hf_llama3_tiny", module, 2.0);
  }
  expect_merged("hf_llama3_tiny", "model.layers.1.mlp.down_proj", 4.0);
  const auto before = read_safetensors(cat(MS_TEST_DATA, "/hf_llama3_tiny/model.safetensors"));
  const auto after = read_safetensors(folder_ / "merged/model.safetensors");
  EXPECT_EQ(before.at("model.layers.0.mlp.gate_proj.weight").values,
            after.at("model.layers.0.mlp.gate_proj.weight").values);
}

TEST_F(Lora, MergeIntoANativeLayoutIsEqual) {
  config(R"(, "use_rslora": true)");
  pair("model.layers.1.self_attn.v_proj", 32, 16);
  pair("model.layers.0.mlp.gate_proj", 24, 16);
  save();
  ConvertOptions direct = options("hf_llama3_tiny");
  convert_checkpoint(direct);
  expect_merged("hf_llama3_tiny", "model.layers.1.self_attn.v_proj", 6 / std::sqrt(3.0));
  ConvertOptions native = direct;
  native.save_dir = folder_ / "native";
  native.save_model_type = Format::kNative;
  native.target_tensor_parallel_size = 2;
  convert_checkpoint(native);
  ConvertOptions back;
  back.load_dir = native.save_dir;
  back.save_dir = folder_ / "back";
  convert_checkpoint(back);
  EXPECT_EQ(test::read_file(folder_ / "back/model.safetensors"), test::read_file(folder_ / "merged/model.safetensors"));
}

TEST_F(Lora, Conv1DIsMergedTransposed) {
  config(R"(, "fan_in_fan_out": true)");
  pair("transformer.h.0.attn.c_attn", 48, 16);
  pair("transformer.h.1.mlp.c_proj", 16, 64);
  save();
  convert_checkpoint(options("hf_gpt2_tiny"));
  expect_merged("hf_gpt2_tiny", "transformer.h.0.attn.c_attn", 2.0, true);
  expect_merged("hf_gpt2_tiny", "transformer.h.1.mlp.c_proj", 2.0, true);
}

TEST_F(Lora, Bf16ModelCanBecomeFp32) {
  config();
  pair("model.layers.0.self_attn.o_proj", 16, 16);
  save();
  ConvertOptions asked = options("hf_llama_tiny");
  asked.dtype = core::DType::kFp32;
  convert_checkpoint(asked);
  asked.lora.clear();
  asked.save_dir = folder_ / "plain";
  convert_checkpoint(asked);
  const Values merged =
      read_safetensors(folder_ / "merged/model.safetensors").at("model.layers.0.self_attn.o_proj.weight");
  const Values plain =
      read_safetensors(folder_ / "plain/model.safetensors").at("model.layers.0.self_attn.o_proj.weight");
  const Values a = adapter_.at("base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight");
  const Values b = adapter_.at("base_model.model.model.layers.0.self_attn.o_proj.lora_B.weight");
  double sum = 0;
  for (size_t k = 0; k < 3; ++k) sum += double{b.values[k]} * double{a.values[k * 16]};
  EXPECT_NEAR(merged.values[0], double{plain.values[0]} + 2 * sum, 1e-6);  // bf16 would be off by up to 0.004
}

TEST_F(Lora, FullyTrainedModuleReplacesTheWeight) {
  config();
  adapter_["base_model.model.lm_head.weight"] = numbers("head", {67, 16});
  adapter_["base_model.model.model.norm.modules_to_save.default.weight"] = numbers("norm", {16});
  save();
  EXPECT_THAT(convert_checkpoint(options("hf_llama3_tiny")).decisions, Contains(HasSubstr("2 are replaced")));
  const auto after = read_safetensors(folder_ / "merged/model.safetensors");
  EXPECT_EQ(after.at("lm_head.weight").values, adapter_.at("base_model.model.lm_head.weight").values);
  EXPECT_EQ(after.at("model.norm.weight").values, numbers("norm", {16}).values);
}

TEST_F(Lora, UnsetOptionsAreAccepted) {
  pair("model.layers.0.self_attn.q_proj", 64, 16);
  for (const char* more : {R"(, "use_dora": false, "layer_replication": null, "velora_config": {})",
                           R"(, "init_lora_weights": true)", R"(, "init_lora_weights": "gaussian")",
                           R"(, "alpha_pattern": {"q_proj": 3, "self_attn.q_proj": 3.0, "k_proj": 5})"}) {
    config(more);
    save();
    ConvertOptions dry = options("hf_llama3_tiny");
    dry.dry_run = true;
    EXPECT_NO_THROW(convert_checkpoint(dry)) << more;
  }
}

TEST_F(Lora, UnsupportedAdaptersAreRefused) {
  const auto refused = [&](ErrorCode code, const std::string& part) {
    save();
    const test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(options("hf_llama3_tiny")); });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(part));
    EXPECT_EQ(thrown.text.find('\n'), std::string::npos);
  };
  pair("model.layers.0.self_attn.q_proj", 64, 16);
  for (const auto& [more, part] :
       {std::pair(R"(, "use_dora": true)", "use_dora"), std::pair(R"(, "bias": "all")", "bias other"),
        std::pair(R"(, "alpha_pattern": {"q.*": 3})", "regular expression"),
        std::pair(R"(, "alpha_pattern": {"q_proj": 3, "self_attn.q_proj": 4})", "two numbers for \"model.layers.0"),
        std::pair(R"(, "init_lora_weights": "pissa_niter_4")", "init_lora_weights \"pissa_niter_4\", which changes"),
        std::pair(R"(, "init_lora_weights": "olora")", "path_initial_model_for_weight_conversion"),
        std::pair(R"(, "layer_replication": [[0, 2], [1, 2]])", "layer_replication"),
        std::pair(R"(, "use_qalora": true)", "use_qalora"), std::pair(R"(, "kasa_config": {"a": 1})", "kasa_config")}) {
    config(more);
    refused(ErrorCode::kUnsupported, part);
  }
  test::write_file(folder_ / "adapter/adapter_config.json", R"({"peft_type": "IA3"})");
  refused(ErrorCode::kUnsupported, "peft_type \"IA3\"");
  config();
  pair("model.layers.7.self_attn.q_proj", 64, 16);
  refused(ErrorCode::kUnsupported,
          "model.layers.7.self_attn.q_proj.weight\", which a llama model with this config does not have");
  adapter_.clear();
  pair("model.layers.0.self_attn.q_proj", 32, 16);
  refused(ErrorCode::kCorruptData, "do not fit that weight's shape");
  adapter_.erase("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight");
  refused(ErrorCode::kCorruptData, "does not have both A and B");
  adapter_["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"] = {{0, 16}, {}};
  adapter_["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"] = {{64, 0}, {}};
  refused(ErrorCode::kCorruptData, "of the same rank above 0");
}

}  // namespace
}  // namespace ms::convert
