#include "convert/megatron.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "ckpt/reader.h"
#include "convert/convert.h"
#include "core/error.h"
#include "core/layout/parameter_specs.h"
#include "kernels/bf16.h"
#include "tests/convert/megatron/check_values.h"
#include "tests/convert/megatron/value_pattern.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::ErrorCode;
using core::TensorRole;
using test::read_file;
using test::write_file;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string tree(const std::string& name) { return core::cat(MS_TEST_DATA, "/megatron/", name); }

std::unique_ptr<ckpt::Source> open(const std::string& path, int64_t true_vocab_size = 0) {
  std::vector<std::string> decisions;
  return open_megatron(path, {.true_vocab_size = true_vocab_size}, decisions);
}

using test::check_all_values;
using test::check_values;
using test::Sizes;

struct Tree {
  const char* name;
  core::DType dtype;
  int64_t iteration, layers, query_groups;
  size_t roles;  // weights; master weights; two moments
};

class MegatronTreeTest : public ::testing::TestWithParam<Tree> {};

TEST_P(MegatronTreeTest, EveryElementIsInItsPlace) {
  const auto source = open(tree(GetParam().name));
  const core::TransformerConfig& model = source->info().model;
  EXPECT_EQ(source->info().iteration, GetParam().iteration);
  EXPECT_EQ(model.num_layers, GetParam().layers);
  EXPECT_EQ(model.query_groups(), GetParam().query_groups);
  const Sizes sizes = check_all_values(*source);
  size_t tensors = 0;
  for (const layout::ParameterSpec& spec : layout::parameter_specs(model)) {
    tensors += spec.is_buffer ? 1 : GetParam().roles;
    const TensorRole role = spec.is_buffer ? TensorRole::kBuffer : TensorRole::kParam;
    const auto found = sizes.find({role, spec.key});
    ASSERT_NE(found, sizes.end()) << spec.key;
    EXPECT_EQ(found->second, core::num_elements(spec.global_shape)) << spec.key;
    EXPECT_EQ(source->shards().dtype(*source->shards().find(spec.key, role)),
              spec.is_buffer ? core::DType::kFp32 : GetParam().dtype);
  }
  EXPECT_EQ(sizes.size(), tensors);
  for (const auto& [tensor, elements] : sizes) {
    if (tensor.first == TensorRole::kBuffer) continue;
    EXPECT_EQ(elements, sizes.at({TensorRole::kParam, tensor.second})) << tensor.second;
  }
  if (GetParam().roles == 1) return;
  EXPECT_EQ(source->info().common.at("step"), 3);
  EXPECT_EQ(source->info().common.at("opt_param_scheduler").at("num_steps"), 28);
  EXPECT_EQ(source->info().common.at("opt_param_scheduler").at("lr_decay_style"), "cosine");
}

TEST_P(MegatronTreeTest, ConvertsThroughNativeOfAnotherLayout) {
  const test::TemporaryFolder folder;
  ConvertOptions options;
  options.load_dir = tree(GetParam().name);
  options.save_dir = folder / "ms";
  options.target_tensor_parallel_size = 2;
  const ConvertReport report = convert_checkpoint(options);
  EXPECT_EQ(report.from, Format::kMegatron);
  EXPECT_EQ(report.to, Format::kNative);
  const auto native = ckpt::open_native(folder / "ms");
  EXPECT_EQ(native->info().iteration, GetParam().iteration);
  EXPECT_EQ(native->info().common.at("consumed_train_samples"), 28);
  EXPECT_EQ(check_all_values(*native), check_all_values(*open(options.load_dir)));
  if (GetParam().roles == 1) return;
  EXPECT_EQ(native->info().common.at("step"), 3);
}

