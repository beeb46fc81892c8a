#include "convert/user_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/convert.h"
#include "convert/huggingface_config.h"
#include "convert/name_map.h"
#include "convert/safetensors.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

TEST(UserFamily, RenamedFolderIsTheSameModel) {
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
  // Transposed, in the order q, k, v: its element (column, row) is (row, column) of q.
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
  // And back, from a folder with an unknown model_type.
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
  EXPECT_TRUE(test::read_file(folder / "hf/model.safetensors") == test::read_file(own));
  // Without --hf-cfg-dir under the original names: the map is stored in the checkpoint.
  back.save_dir = folder / "as_it_came";
  back.hf_cfg_dir.clear();
  convert_checkpoint(back);
  EXPECT_TRUE(test::read_file(folder / "as_it_came/model.safetensors") ==
              test::read_file(folder / "renamed/model.safetensors"));
  EXPECT_EQ(test::read_file(folder / "as_it_came/config.json"), test::read_file(folder / "renamed/config.json"));
}

// One error lists every parameter without a name; parameters that config.json rules out (biases, norms of q and k) need
// none.
TEST(UserFamily, OneErrorListsAllMissingNamesOfTheModel) {
  ordered_json map = ordered_json::parse(kLlama);
  map["tensors"].erase("output_layer.weight");
  map["tensors"].erase("decoder.layers.{layer}.mlp.linear_fc2.weight");
  for (const char* absent : {"q_layernorm.weight", "k_layernorm.weight", "linear_qkv.bias"}) {
    map["tensors"].erase(core::cat("decoder.layers.{layer}.self_attention.", absent));
  }
  const HfConfig config = read_hf_config(core::cat(MS_TEST_DATA, "/hf_llama_tiny"));
  const UserFamily lacks(map, "names.json");
  const test::Thrown thrown = test::thrown_by([&] { check_named(lacks.family(), config.model, "names.json"); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text,
              AllOf(HasSubstr("output_layer.weight"), HasSubstr("decoder.layers.{layer}.mlp.linear_fc2.weight"),
                    Not(HasSubstr("layernorm.weight, ")), Not(HasSubstr("bias"))));
  core::TransformerConfig other = config.model;
  other.qk_layernorm = true;
  EXPECT_THAT(test::thrown_by([&] { check_named(lacks.family(), other, "names.json"); }).text,
              HasSubstr("self_attention.q_layernorm.weight"));
}

std::vector<std::string> tensors_of(const Family& family, const core::TransformerConfig& model) {
  std::vector<std::string> tensors;
  for_each_tensor(family, model, [&](const MappedTensor& mapped) {
    std::string line = core::cat(mapped.name, " ", mapped.shape, " ", mapped.key, " ", mapped.transposed, " ",
                                 mapped.is_copy, " ", mapped.also, " ", mapped.expert, " ", mapped.packed_row);
    for (const TensorPiece& piece : mapped.pieces) line += core::cat(" ", piece.row, piece.offset, piece.extent);
    tensors.push_back(std::move(line));
  });
  return tensors;
}

// `families --explain` prints the whole family: read back it gives the same models, tensors and config.json.
TEST(UserFamily, ExplainedBuiltInFamiliesReadBackEqual) {
  for (const Family* family : families()) {
    SCOPED_TRACE(family->model_type);
    const ordered_json explained = explain_family(*family);
    const UserFamily again(ordered_json::parse(explained.dump()), "explained");
    EXPECT_EQ(explain_family(again.family()).dump(1), explained.dump(1));
    const std::string path = core::cat(MS_TEST_DATA, "/hf_", family->model_type, "_tiny");
    const HfConfig config = read_hf_config(path), other = read_hf_config(path, &again.family());
    EXPECT_EQ(other.model, config.model);
    EXPECT_EQ(tensors_of(again.family(), other.model), tensors_of(*family, config.model));
    EXPECT_EQ(make_hf_config(config.model, nullptr, core::DType::kFp32, family),
              make_hf_config(config.model, nullptr, core::DType::kFp32, &again.family()));
    EXPECT_NO_THROW(check_named(again.family(), config.model, "explained"));
  }
}

// A family that is not built in, defined by a map: OLMo 2's structure and names on the base of Llama's.
TEST(UserFamily, MapDefinesStructure) {
  const ordered_json map = ordered_json::parse(R"({"family": "llama", "model_type": "mine",
    "structure": {"pre_norm": false, "post_norm": true, "qk_layernorm": true, "qk_layernorm_all_heads": true},
    "config": {"rms_norm_eps": {"field": "norm_epsilon", "absent": 1e-05}, "logit_divisor": {"field": "logits_scaling", "absent": 1}},
    "harmless": ["colour"],
    "tensors": {
      "embedding.word_embeddings.weight": "model.embed_tokens.weight",
      "decoder.layers.{layer}.self_attention.linear_qkv.weight": {"query": "model.layers.{layer}.self_attn.q_proj.weight",
        "key": "model.layers.{layer}.self_attn.k_proj.weight", "value": "model.layers.{layer}.self_attn.v_proj.weight"},
      "decoder.layers.{layer}.self_attention.linear_proj.weight": "model.layers.{layer}.self_attn.o_proj.weight",
      "decoder.layers.{layer}.self_attention.q_layernorm.weight": "model.layers.{layer}.self_attn.q_norm.weight",
      "decoder.layers.{layer}.self_attention.k_layernorm.weight": "model.layers.{layer}.self_attn.k_norm.weight",
      "decoder.layers.{layer}.mlp.linear_fc1.weight": {"gate": "model.layers.{layer}.mlp.gate_proj.weight",
        "up": "model.layers.{layer}.mlp.up_proj.weight"},
      "decoder.layers.{layer}.mlp.linear_fc2.weight": "model.layers.{layer}.mlp.down_proj.weight",
      "decoder.layers.{layer}.post_self_attn_layernorm.weight": "model.layers.{layer}.post_attention_layernorm.weight",
      "decoder.layers.{layer}.post_mlp_layernorm.weight": "model.layers.{layer}.post_feedforward_layernorm.weight",
      "decoder.final_layernorm.weight": "model.norm.weight",
      "output_layer.weight": "lm_head.weight"}})");
  const UserFamily mine(map, "names.json");
  nlohmann::json config = read_json(core::cat(MS_TEST_DATA, "/hf_olmo2_tiny/config.json"), 1 << 20);
  const core::TransformerConfig olmo = parse_hf_config(config, "x").model;
  config["model_type"] = "mine";
  config["colour"] = "blue";
  const HfConfig read = parse_hf_config(config, "x", &mine.family());
  EXPECT_EQ(read.model, olmo);
  EXPECT_TRUE(read.unused_keys.empty());
  EXPECT_EQ(tensors_of(mine.family(), olmo), tensors_of(find_family("olmo2"), olmo));
  ordered_json strict = map;
  strict["config"]["logit_divisor"] = "logits_scaling";  // without "absent" it is required
  const UserFamily wants(strict, "names.json");
  EXPECT_THAT(test::thrown_by([&] { parse_hf_config(config, "x", &wants.family()); }).text,
              HasSubstr("logit_divisor is missing"));
  config["logit_divisor"] = 8;
  EXPECT_EQ(parse_hf_config(config, "x", &mine.family()).model.logits_scaling, 8);
}

