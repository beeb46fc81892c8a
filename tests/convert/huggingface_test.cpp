#include "convert/huggingface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "ckpt/copy_box.h"
#include "ckpt/plan.h"
#include "ckpt/shard_list.h"
#include "convert/fp8.h"
#include "convert/safetensors.h"
#include "core/error.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"
#include "tests/convert/whole_tensor.h"
#include "tests/support/temporary_folder.h"

namespace ms::convert {
namespace {

using nlohmann::json;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;
using ::testing::HasSubstr;

using Matrix = std::vector<float>;  // row-major; a vector is one column

// A model whose elements are all different: tensor number * 2^14 + flat index. Exact in fp32.
struct FakeModel {
  json config;
  std::map<std::string, std::vector<uint64_t>> shapes;  // Hugging Face names
  std::map<std::string, Matrix> values;

  void add(const std::string& name, std::vector<uint64_t> shape) {
    const auto number = static_cast<int64_t>(values.size());
    int64_t size = 1;
    for (uint64_t dim : shape) size *= static_cast<int64_t>(dim);
    ASSERT_LT(size, 1 << 14);
    for (int64_t i = 0; i < size; ++i) values[name].push_back(static_cast<float>(number * (1 << 14) + i));
    shapes[name] = std::move(shape);
  }
};

FakeModel fake_llama(uint64_t heads, uint64_t groups, uint64_t head_dim, uint64_t layers = 2, bool tied = false) {
  const uint64_t hidden = 24, ffn = 36, vocab = 17;
  FakeModel model;
  model.config = {
      {"model_type", "llama"},         {"architectures", {"LlamaForCausalLM"}}, {"hidden_size", hidden},
      {"intermediate_size", ffn},      {"num_hidden_layers", layers},           {"num_attention_heads", heads},
      {"head_dim", head_dim},          {"num_key_value_heads", groups},         {"vocab_size", vocab},
      {"max_position_embeddings", 64}, {"tie_word_embeddings", tied},           {"dtype", "float32"}};
  model.add("model.embed_tokens.weight", {vocab, hidden});
  for (uint64_t i = 0; i < layers; ++i) {
    const std::string prefix = core::cat("model.layers.", i, ".");
    model.add(prefix + "self_attn.q_proj.weight", {heads * head_dim, hidden});
    model.add(prefix + "self_attn.k_proj.weight", {groups * head_dim, hidden});
    model.add(prefix + "self_attn.v_proj.weight", {groups * head_dim, hidden});
    model.add(prefix + "self_attn.o_proj.weight", {hidden, heads * head_dim});
    model.add(prefix + "mlp.gate_proj.weight", {ffn, hidden});
    model.add(prefix + "mlp.up_proj.weight", {ffn, hidden});
    model.add(prefix + "mlp.down_proj.weight", {hidden, ffn});
    model.add(prefix + "input_layernorm.weight", {hidden});
    model.add(prefix + "post_attention_layernorm.weight", {hidden});
  }
  model.add("model.norm.weight", {hidden});
  if (!tied) model.add("lm_head.weight", {vocab, hidden});
  return model;
}

std::string safetensors_bytes(const FakeModel& model, const std::vector<std::string>& names) {
  std::vector<SafetensorsEntry> entries;
  for (const std::string& name : names) entries.push_back({name, SafetensorsDType::kF32, model.shapes.at(name)});
  const SafetensorsPreamble preamble = make_safetensors_preamble(entries, {{"format", "pt"}});
  std::string bytes = preamble.bytes;
  bytes.resize(preamble.file_size_bytes);
  for (size_t i = 0; i < names.size(); ++i) {
    const Matrix& values = model.values.at(names[i]);
    std::memcpy(bytes.data() + preamble.data_offsets[i], values.data(), values.size() * sizeof(float));
  }
  return bytes;
}

std::vector<std::string> names_of(const FakeModel& model) {
  std::vector<std::string> names;
  for (const auto& [name, shape] : model.shapes) names.push_back(name);
  return names;
}

void write_model(const FakeModel& model, const TemporaryFolder& folder) {
  write_file(folder / "config.json", model.config.dump());
  write_file(folder / "model.safetensors", safetensors_bytes(model, names_of(model)));
}

std::vector<std::byte> assemble(ckpt::Source& source, const core::ShardedTensor& target) {
  const int64_t item = core::size_of(target.dtype);
  std::vector<std::byte> out(static_cast<size_t>(core::num_elements(target.local_shape) * item));
  ckpt::plan_copies(source.shards(), std::span(&target, 1), [&](const ckpt::CopyRegion& copy) {
    EXPECT_EQ(source.shards()[static_cast<size_t>(copy.source_shard)].dtype, target.dtype);
    std::vector<std::byte> box(static_cast<size_t>(core::num_elements(copy.extent) * item));
    source.read(copy.source_shard, copy.source_offset, copy.extent, box.data());
    const core::Dims zero(copy.extent.size(), 0);
    ckpt::copy_box(box.data(), copy.extent, zero, out.data(), target.local_shape, copy.target_offset, copy.extent,
                   item);
  });
  return out;
}

Matrix assemble_floats(ckpt::Source& source, const core::ShardedTensor& target) {
  const std::vector<std::byte> bytes = assemble(source, target);
  Matrix values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Returns what row `row` of a canonical tensor contains, by Megatron's definition of the packed tensors: linear_qkv
// holds for each query group its q heads, its k head and its v head; linear_fc1 holds gate, then up.
std::pair<std::string, int64_t> naive_origin(const std::string& hf_layer, const std::string& canonical, int64_t row,
                                             int64_t heads, int64_t groups, int64_t head_dim, int64_t ffn) {
  if (canonical == "self_attention.linear_qkv.weight") {
    const int64_t q = heads / groups;
    const int64_t g = row / ((q + 2) * head_dim);
    const int64_t o = row % ((q + 2) * head_dim);
    if (o < q * head_dim) return {hf_layer + "self_attn.q_proj.weight", g * q * head_dim + o};
    if (o < (q + 1) * head_dim) return {hf_layer + "self_attn.k_proj.weight", g * head_dim + o - q * head_dim};
    return {hf_layer + "self_attn.v_proj.weight", g * head_dim + o - (q + 1) * head_dim};
  }
  if (canonical == "mlp.linear_fc1.weight") {
    if (row < ffn) return {hf_layer + "mlp.gate_proj.weight", row};
    return {hf_layer + "mlp.up_proj.weight", row - ffn};
  }
  if (canonical == "self_attention.linear_proj.weight") return {hf_layer + "self_attn.o_proj.weight", row};
  if (canonical == "mlp.linear_fc2.weight") return {hf_layer + "mlp.down_proj.weight", row};
  if (canonical == "self_attention.linear_qkv.layer_norm_weight") return {hf_layer + "input_layernorm.weight", row};
  if (canonical == "mlp.linear_fc1.layer_norm_weight") return {hf_layer + "post_attention_layernorm.weight", row};
  ADD_FAILURE() << canonical;
  return {};
}

std::pair<std::string, int64_t> naive_origin_of_key(const std::string& key, int64_t row, int64_t heads, int64_t groups,
                                                    int64_t head_dim, int64_t ffn) {
  if (key == "embedding.word_embeddings.weight") return {"model.embed_tokens.weight", row};
  if (key == "decoder.final_layernorm.weight") return {"model.norm.weight", row};
  if (key == "output_layer.weight") return {"lm_head.weight", row};
  const std::string prefix = "decoder.layers.";
  const size_t dot = key.find('.', prefix.size());
  const std::string layer = key.substr(prefix.size(), dot - prefix.size());
  return naive_origin(core::cat("model.layers.", layer, "."), key.substr(dot + 1), row, heads, groups, head_dim, ffn);
}

struct Heads {
  uint64_t heads, groups, head_dim;
};

class HuggingFaceValuesTest : public ::testing::TestWithParam<std::tuple<Heads, int>> {};

// Compares every element of every shard of every rank with the definition.
TEST_P(HuggingFaceValuesTest, ShardsAtEachTensorParallelSizeHoldTheRightElements) {
  const auto [shape, tp] = GetParam();
  const FakeModel model = fake_llama(shape.heads, shape.groups, shape.head_dim);
  const TemporaryFolder folder;
  write_model(model, folder);
  const auto source = open_huggingface(folder.path().string());
  const core::TransformerConfig& config = source->info().model;
  layout::ModelLayout layout;
  layout.tensor_model_parallel_size = tp;
  layout.pipeline_model_parallel_size = 2;
  const ckpt::RoleSpec param{core::TensorRole::kParam, core::DType::kFp32};
  const ckpt::ShardList list = ckpt::shards_of_checkpoint(layout, config, std::span(&param, 1));
  int64_t elements = 0;
  for (const core::ShardedTensor& shard : list.shards) {
    const Matrix seen = assemble_floats(*source, shard);
    const int64_t columns = shard.local_shape.size() == 2 ? shard.local_shape[1] : 1;
    const int64_t first_column = shard.local_shape.size() == 2 ? shard.global_offset[1] : 0;
    for (int64_t i = 0; i < static_cast<int64_t>(seen.size()); ++i) {
      const auto [name, row] =
          naive_origin_of_key(shard.key, shard.global_offset[0] + i / columns, static_cast<int64_t>(shape.heads),
                              static_cast<int64_t>(shape.groups), static_cast<int64_t>(shape.head_dim), 36);
      const std::vector<uint64_t>& hf_shape = model.shapes.at(name);
      const int64_t hf_columns = hf_shape.size() == 2 ? static_cast<int64_t>(hf_shape[1]) : 1;
      const float want = model.values.at(name)[static_cast<size_t>(row * hf_columns + first_column + i % columns)];
      ASSERT_EQ(seen[static_cast<size_t>(i)], want)
          << shard.key << " element " << i << " of the shard at " << core::cat(shard.global_offset) << ", expected "
          << name << " row " << row;
    }
    elements += static_cast<int64_t>(seen.size());
  }
  int64_t stored = 0;
  for (const auto& [name, values] : model.values) stored += static_cast<int64_t>(values.size());
  EXPECT_EQ(elements, stored);
}

INSTANTIATE_TEST_SUITE_P(GroupsAndTp, HuggingFaceValuesTest,
                         ::testing::Combine(::testing::Values(Heads{12, 12, 2}, Heads{24, 12, 4}, Heads{36, 12, 2}),
                                            ::testing::Values(1, 2, 3, 4)));

TEST(HuggingFaceSourceTest, ShardsTileExactlyTheParametersOfTheModel) {
  for (const char* name :
       {"hf_llama_tiny", "hf_llama_tiny_sharded", "hf_qwen2_tiny", "hf_qwen3_tiny", "hf_mixtral_tiny",
        "hf_qwen2_moe_tiny", "hf_glm4_moe_tiny", "hf_deepseek_v2_tiny", "hf_deepseek_v3_tiny"}) {
    const auto source = open_huggingface(core::cat(MS_TEST_DATA, "/", name));
    std::map<std::string, std::vector<core::ShardedTensor>> by_key;
    for (const core::ShardedTensor& shard : source->shards()) by_key[shard.key].push_back(shard);
    const std::vector<layout::ParameterSpec> specs = layout::parameter_specs(source->info().model);
    EXPECT_EQ(by_key.size(), specs.size()) << name;
    for (const layout::ParameterSpec& spec : specs) {
      ASSERT_TRUE(by_key.contains(spec.key)) << name << ": " << spec.key;
      EXPECT_EQ(by_key[spec.key][0].global_shape, spec.global_shape) << name << ": " << spec.key;
      EXPECT_THAT(ckpt::check_coverage(by_key[spec.key]), ::testing::IsEmpty()) << name << ": " << spec.key;
    }
  }
}

TEST(HuggingFaceSourceTest, ReadsAnyBoxOfAShard) {
  const FakeModel model = fake_llama(4, 2, 6, 1);
  const TemporaryFolder folder;
  write_model(model, folder);
  const auto source = open_huggingface(folder.path().string());
  for (size_t s = 0; s < source->shards().size(); ++s) {
    const core::ShardedTensor& shard = source->shards()[s];
    if (shard.local_shape.size() != 2) continue;
    const core::Dims whole_extent = shard.local_shape;
    std::vector<float> whole(static_cast<size_t>(core::num_elements(whole_extent)));
    source->read(static_cast<int32_t>(s), {0, 0}, whole_extent, reinterpret_cast<std::byte*>(whole.data()));
    const core::Dims offset = {1, 2}, extent = {shard.local_shape[0] - 1, shard.local_shape[1] - 5};
    std::vector<float> box(static_cast<size_t>(core::num_elements(extent)));
    source->read(static_cast<int32_t>(s), offset, extent, reinterpret_cast<std::byte*>(box.data()));
    for (int64_t i = 0; i < extent[0]; ++i) {
      for (int64_t j = 0; j < extent[1]; ++j) {
        EXPECT_EQ(box[static_cast<size_t>(i * extent[1] + j)],
                  whole[static_cast<size_t>((i + 1) * shard.local_shape[1] + j + 2)]);
      }
    }
    EXPECT_THROW(source->read(static_cast<int32_t>(s), {1, 0}, whole_extent, nullptr), core::Error);
  }
  EXPECT_THAT(source->describe(0), HasSubstr("model.safetensors:\"model.embed_tokens.weight\""));
}

// Matrices of a llama in FP8, with block sizes that divide neither rows nor columns.
TEST(HuggingFaceSourceTest, Fp8IsDequantisedBlockByBlock) {
  constexpr int64_t kBlockRows = 7, kBlockColumns = 10;
  FakeModel model = fake_llama(4, 2, 6, 1);
  model.config["quantization_config"] = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {kBlockRows, kBlockColumns}}};
  model.config["dtype"] = "bfloat16";
  std::vector<SafetensorsEntry> entries;
  const auto is_fp8 = [](const std::string& name) { return name.find("_proj") != std::string::npos; };
  for (const auto& [name, shape] : model.shapes) {
    entries.push_back({name, is_fp8(name) ? SafetensorsDType::kF8E4M3 : SafetensorsDType::kF32, shape});
    if (!is_fp8(name)) continue;
    entries.push_back({name + "_scale_inv",
                       SafetensorsDType::kF32,
                       {(shape[0] + kBlockRows - 1) / kBlockRows, (shape[1] + kBlockColumns - 1) / kBlockColumns}});
  }
  const SafetensorsPreamble preamble = make_safetensors_preamble(entries, {{"format", "pt"}});
  std::string bytes = preamble.bytes;
  bytes.resize(preamble.file_size_bytes);
  std::map<std::string, std::vector<uint8_t>> codes;
  std::map<std::string, std::vector<float>> scales;
  for (size_t e = 0; e < entries.size(); ++e) {
    char* at = bytes.data() + preamble.data_offsets[e];
    const uint64_t count = entries[e].shape[0] * (entries[e].shape.size() > 1 ? entries[e].shape[1] : 1);
    if (entries[e].dtype == SafetensorsDType::kF8E4M3) {
      auto& own = codes[entries[e].name];
      for (uint64_t i = 0; i < count; ++i) own.push_back(static_cast<uint8_t>(i * 37 % 127 + (i % 2) * 128));
      std::memcpy(at, own.data(), count);
    } else if (entries[e].name.ends_with("_scale_inv")) {
      auto& own = scales[entries[e].name];
      for (uint64_t i = 0; i < count; ++i) own.push_back(0.01F * static_cast<float>(i + 1));
      std::memcpy(at, own.data(), count * sizeof(float));
    }
  }
  const TemporaryFolder folder;
  write_file(folder / "config.json", model.config.dump());
  write_file(folder / "model.safetensors", bytes);
  const auto source = open_huggingface(folder.path().string());
  EXPECT_FALSE(source->info().model_extra.at("hf_config").contains("quantization_config"));
  const core::ShardedTensor target{"decoder.layers.0.mlp.linear_fc1.weight",
                                   core::TensorRole::kParam,
                                   core::DType::kBf16,
                                   {72, 24},
                                   {5, 3},
                                   {60, 17}};  // of gate and of up
  const std::vector<std::byte> seen = assemble(*source, target);
  for (int64_t row = 0; row < 60; ++row) {
    for (int64_t column = 0; column < 17; ++column) {
      const int64_t r = (row + 5) % 36, c = column + 3;
      const std::string name = core::cat("model.layers.0.mlp.", row + 5 < 36 ? "gate" : "up", "_proj.weight");
      const float scale = scales.at(name + "_scale_inv")[static_cast<size_t>(r / kBlockRows * 3 + c / kBlockColumns)];
      const kernels::bf16 wanted(e4m3_value(codes.at(name)[static_cast<size_t>(r * 24 + c)]) * scale);
      kernels::bf16 value;
      std::memcpy(&value, seen.data() + (row * 17 + column) * 2, 2);
      ASSERT_EQ(value, wanted) << row << " " << column;
    }
  }
  // Scales of another shape; no scales.
  for (const auto& [from, to] :
       {std::pair{"[6,3]", "[3,6]"}, std::pair{"gate_proj.weight_scale_inv", "gate_proj.weight_scale_xxx"}}) {
    std::string changed = bytes;
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, std::strlen(to), to);
    write_file(folder / "model.safetensors", changed);
    EXPECT_THROW(open_huggingface(folder.path().string()), core::Error) << from;
  }
}

