// Our Megatron trees: compared with those of megatron-core, in other layouts, from and to other formats, with disk
// faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ckpt/reader.h"
#include "convert/convert.h"
#include "convert/megatron.h"
#include "convert/megatron/tree.h"
#include "convert/torch/torch_file.h"
#include "core/error.h"
#include "tests/convert/conversions.h"
#include "tests/convert/megatron/check_values.h"
#include "tests/support/files_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::ErrorCode;
using test::check_all_values;
using test::files_of;
using test::read_file;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::string data(const std::string& name) { return core::cat(MS_TEST_DATA, "/", name); }

std::unique_ptr<ckpt::Source> open(const std::string& path) {
  std::vector<std::string> decisions;
  return open_megatron(path, {}, decisions);
}

ConvertOptions to_megatron(const std::string& from, const std::string& to, int tp = 1, int pp = 1,
                           int64_t layers_per_chunk = 0) {
  ConvertOptions options;
  options.load_dir = from;
  options.save_dir = to;
  options.save_model_type = Format::kMegatron;
  options.target_tensor_parallel_size = tp;
  options.target_pipeline_parallel_size = pp;
  options.num_layers_per_virtual_pipeline_stage = layers_per_chunk;
  return options;
}

struct Layout {
  const char* tree;
  int tp, pp;
  int64_t layers_per_chunk;
  bool distributed;
  MegatronNaming naming = MegatronNaming::kLocal;
  int ep = 1, etp = 0;  // 0: TP
  bool grouped = false, extended = false;
};

class MegatronLayoutTest : public ::testing::TestWithParam<Layout> {};

TEST_P(MegatronLayoutTest, EveryElementIsInItsPlace) {
  const Layout& layout = GetParam();
  const test::TemporaryFolder folder;
  const std::string from = data(core::cat("megatron/", layout.tree));
  const auto wanted = check_all_values(*open(from));
  ConvertOptions options = to_megatron(from, folder / "mg", layout.tp, layout.pp, layout.layers_per_chunk);
  options.use_distributed_optimizer = layout.distributed;
  options.target_norm_naming = layout.naming;
  options.target_expert_parallel_size = layout.ep;
  if (layout.etp > 0) options.expert_tensor_parallel_size = layout.etp;
  options.moe_grouped_gemm = layout.grouped;
  options.moe_tp_extend_ep = layout.extended;
  const ConvertReport report = convert_checkpoint(options);
  EXPECT_EQ(report.path, folder / "mg/iter_0000007");
  EXPECT_EQ(read_file(folder / "mg/latest_checkpointed_iteration.txt"), "7");
  const auto made = open(folder / "mg");
  EXPECT_EQ(check_all_values(*made), wanted);
  EXPECT_EQ(made->info().layout.at("tp"), layout.tp);
  EXPECT_EQ(made->info().layout.at("ep"), layout.extended ? layout.ep * layout.tp : layout.ep);
  EXPECT_EQ(made->info().layout.at("pp"), layout.pp);
  EXPECT_EQ(made->info().layout.at("vpp"), layout.layers_per_chunk == 0 ? 1 : 2);
  const auto original = open(from);
  EXPECT_EQ(made->info().model, original->info().model);
  EXPECT_EQ(made->info().iteration, 7);
  EXPECT_EQ(made->info().common, original->info().common) << "samples, step, schedule";
  const std::string rank = megatron_rank_folder(0, 0, layout.pp, 0, layout.ep);
  EXPECT_EQ(fs::exists(folder / "mg/iter_0000007/" + rank + "/distrib_optim.pt"), layout.distributed);

  // Through a native checkpoint of another layout and back: the same bytes.
  ConvertOptions native;
  native.load_dir = folder / "mg";
  native.save_dir = folder / "ms";
  native.target_tensor_parallel_size = 2;
  convert_checkpoint(native);
  options.load_dir = folder / "ms";
  options.save_dir = folder / "again";
  convert_checkpoint(options);
  EXPECT_TRUE(files_of(folder / "again") == files_of(folder / "mg"));
}

