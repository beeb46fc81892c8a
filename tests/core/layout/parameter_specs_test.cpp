#include "core/layout/parameter_specs.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

using test::small_model;

TEST(ParameterSpecs, PostNormsAndAllHeadNormsMatchParameterCount) {
  core::TransformerConfig config = small_model(128);
  config.normalization = "RMSNorm";
  config.qk_layernorm = config.qk_layernorm_all_heads = config.post_norm = true;
  config.pre_norm = false;
  config.resolve(16);
  config.validate();
  int64_t sum = 0;
  for (const ParameterSpec& spec : parameter_specs(config)) {
    sum += core::num_elements(spec.global_shape);
    EXPECT_EQ(spec.key.find("layer_norm_weight"), std::string::npos) << spec.key;
    if (spec.key.ends_with("q_layernorm.weight")) {
      EXPECT_EQ(spec.global_shape, core::Dims{config.num_attention_heads * config.kv_channels});
    }
  }
  EXPECT_EQ(sum, config.num_parameters(1));
}

TEST(ParameterSpecs, BiasesOneByOne) {
  core::TransformerConfig config = small_model(128);
  config.add_bias_linear = false;
  for (int bits = 0; bits < 8; ++bits) {
    config.add_qkv_bias = (bits & 1) != 0;
    config.add_dense_bias = (bits & 2) != 0;
    config.add_mlp_bias = (bits & 4) != 0;
    core::TransformerConfig model = config;
    model.resolve(16);
    EXPECT_EQ(model.add_bias_linear, bits == 7);
    int64_t sum = 0;
    std::set<std::string> biases;
    for (const ParameterSpec& spec : parameter_specs(model)) {
      sum += core::num_elements(spec.global_shape);
      if (spec.layer == 0 && spec.key.ends_with(".bias")) biases.insert(spec.key.substr(spec.key.find("linear_")));
    }
    EXPECT_EQ(sum, model.num_parameters(1)) << bits;
    std::set<std::string> wanted;
    if (config.add_qkv_bias) wanted.insert("linear_qkv.bias");
    if (config.add_dense_bias) wanted.insert("linear_proj.bias");
    if (config.add_mlp_bias) wanted.insert({"linear_fc1.bias", "linear_fc2.bias"});
    EXPECT_EQ(biases, wanted) << bits;
  }
}

}  // namespace
}  // namespace ms::layout