INSTANTIATE_TEST_SUITE_P(Trees, MegatronTreeTest,
                         ::testing::Values(Tree{"swiglu_tp2_pp2_distributed", core::DType::kBf16, 7, 3, 2, 4},
                                           Tree{"tied_pp2_distributed", core::DType::kBf16, 7, 2, 2, 4},
                                           Tree{"gelu_vpp2_fp32", core::DType::kFp32, 7, 4, 2, 3},
                                           Tree{"qk_norm_tp2_bf16", core::DType::kBf16, 7, 1, 2, 4},
                                           Tree{"moe_tp2_ep2", core::DType::kBf16, 7, 2, 2, 4},
                                           Tree{"moe_grouped_tp2_ep2_distributed", core::DType::kBf16, 7, 1, 2, 4},
                                           Tree{"moe_ep2_distributed", core::DType::kBf16, 7, 2, 2, 4},
                                           Tree{"moe_latent_tp2_ep2_etp1", core::DType::kBf16, 7, 2, 2, 4},
                                           Tree{"mindspeed_latent", core::DType::kBf16, 1, 2, 2, 4},
                                           Tree{"old_buckets", core::DType::kBf16, 7, 3, 2, 4},
                                           Tree{"legacy_gpt", core::DType::kBf16, 7, 2, 2, 1},
                                           Tree{"mindspeed_te", core::DType::kBf16, 1, 1, 2, 1}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(MegatronTest, DecisionsAreReported) {
  std::vector<std::string> decisions;
  const auto source = open_megatron(tree("tied_pp2_distributed"), {}, decisions);
  EXPECT_EQ(source->info().model.vocab_size, 21);
  EXPECT_THAT(decisions, Contains(HasSubstr("3 of 24 vocabulary rows are padding")));
  EXPECT_THAT(decisions, Contains(HasSubstr("_extra_state")));
  EXPECT_THAT(decisions, Contains(HasSubstr("copy of the word embeddings")));
  EXPECT_EQ(open(tree("tied_pp2_distributed"), 23)->info().model.vocab_size, 23);
  EXPECT_EQ(test::code_of([] { open(tree("tied_pp2_distributed"), 25); }), ErrorCode::kInvalidArgument);
}

TEST(MegatronTest, DropOptimizerLeavesOutOptimizerState) {
  const test::TemporaryFolder folder;
  ConvertOptions options;
  options.load_dir = tree("qk_norm_tp2_bf16");
  options.save_dir = folder / "weights";
  options.drop_optimizer = true;
  EXPECT_THAT(convert_checkpoint(options).decisions, Contains(HasSubstr("optimizer state is left out")));
  EXPECT_FALSE(ckpt::has_role(*ckpt::open_native(folder / "weights"), TensorRole::kExpAvg));
}

TEST(MegatronTest, UnevenStagesAreDerivedFromKeys) {
  EXPECT_EQ(open(tree("swiglu_tp2_pp2_distributed"))->info().layout.at("layer_map"), nlohmann::json({1, 2}));
  EXPECT_EQ(open(tree("gelu_vpp2_fp32"))->info().layout.at("vpp"), 2);
}

TEST(MegatronTest, ReadsPartsOfAShard) {
  const auto source = open(tree("swiglu_tp2_pp2_distributed"));
  for (size_t s = 0; s < source->shards().size(); ++s) {
    const core::Dims extents = source->shards().extents(s);
    if (extents.size() != 2 || source->shards().dtype_of(s) != core::DType::kBf16) continue;
    std::vector<uint16_t> whole(static_cast<size_t>(extents[0] * extents[1]));
    source->read(static_cast<int32_t>(s), {0, 0}, extents, reinterpret_cast<std::byte*>(whole.data()));
    const core::Dims offset = {extents[0] / 2, 1}, extent = {extents[0] - offset[0], extents[1] - 2};
    std::vector<uint16_t> part(static_cast<size_t>(extent[0] * extent[1]));
    source->read(static_cast<int32_t>(s), offset, extent, reinterpret_cast<std::byte*>(part.data()));
    for (int64_t i = 0; i < extent[0] * extent[1]; ++i) {
      const int64_t at = (offset[0] + i / extent[1]) * extents[1] + offset[1] + i % extent[1];
      ASSERT_EQ(part[static_cast<size_t>(i)], whole[static_cast<size_t>(at)]) << s;
    }
  }
}

// A tree to damage.
class DamagedMegatronTest : public ::testing::Test {
 protected:
  void copy(const std::string& name) {
    root_ = folder_ / name;
    fs::copy(tree(name), root_, fs::copy_options::recursive);
  }
  std::string rank_file(const std::string& rank, const std::string& file = "model_optim_rng.pt") const {
    return core::cat(root_, "/iter_0000007/", rank, "/", file);
  }
  // Sets a small integer in the pickle; clears the pickle's CRC in the archive's directory.
  static void set_integer(const std::string& path, const std::string& name, int value) {
    std::string bytes = read_file(path);
    std::string key("X\0\0\0\0", 5);  // BINUNICODE
    key[1] = static_cast<char>(name.size());
    const size_t at = bytes.find(key + name);
    ASSERT_NE(at, std::string::npos) << name;
    size_t place = at + key.size() + name.size();
    place += bytes[place] == 'q' ? 2 : 5;  // BINPUT, LONG_BINPUT
    ASSERT_EQ(bytes[place], 'K') << name;  // BININT1
    bytes[place + 1] = static_cast<char>(value);
    write_file(path, without_pickle_crc(bytes));
  }
  static std::string without_pickle_crc(std::string bytes) {
    const size_t header = bytes.rfind("PK\1\2", bytes.rfind("data.pkl"));
    bytes.replace(header + 16, 4, std::string(4, '\0'));
    return bytes;
  }
  static std::string without_crcs(std::string bytes) {
    for (size_t entry = bytes.find("PK\1\2"); entry != std::string::npos; entry = bytes.find("PK\1\2", entry + 4)) {
      bytes.replace(entry + 16, 4, std::string(4, '\0'));
    }
    return bytes;
  }
  // As with --no-save-optim: renames the entry.
  void drop_optimizer(const std::string& rank) const {
    std::string bytes = read_file(rank_file(rank));
    const std::string key("X\x09\0\0\0optimizer", 14);
    bytes.replace(bytes.find(key) + key.size() - 1, 1, "X");
    write_file(rank_file(rank), without_pickle_crc(bytes));
    fs::remove(rank_file(rank, "distrib_optim.pt"));
  }
  // Returns the bytes of a file with one bit flipped in the element of a weight at this index.
  static std::string with_flipped_bit(const std::string& path, const std::string& key, int64_t index) {
    std::string wanted;
    for (int64_t i = index; i < index + 4; ++i) {
      const kernels::bf16 value(test::pattern(TensorRole::kParam, key, i));
      wanted.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    std::string bytes = read_file(path);
    const size_t at = bytes.find(wanted);
    EXPECT_NE(at, std::string::npos) << key;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  }
  void expect(ErrorCode code, std::initializer_list<const char*> parts) const {
    const test::Thrown thrown = test::thrown_by([&] {
      const auto source = open(root_);
      for (size_t s = 0; s < source->shards().size(); ++s) check_values(*source, static_cast<int32_t>(s));
    });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    for (const char* part : parts) EXPECT_THAT(thrown.text, HasSubstr(part));
    EXPECT_EQ(thrown.text.find('\n'), std::string::npos);
  }

  const test::TemporaryFolder folder_;
  std::string root_;
};

TEST_F(DamagedMegatronTest, MissingRankIsRefused) {
  copy("swiglu_tp2_pp2_distributed");
  fs::remove_all(fs::path(rank_file("mp_rank_01_000")).parent_path());
  expect(ErrorCode::kCorruptData, {"mp_rank_01_000 is missing", "tensor_model_parallel_size 2"});
}

TEST_F(DamagedMegatronTest, MissingFileIsRefused) {
  copy("swiglu_tp2_pp2_distributed");
  fs::remove(rank_file("mp_rank_01_000"));
  expect(ErrorCode::kCorruptData, {"mp_rank_01_000/model_optim_rng.pt is missing"});
}

TEST_F(DamagedMegatronTest, SuperfluousRankIsRefused) {
  copy("swiglu_tp2_pp2_distributed");
  const fs::path rank = fs::path(rank_file("mp_rank_01_001")).parent_path();
  fs::copy(rank, rank.parent_path() / "mp_rank_02_001");
  expect(ErrorCode::kCorruptData, {"mp_rank_02_001 exists, but args", "tensor_model_parallel_size 2"});
}

TEST_F(DamagedMegatronTest, TruncatedFileIsRefused) {
  copy("swiglu_tp2_pp2_distributed");
  fs::resize_file(rank_file("mp_rank_01_001"), 4000);
  expect(ErrorCode::kCorruptData, {"mp_rank_01_001/model_optim_rng.pt"});
}

TEST_F(DamagedMegatronTest, FlippedWeightBitIsRefused) {
  copy("qk_norm_tp2_bf16");
  for (const char* rank : {"mp_rank_00", "mp_rank_01"}) drop_optimizer(rank);
  const std::string path = rank_file("mp_rank_01");
  write_file(path, with_flipped_bit(path, "decoder.layers.0.self_attention.linear_qkv.weight", 72));
  expect(ErrorCode::kCorruptData,
         {"mp_rank_01/model_optim_rng.pt", "CRC-32", "tensor \"decoder.layers.0.self_attention.linear_qkv.weight\""});
}

TEST_F(DamagedMegatronTest, WrongArgsAreRefused) {
  const struct {
    const char* name;
    int value;
    const char* says;
  } lies[] = {
      {"hidden_size", 12, "has shape"},
      {"num_attention_heads", 8, "has shape"},
      {"ffn_hidden_size", 16, "has shape"},
      {"num_layers", 4, "its ranks hold 3 layers [1, 2], but args.num_layers is 4"},
      {"padded_vocab_size", 48, "but args.padded_vocab_size is 48"},
      {"tensor_model_parallel_size", 1, "mp_rank_01_000 exists, but args"},
      {"pipeline_model_parallel_size", 3, "mp_rank_00_002 is missing"},
      {"num_attention_heads", 3, "is not a multiple of"},
  };
  for (const auto& [name, value, says] : lies) {
    SCOPED_TRACE(name);
    copy("swiglu_tp2_pp2_distributed");
    for (const char* rank : {"mp_rank_00_000", "mp_rank_01_000", "mp_rank_00_001", "mp_rank_01_001"}) {
      set_integer(rank_file(rank), name, value);
    }
    expect(ErrorCode::kCorruptData, {says});
    fs::remove_all(root_);
  }
}

TEST_F(DamagedMegatronTest, RanksOfDifferentRunsAreRefused) {
  copy("swiglu_tp2_pp2_distributed");
  set_integer(rank_file("mp_rank_01_001"), "hidden_size", 16);
  expect(ErrorCode::kCorruptData, {"mp_rank_01_001", "args.hidden_size is 16", "says 8", "different runs"});
}

TEST_F(DamagedMegatronTest, RenamedTensorIsRefused) {
  copy("swiglu_tp2_pp2_distributed");
  std::string bytes = read_file(rank_file("mp_rank_00_001"));
  const size_t at = bytes.find("decoder.layers.1.mlp.linear_fc2.weight");
  bytes.replace(at + std::string_view("decoder.layers.1.mlp.linear_").size(), 3, "fc3");
  write_file(rank_file("mp_rank_00_001"), without_pickle_crc(bytes));
  expect(ErrorCode::kUnsupported, {"mp_rank_00_001", "\"decoder.layers.1.mlp.linear_fc3.weight\" is not part"});
}

// Without CRCs, so that only the comparison can find it.
TEST_F(DamagedMegatronTest, DifferentTiedCopyIsRefused) {
  copy("tied_pp2_distributed");
  for (const char* rank : {"mp_rank_00_000", "mp_rank_00_001"}) drop_optimizer(rank);
  const std::string path = rank_file("mp_rank_00_001");
  write_file(path, without_crcs(with_flipped_bit(path, "embedding.word_embeddings.weight", 6)));
  expect(ErrorCode::kCorruptData, {"mp_rank_00_001", "\"output_layer.weight\" is not bitwise equal to",
                                   "embedding.word_embeddings.weight", "untie_embeddings_and_output_weights is False"});
}

TEST_F(DamagedMegatronTest, DifferentReplicasAreRefused) {
  copy("qk_norm_tp2_bf16");
  for (const char* rank : {"mp_rank_00", "mp_rank_01"}) drop_optimizer(rank);
  const std::string path = rank_file("mp_rank_01");
  write_file(path, without_crcs(with_flipped_bit(path, "decoder.final_layernorm.weight", 0)));
  expect(ErrorCode::kCorruptData, {"mp_rank_01", "decoder.final_layernorm.weight", "not bitwise equal to",
                                   "tensor-parallel ranks must hold the same"});
}

TEST_F(DamagedMegatronTest, MissingWeightIsRefused) {
  copy("qk_norm_tp2_bf16");
  for (const char* rank : {"mp_rank_00", "mp_rank_01"}) drop_optimizer(rank);
  std::string bytes = read_file(rank_file("mp_rank_00"));
  const std::string_view name = "decoder.final_layernorm.weight", other = "decoder.final_lay._extra_state";
  bytes.replace(bytes.find(name), name.size(), other);
  write_file(rank_file("mp_rank_00"), without_pickle_crc(bytes));
  expect(ErrorCode::kCorruptData, {"mp_rank_00", "tensor decoder.final_layernorm.weight is missing"});
}

TEST_F(DamagedMegatronTest, OldCheckpointVersionIsRefused) {
  copy("qk_norm_tp2_bf16");
  std::string bytes = read_file(rank_file("mp_rank_00"));
  const std::string three("G\x40\x08\0\0\0\0\0\0", 9);
  bytes.replace(bytes.find(three, bytes.find("checkpoint_version")), 9, std::string("G\x3f\xf0\0\0\0\0\0\0", 9));
  write_file(rank_file("mp_rank_00"), without_pickle_crc(bytes));
  expect(ErrorCode::kUnsupported, {"mp_rank_00/model_optim_rng.pt", "checkpoint_version 1", "older order"});
}

TEST_F(DamagedMegatronTest, OptimizerStateOfAnotherStageIsRefused) {
  copy("tied_pp2_distributed");
  fs::copy_file(rank_file("mp_rank_00_001", "distrib_optim.pt"), rank_file("mp_rank_00_000", "distrib_optim.pt"),
                fs::copy_options::overwrite_existing);
  expect(ErrorCode::kCorruptData,
         {"mp_rank_00_000/distrib_optim.pt: optimizer: buffer 0 param of 1046 elements does not "
          "hold the weights",
          "0 of Megatron's layouts have its length"});
}

TEST_F(DamagedMegatronTest, MasterWeightsOfAnotherModelAreRefused) {
  copy("swiglu_tp2_pp2_distributed");  // of the same length, but with other values
  fs::copy_file(rank_file("mp_rank_00_001", "distrib_optim.pt"), rank_file("mp_rank_01_001", "distrib_optim.pt"),
                fs::copy_options::overwrite_existing);
  expect(ErrorCode::kCorruptData,
         {"mp_rank_01_001/distrib_optim.pt: optimizer: buffer 0 param", "does not round to the weight"});
}

TEST_F(DamagedMegatronTest, MissingDistributedStateIsRefused) {
  copy("tied_pp2_distributed");
  fs::remove(rank_file("mp_rank_00_001", "distrib_optim.pt"));
  expect(ErrorCode::kCorruptData, {"mp_rank_00_001", "distrib_optim.pt may be missing"});
  fs::remove(rank_file("mp_rank_00_000", "distrib_optim.pt"));
  expect(ErrorCode::kCorruptData, {"use_distributed_optimizer is True, but distrib_optim.pt is missing"});
}

TEST_F(DamagedMegatronTest, GroupsOfOtherShapesAreRefused) {
  copy("qk_norm_tp2_bf16");
  for (const char* rank : {"mp_rank_00", "mp_rank_01"}) {
    std::string bytes = read_file(rank_file(rank));
    const size_t state = bytes.find("exp_avg_sq");  // of the first parameter, which replaces the second
    const size_t params = bytes.find("params", bytes.find("param_groups", state) + 12);
    const size_t list = bytes.find(std::string("K\0K\1K\2", 6), params);
    ASSERT_NE(list, std::string::npos);
    std::swap(bytes[list + 1], bytes[list + 3]);
    write_file(rank_file(rank), without_pickle_crc(bytes));
  }
  expect(ErrorCode::kCorruptData,
         {"mp_rank_00/model_optim_rng.pt: optimizer: its 2 groups of 11 parameters do not have the shapes"});
}

TEST_F(DamagedMegatronTest, EmptiedOptimizerStateIsRefused) {
  copy("qk_norm_tp2_bf16");
  for (const char* rank : {"mp_rank_00", "mp_rank_01"}) {
    std::string bytes = read_file(rank_file(rank));
    // The items of `state` are dropped (POP_MARK) instead of stored (SETITEMS).
    const size_t groups = bytes.find(std::string("X\x0c\0\0\0param_groups", 17));
    ASSERT_NE(groups, std::string::npos);
    ASSERT_EQ(bytes[groups - 1], 'u');
    bytes[groups - 1] = '1';
    write_file(rank_file(rank), without_pickle_crc(bytes));
  }
  expect(ErrorCode::kCorruptData, {"mp_rank_00/model_optim_rng.pt: optimizer: its state is empty, but the run is at "
                                   "iteration 7",
                                   "--drop-optimizer"});
  std::vector<std::string> decisions;
  MegatronOptions options;
  options.drop_optimizer = true;
  EXPECT_FALSE(ckpt::has_role(*open_megatron(root_, options, decisions), TensorRole::kExpAvg));
}

TEST_F(DamagedMegatronTest, MasterWeightsOfAnotherStepAreRefused) {
  copy("qk_norm_tp2_bf16");
  const std::string path = rank_file("mp_rank_01");
  write_file(path, without_crcs(with_flipped_bit(path, "decoder.layers.0.self_attention.linear_qkv.weight", 72)));
  expect(ErrorCode::kCorruptData,
         {"mp_rank_01", "fp32_from_fp16_params of decoder.layers.0.self_attention.linear_qkv.weight",
          "does not round to the weight"});
}

}  // namespace
}  // namespace ms::convert