INSTANTIATE_TEST_SUITE_P(
    Trees, MegatronLayoutTest,
    ::testing::Values(Layout{"swiglu_tp2_pp2_distributed", 1, 3, 0, false},
                      Layout{"swiglu_tp2_pp2_distributed", 4, 1, 0, true},
                      Layout{"swiglu_tp2_pp2_distributed", 2, 1, 0, false, MegatronNaming::kTransformerEngine},
                      Layout{"tied_pp2_distributed", 1, 2, 0, false}, Layout{"tied_pp2_distributed", 2, 2, 0, true},
                      Layout{"tied_pp2_distributed", 2, 1, 0, true}, Layout{"gelu_vpp2_fp32", 1, 2, 1, true},
                      Layout{"gelu_vpp2_fp32", 2, 2, 1, false}, Layout{"gelu_vpp2_fp32", 1, 4, 0, false},
                      Layout{"qk_norm_tp2_bf16", 1, 1, 0, true, MegatronNaming::kTransformerEngine},
                      Layout{"moe_tp2_ep2", 2, 2, 0, false, MegatronNaming::kLocal, 2},
                      Layout{"moe_tp2_ep2", 2, 1, 0, true, MegatronNaming::kTransformerEngine, 4, 1, true},
                      Layout{"moe_tp2_ep2", 2, 1, 0, true, MegatronNaming::kLocal, 1, 1},
                      Layout{"moe_ep2_distributed", 2, 2, 0, true, MegatronNaming::kLocal, 2, 0, false, true},
                      Layout{"moe_tp2_ep2", 2, 1, 0, false, MegatronNaming::kLocal, 2, 0, true},
                      Layout{"moe_grouped_tp2_ep2_distributed", 1, 1, 0, true, MegatronNaming::kLocal, 2, 0, true},
                      Layout{"moe_latent_tp2_ep2_etp1", 1, 1, 0, true, MegatronNaming::kLocal, 4},
                      Layout{"moe_latent_tp2_ep2_etp1", 2, 2, 0, false, MegatronNaming::kTransformerEngine, 2, 1,
                             true}),
    [](const auto& test) {
      const Layout& l = test.param;
      return core::cat(l.tree, "_to_tp", l.tp, "_pp", l.pp, l.layers_per_chunk > 0 ? "_virtual" : "",
                       l.distributed ? "_distributed" : "", l.ep > 1 ? core::cat("_ep", l.ep) : "",
                       l.etp > 0 ? core::cat("_etp", l.etp) : "", l.grouped ? "_grouped" : "",
                       l.extended ? "_extended" : "");
    });

// Compares the contents of two torch.save files.
class SameObjects {
 public:
  SameObjects(const std::string& genuine, const std::string& ours) : genuine_(genuine), ours_(ours) {}

  // Every entry of the genuine file's dictionaries is in ours, with the same value, in the same order.
  void expect(std::string_view key) const {
    const auto genuine = genuine_.root().find(key), ours = ours_.root().find(key);
    ASSERT_EQ(genuine.has_value(), ours.has_value()) << key;
    if (genuine) compare(*genuine, *ours, std::string(key));
  }
  void expect_all() const { compare(genuine_.root(), ours_.root(), "root"); }

