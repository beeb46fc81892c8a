#include "convert/user_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/convert.h"
#include "convert/safetensors.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

const char* const kLlama = R"({"family": "llama", "tensors": {
  "embedding.word_embeddings.weight": "backbone.embed",
  "decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight": "backbone.block.{layer}.norm_1",
  "decoder.layers.{layer}.self_attention.linear_qkv.weight": {"qkv": "backbone.block.{layer}.qkv", "transposed": true},
  "decoder.layers.{layer}.self_attention.linear_proj.weight": "backbone.block.{layer}.out",
  "decoder.layers.{layer}.self_attention.q_layernorm.weight": "backbone.block.{layer}.q_norm",
  "decoder.layers.{layer}.self_attention.k_layernorm.weight": "backbone.block.{layer}.k_norm",
  "decoder.layers.{layer}.self_attention.linear_qkv.bias": {"qkv": "backbone.block.{layer}.qkv_bias"},
  "decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight": "backbone.block.{layer}.norm_2",
  "decoder.layers.{layer}.mlp.linear_fc1.weight": {"up": "backbone.block.{layer}.w3", "gate": "backbone.block.{layer}.w1"},
  "decoder.layers.{layer}.mlp.linear_fc2.weight": {"whole": "backbone.block.{layer}.w2"},
  "decoder.final_layernorm.weight": "backbone.norm",
  "output_layer.weight": "head.weight"}})";

std::vector<std::byte> tensor_bytes(const std::string& file, const std::string& name) {
  const SafetensorsReader reader(file);
  const auto found = reader.header().find(name);
  if (!found) return {};
  const auto tensor = reader.header()[*found];
  std::vector<std::byte> bytes(tensor.end - tensor.begin);
  reader.read(tensor.begin, bytes);
  return bytes;
}

TEST(UserFamily, AFolderUnderOtherNamesIsTheSameModel) {
  const std::string model = core::cat(MS_TEST_DATA, "/hf_llama_tiny");
  const test::TemporaryFolder folder;
  test::write_file(folder / "names.json", kLlama);
  ConvertOptions out;
  out.load_dir = model;
  out.save_dir = folder / "ms";
  convert_checkpoint(out);
  out.load_dir = folder / "ms";
  out.save_dir = folder / "renamed";
  out.save_model_type = Format::kHuggingFace;
  out.name_map = folder / "names.json";
  convert_checkpoint(out);
  const std::string renamed = folder / "renamed/model.safetensors", own = model + "/model.safetensors";
  for (const auto& [theirs, ours] : {std::pair{"backbone.embed", "model.embed_tokens.weight"},
                                     std::pair{"backbone.block.1.w1", "model.layers.1.mlp.gate_proj.weight"},
                                     std::pair{"backbone.block.0.w3", "model.layers.0.mlp.up_proj.weight"},
                                     std::pair{"backbone.block.1.out", "model.layers.1.self_attn.o_proj.weight"},
                                     std::pair{"head.weight", "lm_head.weight"}}) {
    EXPECT_FALSE(tensor_bytes(renamed, theirs).empty()) << theirs;
    EXPECT_EQ(tensor_bytes(renamed, theirs), tensor_bytes(own, ours)) << theirs;
  }
  // Transposed, in the order q, k, v: element (column, row) of it is (row, column) of q.
  const auto q = tensor_bytes(own, "model.layers.0.self_attn.q_proj.weight");
  const auto k = tensor_bytes(own, "model.layers.0.self_attn.k_proj.weight");
  const auto qkv = tensor_bytes(renamed, "backbone.block.0.qkv");
  constexpr size_t kHidden = 16, kQueryRows = 16, kRows = 32;
  ASSERT_EQ(qkv.size(), kHidden * kRows * 2);
  for (size_t column = 0; column < kHidden; ++column) {
    for (size_t byte = 0; byte < 2; ++byte) {
      EXPECT_EQ(qkv[(column * kRows + 3) * 2 + byte], q[(3 * kHidden + column) * 2 + byte]);
      EXPECT_EQ(qkv[(column * kRows + kQueryRows + 3) * 2 + byte], k[(3 * kHidden + column) * 2 + byte]);
    }
  }
  // And back, from a folder whose model_type nobody knows.
  std::string config = test::read_file(folder / "renamed/config.json");
  const std::string type = "\"model_type\": \"llama\"";
  config.replace(config.find(type), type.size(), "\"model_type\": \"backbone\"");
  test::write_file(folder / "renamed/config.json", config);
  ConvertOptions back;
  back.load_dir = folder / "renamed";
  back.save_dir = folder / "again";
  back.name_map = folder / "names.json";
  convert_checkpoint(back);
  back.load_dir = folder / "again";
  back.save_dir = folder / "hf";
  back.name_map.clear();
  back.hf_cfg_dir = model;
  convert_checkpoint(back);
  EXPECT_EQ(test::read_file(folder / "hf/model.safetensors"), test::read_file(own));
}

TEST(UserFamily, RefusalsNameTheKey) {
  const auto refusal = [](const std::function<void(ordered_json&)>& change) {
    ordered_json map = ordered_json::parse(kLlama);
    change(map);
    const test::Thrown thrown = test::thrown_by([&] { UserFamily(map, "names.json"); });
    EXPECT_EQ(core::exit_code(thrown.code), 2) << thrown.text;
    return thrown.text;
  };
  const std::string fc1 = "decoder.layers.{layer}.mlp.linear_fc1.weight";
  EXPECT_NO_THROW(UserFamily(ordered_json::parse(kLlama), "names.json"));
  EXPECT_THAT(refusal([](auto& map) { map = ordered_json::array(); }), HasSubstr("names.json"));
  EXPECT_THAT(refusal([](auto& map) { map["family"] = "mamba"; }), HasSubstr("mamba"));
  EXPECT_THAT(refusal([](auto& map) { map["tensors"].erase("output_layer.weight"); }),
              HasSubstr("output_layer.weight"));
  EXPECT_THAT(refusal([](auto& map) { map["tensors"]["mlp.weight"] = "x"; }), HasSubstr("mlp.weight"));
  EXPECT_THAT(refusal([&](auto& map) { map["tensors"][fc1] = {{"gate", "b.{layer}.w"}}; }), HasSubstr("b."));
  EXPECT_THAT(refusal([&](auto& map) {
                map["tensors"][fc1] = {{"gate", "backbone.block.{layer}.w"}};
              }),
              HasSubstr("linear_fc1"));
  EXPECT_THAT(refusal([&](auto& map) {
                map["tensors"][fc1] = {{"half", "backbone.block.{layer}.w"}};
              }),
              HasSubstr("half"));
  EXPECT_THAT(refusal([&](auto& map) { map["tensors"][fc1] = "backbone.block.w"; }), HasSubstr("{layer}"));
  EXPECT_THAT(refusal([&](auto& map) { map["tensors"][fc1] = "backbone.block.{layer}.{expert}.w"; }),
              HasSubstr("{expert}"));
  EXPECT_THAT(refusal([&](auto& map) { map["tensors"]["output_layer.weight"] = "head.{layer}.w"; }),
              HasSubstr("{layer}"));
}

}  // namespace
}  // namespace ms::convert
