#include "train/megatron_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/io/yaml.h"
#include "tests/support/thrown.h"
#include "train/config.h"

namespace ms::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> flags_of(std::string_view text) {
  TrainerConfig config;
  const core::ConfigFields fields = config.fields();
  return flags_of_megatron_yaml(core::parse_yaml(text, "x.yaml"), fields, "x.yaml");
}

// With the names, sections and most values of Megatron's examples/gpt3/gpt_config.yaml.
constexpr std::string_view kExample = R"(
language_model:
  num_layers: 24
  hidden_size: 1024
  num_attention_heads: 16
  num_query_groups: null
  hidden_dropout: 0.0
  attention_dropout: 0.0
  fp32_residual_connection: False
  layernorm_epsilon: 1.e-6
  layernorm_zero_centered_gamma: True
  add_bias_linear: False
  gated_linear_unit: False
  activation_func: swiglu
  num_moe_experts: null
  window_size: null
  bias_swiglu_fusion: True
  fp8: null
  fp8_amax_history_len: 1
  fp8_amax_compute_algo: "most_recent"
  fp8_wgrad: True
  clone_scatter_output_in_embedding: True
  normalization: "LayerNorm"  # alt value supported by TE: "RMSNorm"
  moe_router_load_balancing_type: "aux_loss"
  moe_aux_loss_coeff: 0
model_parallel:
  tensor_model_parallel_size: 2
  context_parallel_size: 1
  sequence_parallel: True
  bf16: True
  fp16: False
  params_dtype: null
  tp_comm_bulk_wgrad: True
  _cpu_offloading_context: null
micro_batch_size: 2
global_batch_size: 128
add_position_embedding: False
position_embedding_type: rope
rotary_percent: 0.5
swiglu: False
bert_binary_head: True
lr: 2.5e-4
adam_eps: 1.e-08
no_save_optim: null
overlap_grad_reduce: False
split: '99,1,0'
data_path: 0.3 a 0.7 b
profile_ranks: [0, 1]
seq_length: 4096
train_samples: 268554688
optimizer: adam
wandb_project: ''
)";

TEST(MegatronYaml, ExampleSetsTheRun) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  EXPECT_TRUE(fields.parse_flags(flags_of(kExample)).empty());
  EXPECT_EQ(config.model.num_layers, 24);
  EXPECT_EQ(config.model.norm_epsilon, 1e-6);
  EXPECT_TRUE(config.model.apply_layernorm_1p);
  EXPECT_TRUE(config.model.swiglu) << "activation_func decides, not swiglu beside the section";
  EXPECT_FALSE(config.model.add_bias_linear);
  EXPECT_EQ(config.model.hidden_dropout, 0);
  EXPECT_EQ(config.model.rotary_percent, 0.5);
  EXPECT_FALSE(config.training.add_position_embedding);
  EXPECT_EQ(config.parallel.tensor_model_parallel_size, 2);
  EXPECT_TRUE(config.parallel.sequence_parallel);
  EXPECT_TRUE(config.training.bf16);
  EXPECT_EQ(config.optimizer.lr, 2.5e-4);
  EXPECT_EQ(config.optimizer.adam_eps, 1e-8);
  EXPECT_EQ(config.data.split, "99,1,0");
  EXPECT_THAT(config.data.data_path, ElementsAre("0.3", "a", "0.7", "b"));
  EXPECT_THAT(config.profiling.profile_ranks, ElementsAre(0, 1));
  EXPECT_EQ(config.training.train_samples, 268554688);
  EXPECT_FALSE(fields.given("num_query_groups")) << "null";
  EXPECT_TRUE(fields.given("add_bias_linear"));
}

TEST(MegatronYaml, SwitchesAndTheirOpposites) {
  EXPECT_THAT(flags_of("bf16: yes\nasync_save: no\n"), ElementsAre("--bf16", "--no-async-save"));
  EXPECT_THAT(flags_of("masked_softmax_fusion: True\n"), ElementsAre());
  EXPECT_THAT(flags_of("masked_softmax_fusion: False\n"), ElementsAre("--no-masked-softmax-fusion"));
  EXPECT_THAT(flags_of("disable_bias_linear: False\nuse_flash_attn: True\n"), ElementsAre("--use-flash-attn"));
  EXPECT_THAT(flags_of("language_model: {activation_func: squaredrelu}\n"), ElementsAre("--squared-relu"));
  EXPECT_THAT(flags_of("language_model: {activation_func: gelu, bias_activation_fusion: True}\n"),
              ElementsAre("--no-bias-gelu-fusion"));
  EXPECT_THAT(flags_of("language_model: {activation_func: gelu, gated_linear_unit: True}\n"), ElementsAre("--geglu"));
  EXPECT_THAT(flags_of("window_size: [128, 0]\n"), ElementsAre("--window-size=128,0"));
  EXPECT_THAT(flags_of("# empty\n"), ElementsAre());
}

TEST(MegatronYaml, ErrorsNameTheKey) {
  using core::ErrorCode;
  struct Case {
    const char *text, *says;
    ErrorCode code = ErrorCode::kInvalidArgument;
  };
  for (const Case& each :
       {Case{"num_layer: 3", "unknown key \"num_layer\". Did you mean num_layers?"},
        Case{"zzz: null", "unknown key \"zzz\""}, Case{"help: True", "unknown key \"help\""},
        Case{"model: {num_layers: 3}", "\"model\" is no section; expected language_model or model_parallel"},
        Case{"bf16: 1", "bf16 is \"1\"; expected true or false"}, Case{"lr: True", "lr is true; expected a value"},
        Case{"lr: [1, 2]", "lr: one value expected, not a list"}, Case{"[1, 2]", "expected \"name: value\" lines"},
        Case{"gated_linear_unit: True", "gated_linear_unit needs activation_func"},
        Case{"language_model: {activation_func: relu}", "activation_func is \"relu\"", ErrorCode::kUnsupported},
        Case{"window_size: [128, 0, 0]", "window_size: one value expected, not a list"},
        Case{"init_method: normal", "init_method is \"normal\", which is not supported", ErrorCode::kUnsupported}}) {
    const test::Thrown thrown = test::thrown_by([&] { flags_of(each.text); });
    EXPECT_EQ(thrown.code, each.code) << each.text;
    EXPECT_THAT(thrown.text, HasSubstr(core::cat("x.yaml: ", each.says)));
  }
  // What a flag refuses, the same words refuse here.
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  const test::Thrown thrown = test::thrown_by([&] { fields.parse_flags(flags_of("fp32_residual_connection: True")); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("--fp32-residual-connection: not supported yet"));
}

}  // namespace
}  // namespace ms::train