 private:
  static std::string name_of(PickleValue key) {
    if (key.is(PickleKind::kString)) return std::string(key.text());
    if (key.is(PickleKind::kInt)) return std::to_string(key.integer());
    std::string name;
    for (const PickleValue part : key.items()) name += core::cat(part.text(), ",");
    return name;
  }
  static bool is_dict(PickleValue value) {
    return value.is(PickleKind::kDict) || value.is_call_of("collections", "OrderedDict");
  }
  static std::string bytes_of(const TorchFile& file, const TorchTensor& tensor) {
    std::string bytes(tensor.size_bytes(), '\0');
    file.read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  void compare(PickleValue genuine, PickleValue ours, const std::string& where) const {
    SCOPED_TRACE(where);
    if (const auto tensor = genuine_.tensor(genuine)) {
      const auto other = ours_.tensor(ours);
      ASSERT_TRUE(other.has_value());
      EXPECT_EQ(tensor->dtype, other->dtype);
      EXPECT_EQ(tensor->shape, other->shape);
      EXPECT_TRUE(bytes_of(genuine_, *tensor) == bytes_of(ours_, *other)) << "other values";
    } else if (is_dict(genuine)) {
      ASSERT_TRUE(is_dict(ours));
      std::vector<std::string> names, ours_names;
      std::map<std::string, PickleValue> values;
      for (const auto& [key, value] : ours.pairs()) values.emplace(name_of(key), value);
      for (const auto& [key, value] : genuine.pairs()) {
        names.push_back(name_of(key));
        const auto found = values.find(name_of(key));
        ASSERT_NE(found, values.end()) << name_of(key);
        compare(value, found->second, core::cat(where, "[", name_of(key), "]"));
      }
      if (where.starts_with("model")) {
        for (const auto& [key, value] : ours.pairs()) ours_names.push_back(name_of(key));
        EXPECT_EQ(ours_names, names) << "the order of registration";
      }
    } else if (genuine.is(PickleKind::kList) || genuine.is(PickleKind::kTuple)) {
      EXPECT_EQ(genuine.kind(), ours.kind());
      ASSERT_EQ(genuine.items().size(), ours.items().size());
      for (size_t i = 0; i < ours.items().size(); ++i) {
        compare(genuine.items()[i], ours.items()[i], core::cat(where, "[", i, "]"));
      }
    } else if (where.ends_with("[param_groups][1][weight_decay]")) {
      EXPECT_EQ(ours.real(), 0) << "as a run's scheduler sets it, which make_megatron_tree.py does not have";
    } else if (genuine.is(PickleKind::kInt) || genuine.is(PickleKind::kFloat)) {
      EXPECT_EQ(genuine.real(), ours.real());
    } else {
      ASSERT_EQ(genuine.kind(), ours.kind());
      if (genuine.is(PickleKind::kString)) {
        EXPECT_EQ(genuine.text(), ours.text());
      }
      if (genuine.is(PickleKind::kBool)) {
        EXPECT_EQ(genuine.boolean(), ours.boolean());
      }
    }
  }

  TorchFile genuine_, ours_;
};

TEST(MegatronTargetTest, SameLayoutEqualsMegatronsFiles) {
  const test::TemporaryFolder folder;
  const Layout layouts[] = {{"tied_pp2_distributed", 1, 2, 0, true},
                            {"gelu_vpp2_fp32", 1, 2, 1, false},
                            {"qk_norm_tp2_bf16", 2, 1, 0, false},
                            {"moe_tp2_ep2", 2, 1, 0, false, MegatronNaming::kLocal, 2},
                            {"moe_ep2_distributed", 1, 1, 0, true, MegatronNaming::kLocal, 2},
                            {"moe_latent_tp2_ep2_etp1", 2, 2, 0, false, MegatronNaming::kLocal, 2, 1},
                            {"moe_grouped_tp2_ep2_distributed", 2, 1, 0, true, MegatronNaming::kLocal, 2, 0, true}};
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.tree);
    const std::string from = data(core::cat("megatron/", layout.tree)), to = folder / layout.tree;
    ConvertOptions options = to_megatron(from, to, layout.tp, layout.pp, layout.layers_per_chunk);
    options.use_distributed_optimizer = layout.distributed;
    options.target_expert_parallel_size = layout.ep;
    if (layout.etp > 0) options.expert_tensor_parallel_size = layout.etp;
    options.moe_grouped_gemm = layout.grouped;
    // All rows: padding rows are not zeros there.
    if (layout.ep == 1) options.true_vocab_size = layout.tp == 2 ? 16 : 24;
    convert_checkpoint(options);
    for (const auto& rank : fs::directory_iterator(from + "/iter_0000007")) {
      const std::string ours = core::cat(to, "/iter_0000007/", rank.path().filename().string());
      const SameObjects same(rank.path() / "model_optim_rng.pt", ours + "/model_optim_rng.pt");
      for (const char* key : {"checkpoint_version", "iteration", "model", "model0", "model1", "model2", "optimizer",
                              "opt_param_scheduler"}) {
        same.expect(key);
      }
      if (layout.distributed) SameObjects(rank.path() / "distrib_optim.pt", ours + "/distrib_optim.pt").expect_all();
    }
  }
}