TEST(HuggingFaceSourceTest, CopiesInMtpLayersMustBeEqual) {
  const TemporaryFolder folder;
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(core::cat(MS_TEST_DATA, "/hf_deepseek_v3_tiny/", file), folder / file);
  }
  std::filesystem::permissions(folder / "model.safetensors", std::filesystem::perms::owner_all);
  std::string bytes = read_file(folder / "model.safetensors");
  const SafetensorsReader reader(folder / "model.safetensors");
  const auto copy = reader.header()[*reader.header().find("model.layers.2.embed_tokens.weight")];
  bytes[bytes.size() - reader.header()[reader.header().size() - 1].end + copy.begin] ^= 1;
  write_file(folder / "model.safetensors", bytes);
  try {
    open_huggingface(folder.path().string());
    FAIL() << "accepted";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
    EXPECT_THAT(error.what(), HasSubstr("model.layers.2.embed_tokens.weight"));
  }
}

class HuggingFaceFolderTest : public ::testing::Test {
 protected:
  std::string error(core::ErrorCode code) const {
    try {
      open_huggingface(folder_.path().string());
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "accepted";
  }
  // Two files and an index.
  void write_sharded(const FakeModel& model) {
    write_file(folder_ / "config.json", model.config.dump());
    std::vector<std::string> halves[2];
    for (const std::string& name : names_of(model)) halves[name < "model.layers.1" ? 0 : 1].push_back(name);
    const char* files[2] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    int64_t total_size = 0;
    for (const auto& [name, values] : model.values) total_size += static_cast<int64_t>(values.size() * sizeof(float));
    index_ = {{"metadata", {{"total_size", total_size}}}, {"weight_map", json::object()}};
    for (int i = 0; i < 2; ++i) {
      for (const std::string& name : halves[i]) index_["weight_map"][name] = files[i];
      write_file(folder_ / files[i], safetensors_bytes(model, halves[i]));
    }
    write_index();
  }
  void write_index() { write_file(folder_ / "model.safetensors.index.json", index_.dump()); }

  TemporaryFolder folder_;
  json index_;
};

using core::ErrorCode;

TEST_F(HuggingFaceFolderTest, MissingFolderOrFilesAreRefused) {
  EXPECT_THAT(error(ErrorCode::kNotFound), HasSubstr("config.json"));
  write_file(folder_ / "config.json", fake_llama(4, 2, 6).config.dump());
  EXPECT_THAT(error(ErrorCode::kNotFound), HasSubstr("neither model.safetensors nor"));
  write_file(folder_ / "pytorch_model.bin", "");
  EXPECT_THAT(error(ErrorCode::kCorruptData), HasSubstr("pytorch_model.bin: not a ZIP archive"));
}

TEST_F(HuggingFaceFolderTest, MissingMisshapenAndUnknownTensorsAreRefused) {
  FakeModel model = fake_llama(4, 2, 6);
  FakeModel broken = model;
  broken.shapes.erase("model.layers.1.mlp.up_proj.weight");
  write_model(broken, folder_);
  EXPECT_THAT(error(ErrorCode::kCorruptData), HasSubstr("model.layers.1.mlp.up_proj.weight is missing"));

  broken = model;
  broken.config["intermediate_size"] = 18;
  write_model(broken, folder_);
  EXPECT_THAT(error(ErrorCode::kCorruptData), HasSubstr("has shape [36, 24] but config.json says [18, 24]"));

  broken = model;
  broken.config["num_hidden_layers"] = 65536;  // far more layers than exist: must be an error, not an allocation
  write_model(broken, folder_);
  EXPECT_THAT(error(ErrorCode::kCorruptData), HasSubstr("65536 layers"));

  broken = model;
  broken.add("model.layers.0.self_attn.q_proj.bias", {24});
  write_model(broken, folder_);
  EXPECT_THAT(error(ErrorCode::kUnsupported), HasSubstr("q_proj.bias\" is not part"));
}

TEST_F(HuggingFaceFolderTest, MissingAndUnknownNamesAreListed) {
  FakeModel model = fake_llama(4, 2, 6);
  FakeModel renamed = model;
  const std::string layer = "model.layers.1.mlp.";
  for (const char* part : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
    renamed.shapes.erase(layer + part);
    renamed.add(core::cat("model.layers.1.experts.", part), model.shapes.at(layer + part));
  }
  write_model(renamed, folder_);
  const std::string text = error(ErrorCode::kCorruptData);
  EXPECT_THAT(text, HasSubstr("one of 3 missing: "));
  for (const char* part : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
    EXPECT_THAT(text, HasSubstr(layer + part));
    EXPECT_THAT(text, HasSubstr(core::cat("\"model.layers.1.experts.", part)));
  }
  EXPECT_THAT(text, HasSubstr("3 tensors under other names"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("\n")));
}

TEST_F(HuggingFaceFolderTest, BaseModelWithoutPrefixIsRead) {
  FakeModel model = fake_llama(4, 2, 6);
  write_model(model, folder_);
  const auto wanted = open_huggingface(folder_.path().string());
  std::map<std::string, std::vector<std::byte>> whole;
  for (const core::ShardedTensor& shard : wanted->shards()) {
    whole[shard.key] = test::whole_tensor(*wanted, shard.key, core::TensorRole::kParam);
  }
  FakeModel bare;
  bare.config = model.config;
  for (const auto& [name, shape] : model.shapes) {
    const std::string without = name.starts_with("model.") ? name.substr(6) : name;
    bare.add(without, shape);
    bare.values[without] = model.values.at(name);
  }
  write_model(bare, folder_);
  const auto source = open_huggingface(folder_.path().string());
  for (const auto& [key, bytes] : whole) {
    EXPECT_EQ(test::whole_tensor(*source, key, core::TensorRole::kParam), bytes) << key;
  }
}

TEST_F(HuggingFaceFolderTest, RotaryBuffersAreIgnored) {
  FakeModel model = fake_llama(4, 2, 6);
  model.add("model.layers.0.self_attn.rotary_emb.inv_freq", {3});
  write_model(model, folder_);
  EXPECT_EQ(error(ErrorCode::kInternal), "accepted");
}

TEST_F(HuggingFaceFolderTest, StoredHeadOfATiedModelMustEqualTheEmbedding) {
  FakeModel model = fake_llama(4, 2, 6, 1, /*tied=*/true);
  write_model(model, folder_);
  const size_t shards = open_huggingface(folder_.path().string())->shards().size();
  model.add("lm_head.weight", {17, 24});
  write_model(model, folder_);
  EXPECT_THAT(error(ErrorCode::kCorruptData), HasSubstr("differs from model.embed_tokens.weight"));
  model.values["lm_head.weight"] = model.values["model.embed_tokens.weight"];
  write_model(model, folder_);
  EXPECT_EQ(open_huggingface(folder_.path().string())->shards().size(), shards);
}

TEST_F(HuggingFaceFolderTest, ShardedFolderIsRead) {
  const FakeModel model = fake_llama(4, 2, 6);
  write_sharded(model);
  const auto source = open_huggingface(folder_.path().string());
  const core::ShardedTensor norm{
      "decoder.final_layernorm.weight", core::TensorRole::kParam, core::DType::kFp32, {24}, {0}, {24}};
  EXPECT_EQ(assemble_floats(*source, norm), model.values.at("model.norm.weight"));
}

TEST_F(HuggingFaceFolderTest, WrongIndexIsRefused) {
  const FakeModel model = fake_llama(4, 2, 6);
  const auto map_norm_to = [&](const json& file, ErrorCode code) {
    write_sharded(model);
    index_["weight_map"]["model.norm.weight"] = file;
    write_index();
    return error(code);
  };
  EXPECT_THAT(map_norm_to("model-00001-of-00002.safetensors", ErrorCode::kCorruptData),
              HasSubstr("does not contain it"));
  EXPECT_THAT(map_norm_to("model-00003-of-00002.safetensors", ErrorCode::kCorruptData), HasSubstr("does not exist"));
  for (const char* path : {"../x", "/etc/passwd", "..", ".", "", "a/b"}) {
    EXPECT_THAT(map_norm_to(path, ErrorCode::kCorruptData), HasSubstr("not a plain file name")) << path;
  }
  EXPECT_THAT(map_norm_to(std::string("a\0b", 3), ErrorCode::kCorruptData), HasSubstr("not a plain file name"));
  EXPECT_THAT(map_norm_to(7, ErrorCode::kCorruptData), HasSubstr("not a file name"));
  index_.erase("weight_map");
  write_index();
  EXPECT_THAT(error(ErrorCode::kCorruptData), HasSubstr("no weight_map"));
  write_file(folder_ / "model.safetensors.index.json", "{");
  EXPECT_THAT(error(ErrorCode::kCorruptData), HasSubstr("not valid JSON"));
}

TEST_F(HuggingFaceFolderTest, LinksOutOfTheFolderAreRefusedExceptToHubBlobs) {
  namespace fs = std::filesystem;
  const FakeModel model = fake_llama(4, 2, 6);
  write_sharded(model);
  const TemporaryFolder elsewhere;
  const fs::path file = folder_ / "model-00002-of-00002.safetensors";
  fs::rename(file, elsewhere / "weights");
  fs::create_symlink(elsewhere / "weights", file);
  EXPECT_THAT(error(ErrorCode::kCorruptData), HasSubstr("link out of the folder"));

  const fs::path snapshot = elsewhere.path() / "snapshots" / "abc";
  fs::create_directories(snapshot);
  fs::create_directories(elsewhere.path() / "blobs");
  fs::rename(elsewhere / "weights", elsewhere.path() / "blobs" / "0123");
  fs::remove(file);
  for (const auto& entry : fs::directory_iterator(folder_.path())) fs::copy(entry.path(), snapshot);
  fs::create_symlink("../../blobs/0123", snapshot / file.filename());
  EXPECT_NO_THROW(open_huggingface(snapshot.string()));
}

TEST_F(HuggingFaceFolderTest, TruncatedAndFlippedFilesAreRefusedOrReadWithinBounds) {
  const FakeModel model = fake_llama(4, 2, 6, 1);
  write_model(model, folder_);
  const std::string file = read_file(folder_ / "model.safetensors");
  for (size_t size = 0; size < file.size(); size += 97) {
    write_file(folder_ / "model.safetensors", file.substr(0, size));
    EXPECT_NE(error(ErrorCode::kCorruptData), "accepted") << size;
  }
}

// Copies a source to a folder as ckpt/execute.h does.
void copy(ckpt::Source& source, ckpt::Sink& sink, const ckpt::CheckpointInfo& info,
          const std::vector<core::ShardedTensor>& targets) {
  sink.begin(info, targets);
  for (size_t t = 0; t < targets.size(); ++t) {
    const std::vector<std::byte> data = assemble(source, targets[t]);
    sink.write(static_cast<int32_t>(t), 0, core::num_elements(targets[t].local_shape), data.data());
  }
}

HfSinkOptions sink_options(const ckpt::Source& source, const std::string& folder, int64_t max_shard_size_bytes) {
  const json& extra = source.info().model_extra;
  HfSinkOptions options;
  options.folder = folder;
  options.max_shard_size_bytes = max_shard_size_bytes;
  options.config = extra.at("hf_config");
  options.generation_config = extra.value("hf_generation_config", json());
  return options;
}

TEST(HuggingFaceSinkTest, GenuineFoldersAreByteIdentical) {
  const std::pair<const char*, int64_t> cases[] = {
      {"hf_llama_tiny", 5'000'000'000}, {"hf_llama_tiny_sharded", 8'000},   {"hf_qwen2_tiny", 5'000'000'000},
      {"hf_qwen3_tiny", 5'000'000'000}, {"hf_mixtral_tiny", 5'000'000'000}, {"hf_qwen3_moe_tiny_sharded", 8'000}};
  for (const auto& [name, max_shard_size] : cases) {
    const std::string golden = core::cat(MS_TEST_DATA, "/", name);
    const auto source = open_huggingface(golden);
    const core::DType dtype = source->shards()[0].dtype;
    const TemporaryFolder folder;
    const auto sink = make_hf_sink(sink_options(*source, folder / "out", max_shard_size));
    const Family& family = find_family(source->info().model_extra.at("family").get<std::string>());
    const auto targets = hf_targets(family, source->info().model, [&](const std::string&) { return dtype; });
    copy(*source, *sink, source->info(), targets);
    EXPECT_EQ(sink->commit(), folder / "out");
    int compared = 0;
    for (const auto& entry : std::filesystem::directory_iterator(golden)) {
      const std::string file = entry.path().filename().string();
      if (file == "reference.json") continue;
      EXPECT_EQ(read_file(core::cat(folder / "out", "/", file)), read_file(entry.path().string()))
          << name << "/" << file;
      ++compared;
    }
    EXPECT_GE(compared, 3);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "out"), {}), compared)
        << name << ": more than asked";
  }
}

TEST(HuggingFaceSinkTest, WithoutCommitNothingIsLeft) {
  const auto source = open_huggingface(core::cat(MS_TEST_DATA, "/hf_llama_tiny"));
  const TemporaryFolder folder;
  {
    const auto sink = make_hf_sink(sink_options(*source, folder / "out", 5'000'000));
    const auto targets =
        hf_targets(find_family("llama"), source->info().model, [](const std::string&) { return core::DType::kBf16; });
    copy(*source, *sink, source->info(), targets);
    EXPECT_FALSE(std::filesystem::exists(folder / "out/model.safetensors"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(HuggingFaceSinkTest, FolderWithAModelIsRefused) {
  const auto source = open_huggingface(core::cat(MS_TEST_DATA, "/hf_llama_tiny"));
  const TemporaryFolder folder;
  write_file(folder / "model-00001-of-00001.safetensors", "");
  EXPECT_THROW(make_hf_sink(sink_options(*source, folder.path().string(), 5'000'000)), core::Error);
}

TEST(HuggingFaceSinkTest, OnlyTokenizerFilesAreCopied) {
  const auto source = open_huggingface(core::cat(MS_TEST_DATA, "/hf_llama_tiny"));
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "from");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "merges.txt",
                           "vocab.json", "spiece.model", "evil.py", "notes.txt"}) {
    write_file(core::cat(folder / "from", "/", name), name);
  }
  HfSinkOptions options = sink_options(*source, folder / "out", 5'000'000);
  options.copy_from = folder / "from";
  const auto sink = make_hf_sink(options);
  const auto targets =
      hf_targets(find_family("llama"), source->info().model, [](const std::string&) { return core::DType::kBf16; });
  copy(*source, *sink, source->info(), targets);
  sink->commit();
  EXPECT_EQ(read_file(folder / "out/spiece.model"), "spiece.model");
  EXPECT_TRUE(std::filesystem::exists(folder / "out/tokenizer.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/evil.py"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "out"), {}), 3 + 6);
}

TEST(HuggingFaceSinkTest, TensorAboveTheShardLimitGetsItsOwnFile) {
  const FakeModel model = fake_llama(4, 2, 6, 1);
  const TemporaryFolder folder;
  write_model(model, folder);
  const auto source = open_huggingface(folder.path().string());
  const auto sink = make_hf_sink(sink_options(*source, folder / "out", 2'000));
  const auto targets =
      hf_targets(find_family("llama"), source->info().model, [](const std::string&) { return core::DType::kFp32; });
  copy(*source, *sink, source->info(), targets);
  sink->commit();
  std::filesystem::copy(folder / "config.json", folder / "out/config.json",
                        std::filesystem::copy_options::overwrite_existing);
  const auto again = open_huggingface(folder / "out");
  for (const core::ShardedTensor& target : targets) EXPECT_EQ(assemble(*again, target), assemble(*source, target));
  int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "out")) {
    files += entry.path().extension() == ".safetensors";
  }
  EXPECT_EQ(files, 9);  // q, o, gate, up, down alone; embedding; k; v with the norms; output layer
}

}  // namespace
}  // namespace ms::convert