TEST(UserFamily, ErrorsNameTheKey) {
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
  EXPECT_THAT(refusal([](auto& map) { map["tensors"].erase("embedding.word_embeddings.weight"); }),
              HasSubstr("embedding.word_embeddings.weight"));
  EXPECT_THAT(refusal([](auto& map) { map["structures"] = 1; }), HasSubstr("structures"));
  EXPECT_THAT(refusal([](auto& map) { map["structure"] = {{"norms", "after"}}; }), HasSubstr("norms"));
  EXPECT_THAT(refusal([](auto& map) { map["structure"] = {{"post_norm", 1}}; }), HasSubstr("true or false"));
  EXPECT_THAT(refusal([](auto& map) { map["config"] = {{"eps", "epsilon"}}; }), HasSubstr("epsilon"));
  EXPECT_THAT(refusal([](auto& map) { map["config"] = {{"eps", {{"absent", 1}}}}; }), HasSubstr("field"));
  EXPECT_THAT(refusal([](auto& map) { map["rotary"] = {{"theta", "t"}}; }), HasSubstr("theta"));
  const std::string qkv = "decoder.layers.{layer}.self_attention.linear_qkv.weight";
  EXPECT_THAT(refusal([&](auto& map) { map["tensors"][qkv] = "backbone.block.{layer}.qkv"; }),
              HasSubstr("qkv_grouped"));
  EXPECT_THAT(refusal([](auto& map) { map["tensors"]["x.weight"] = map["tensors"]["y.weight"] = "x"; }),
              AllOf(HasSubstr("x.weight"), HasSubstr("y.weight")));
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