TEST(MegatronTargetTest, HuggingFaceIsByteIdenticalAfterTwoTrees) {
  const test::TemporaryFolder folder;
  std::vector<const char*> models = {"hf_llama_tiny", "hf_llama_tiny_sharded", "hf_gpt2_tiny", "hf_gemma2_tiny"};
  if (std::getenv("MS_NIGHTLY") != nullptr) {
    models.insert(models.end(), {"hf_qwen2_tiny", "hf_qwen3_tiny", "hf_glm4_tiny", "hf_glm_tiny", "hf_phi3_tiny",
                                 "hf_mistral_tiny", "hf_yarn_tiny", "hf_llama3_tiny"});
  }
  for (const char* model : models) {
    SCOPED_TRACE(model);
    const std::string at = folder / model;
    const ConvertReport made = convert_checkpoint(to_megatron(data(model), at + "/mg", 2, 2));
    EXPECT_EQ(made.path, at + "/mg/release");
    EXPECT_EQ(read_file(at + "/mg/latest_checkpointed_iteration.txt"), "release");
    EXPECT_THAT(made.decisions,
                Contains(HasSubstr("the vocabulary of 67 rows is padded with 189 rows of zeros to 256")));
    ConvertOptions native;
    native.load_dir = at + "/mg";
    native.save_dir = at + "/ms";
    convert_checkpoint(native);
    ConvertOptions second = to_megatron(at + "/ms", at + "/mg2", 1, 2);
    second.target_norm_naming = MegatronNaming::kTransformerEngine;
    second.make_vocab_size_divisible_by = 8;
    convert_checkpoint(second);
    EXPECT_EQ(open(at + "/mg2")->info().model.vocab_size, 67);
    test::expect_folder_comes_back(at + "/mg2", data(model), at + "/hf");
  }
}

// megatron-core's GroupedMLP, and MindSpeed-LLM's.
TEST(MegatronTargetTest, GroupedExpertsAreInOneTensor) {
  const test::TemporaryFolder folder;
  ConvertOptions options = to_megatron(data("megatron/moe_tp2_ep2"), folder / "mg", 2);
  options.moe_grouped_gemm = true;
  options.target_expert_parallel_size = 2;
  EXPECT_THAT(convert_checkpoint(options).decisions, Contains(HasSubstr("weight1 and weight2")));
  const TorchFile file(folder / "mg/iter_0000007/mp_rank_01_001/model_optim_rng.pt");
  const auto weight = file.root().find("model")->find("decoder.layers.1.mlp.experts.weight1");
  ASSERT_TRUE(weight);
  EXPECT_THAT(file.tensor(*weight)->shape, ::testing::ElementsAre(8, 2 * 6)) << "two experts of 2 x 3 rows each";
}

TEST(MegatronTargetTest, DecisionsAreReported) {
  const test::TemporaryFolder folder;
  ConvertOptions options = to_megatron(data("megatron/tied_pp2_distributed"), folder / "mg", 1, 2);
  options.use_distributed_optimizer = true;
  options.mg_args = MegatronArgsForm::kOmit;
  options.dry_run = true;
  const ConvertReport report = convert_checkpoint(options);
  for (const char* said :
       {"padded with 3 rows of zeros to 24", "copy of the word embeddings, output_layer.weight",
        "--target-norm-naming te", "--no-load-rng", "without --overlap-grad-reduce", "args are left out"}) {
    EXPECT_THAT(report.decisions, Contains(HasSubstr(said)));
  }
  EXPECT_THAT(report.decisions, Not(Contains(HasSubstr("epsilon"))));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(MegatronTargetTest, ArgsAreADictionaryOrOmitted) {
  const test::TemporaryFolder folder;
  ConvertOptions options = to_megatron(data("megatron/qk_norm_tp2_bf16"), folder / "dict");
  options.mg_args = MegatronArgsForm::kDict;
  convert_checkpoint(options);
  EXPECT_FALSE(check_all_values(*open(folder / "dict")).empty());
  options.save_dir = folder / "omitted";
  options.mg_args = MegatronArgsForm::kOmit;
  convert_checkpoint(options);
  const test::Thrown thrown = test::thrown_by([&] { open(folder / "omitted"); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("no args, which describe the model"));
}

TEST(MegatronTargetTest, DropOptimizerLeavesOutOptimizerState) {
  const test::TemporaryFolder folder;
  ConvertOptions options = to_megatron(data("megatron/qk_norm_tp2_bf16"), folder / "mg");
  options.drop_optimizer = true;
  EXPECT_THAT(convert_checkpoint(options).decisions, Contains(HasSubstr("optimizer state is left out")));
  const TorchFile file(folder / "mg/iter_0000007/mp_rank_00/model_optim_rng.pt");
  EXPECT_FALSE(file.root().find("optimizer"));
  EXPECT_TRUE(file.root().find("opt_param_scheduler"));
}

// Cast weights keep the masters that they were made from.
TEST(MegatronTargetTest, CastWeightsKeepTheirMasters) {
  const test::TemporaryFolder folder;
  ConvertOptions options = to_megatron(data("megatron/gelu_vpp2_fp32"), folder / "bf16", 2, 2);
  options.dtype = core::DType::kBf16;
  options.use_distributed_optimizer = true;
  convert_checkpoint(options);
  const auto wanted = check_all_values(*open(data("megatron/gelu_vpp2_fp32")));
  EXPECT_EQ(check_all_values(*open(folder / "bf16")).size(), wanted.size() / 3 * 4);
  options = to_megatron(folder / "bf16", folder / "fp32");
  options.dtype = core::DType::kFp32;
  convert_checkpoint(options);
  EXPECT_EQ(check_all_values(*open(folder / "fp32")), wanted);
}

TEST(MegatronTargetTest, ExistingIterationIsRefused) {
  const test::TemporaryFolder folder;
  const ConvertOptions options = to_megatron(data("megatron/qk_norm_tp2_bf16"), folder / "mg");
  convert_checkpoint(options);
  const auto before = files_of(folder / "mg");
  const test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(options); });
  EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("iter_0000007 already exists"));
  EXPECT_TRUE(files_of(folder / "mg") == before);
}

TEST(MegatronTargetTest, DiskFaultLeavesNothingAndTheOldCheckpointReadable) {
  const test::TemporaryFolder folder;
  convert_checkpoint(to_megatron(data("hf_llama_tiny"), folder / "mg"));
  const auto before = files_of(folder / "mg");
  ConvertOptions options = to_megatron(data("megatron/tied_pp2_distributed"), folder / "mg", 1, 2);
  options.use_distributed_optimizer = true;
  test::expect_survives_disk_errors(options, [&] {
    if (fs::exists(folder / "mg/iter_0000007")) {  // complete; if only the tracker failed, it is the old one
      EXPECT_FALSE(check_all_values(*open(folder / "mg/iter_0000007")).empty());
      fs::remove_all(folder / "mg/iter_0000007");
      test::write_file(folder / "mg/latest_checkpointed_iteration.txt", "release");
    }
    ASSERT_TRUE(files_of(folder / "mg") == before);
  });
}

TEST(MegatronTargetTest, InterruptLeavesNothing) {
  const test::TemporaryFolder folder;
  test::expect_stop_leaves_nothing(to_megatron(data("megatron/qk_norm_tp2_bf16"), folder / "mg"), folder.path());
}

TEST(MegatronTargetTest, ImpossibleLayoutsAreRefused) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(test::code_of([&] { convert_checkpoint(to_megatron(data("hf_llama_tiny"), folder / "mg", 3)); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::code_of([&] { convert_checkpoint(to_megatron(data("hf_llama_tiny"), folder / "mg", 1, 4)); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::code_of([&] { convert_checkpoint(to_megatron(data("hf_llama_tiny"), folder / "mg", 1, 1, 1)); }),
            ErrorCode::kInvalidArgument);
  ConvertOptions dense = to_megatron(data("hf_llama_tiny"), folder / "mg", 1);
  dense.target_expert_parallel_size = 2;
  EXPECT_EQ(test::code_of([&] { convert_checkpoint(dense); }), ErrorCode::kInvalidArgument);
  ConvertOptions experts = to_megatron(data("megatron/moe_tp2_ep2"), folder / "mg", 1);
  experts.target_expert_parallel_size = 3;
  EXPECT_EQ(test::code_of([&] { convert_checkpoint(experts); }), ErrorCode::kInvalidArgument);
  experts.target_expert_parallel_size = 1;
  experts.expert_tensor_parallel_size = 2;
  EXPECT_THAT(test::thrown_by([&] { convert_checkpoint(experts); }).text, HasSubstr("does not divide"));
  experts.moe_tp_extend_ep = true;
  EXPECT_THAT(test::thrown_by([&] { convert_checkpoint(experts); }).text, HasSubstr("must be 1 with it"));
  experts = to_megatron(data("megatron/moe_latent_tp2_ep2_etp1"), folder / "mg", 1, 2);
  experts.moe_grouped_gemm = true;
  experts.drop_optimizer = true;
  experts.save_model_type = Format::kNative;
  EXPECT_EQ(test::code_of([&] { convert_checkpoint(experts); }), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace ms::convert
