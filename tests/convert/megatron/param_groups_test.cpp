// Megatron's parameter groups: identified by their markers, and written from the groups of a torch run.
#include "convert/megatron/param_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "convert/torch/pickle_writer.h"
#include "core/layout/parameter_specs.h"

namespace ms::convert {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<layout::ParameterSpec> specs() {
  std::vector<layout::ParameterSpec> made(4);
  made[0].key = "embedding.word_embeddings.weight";
  made[0].global_shape = {8, 4};
  made[1].key = "decoder.layers.0.mlp.linear_fc1.weight";
  made[1].global_shape = {8, 4};
  made[2].key = "decoder.layers.0.self_attention.q_layernorm.weight";
  made[2].global_shape = {4};
  made[3].key = "decoder.final_layernorm.weight";
  made[3].global_shape = {4};
  return made;
}

void write_group(PickleWriter& p, double wd_mult, double lr, double weight_decay, bool experts = false) {
  p.dict([&] {
    for (const auto& [key, value] : {std::pair("wd_mult", wd_mult), {"lr", lr}, {"weight_decay", weight_decay}}) {
      p.text(key);
      p.real(value);
    }
    p.text("is_expert_parallel");
    p.boolean(experts);
    p.text("betas");
    p.tuple([&] {
      p.real(0.9);
      p.real(0.95);
    });
    p.text("eps");
    p.real(1e-8);
    p.text("step");
    p.integer(7);
  });
}

nlohmann::json read(const std::function<void(PickleWriter&)>& groups, const GroupRule& rule = {}) {
  const Pickle pickle(make_pickle([&](PickleWriter& p) {
                        p.dict([&] {
                          p.text("optimizer");
                          p.dict([&] {
                            p.text("param_groups");
                            p.list([&] { groups(p); });
                          });
                        });
                      }),
                      "here");
  nlohmann::json common = nlohmann::json::object();
  read_megatron_groups(pickle.root(), specs(), rule, common);
  return common.at("optimizer").at("groups");
}

TEST(ParamGroups, WdMultDistinguishesMatricesFromVectors) {
  const nlohmann::json groups = read([](PickleWriter& p) {
    write_group(p, 0.0, 3e-4, 0.0);  // in any order
    write_group(p, 1.0, 3e-4, 0.1);
  });
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].at("weight_decay"), 0.0);
  EXPECT_EQ(groups[1].at("weight_decay"), 0.1);
  EXPECT_EQ(groups[1].at("params"),
            nlohmann::json({"embedding.word_embeddings.weight", "decoder.layers.0.mlp.linear_fc1.weight"}));
  EXPECT_FALSE(groups[0].contains("params")) << "all others";
  EXPECT_EQ(groups[1].at("step"), 7);
}

TEST(ParamGroups, QkNormsMayDecay) {
  const auto both = [](PickleWriter& p) {
    write_group(p, 1.0, 3e-4, 0.1);
    write_group(p, 0.0, 3e-4, 0.0);
  };
  EXPECT_EQ(read(both, {.qk_norms_decay = true})[1].at("params"), nlohmann::json({"decoder.final_layernorm.weight"}));
}

TEST(ParamGroups, ExpertsWithEqualSettingsShareTheGroup) {
  const nlohmann::json groups = read([](PickleWriter& p) {
    write_group(p, 1.0, 3e-4, 0.1);
    write_group(p, 0.0, 3e-4, 0.0);
    write_group(p, 1.0, 3e-4, 0.1, true);
  });
  EXPECT_EQ(groups.size(), 2U);
}

ckpt::OptimizerGroup group(double weight_decay, std::vector<std::string> params) {
  ckpt::OptimizerGroup made;
  made.lr = 3e-4;
  made.weight_decay = weight_decay;
  made.params = std::move(params);
  return made;
}

TEST(ParamGroups, TorchGroupsWithDecayOnMatricesMapToMegatrons) {
  const std::vector<ckpt::OptimizerGroup> groups = {
      group(0.05, {}),
      group(0.0, {"decoder.final_layernorm.weight", "decoder.layers.0.self_attention.q_layernorm.weight"})};
  const MegatronGroups made = megatron_groups(groups, specs());
  EXPECT_THAT(made.dropped, IsEmpty());
  EXPECT_EQ(made.decayed.weight_decay, 0.05);
  EXPECT_EQ(made.decayed.wd_mult, 1.0);
  EXPECT_EQ(made.other.weight_decay, 0.0);
  EXPECT_EQ(made.other.wd_mult, 0.0);
  EXPECT_EQ(made.decayed.max_lr, std::nullopt) << "unknown bounds are left out";
}

TEST(ParamGroups, SettingsThatMegatronCannotExpressAreNamed) {
  const MegatronGroups one = megatron_groups(std::vector{group(0.05, {})}, specs());
  EXPECT_THAT(one.dropped, ElementsAre(HasSubstr("does not decay vectors and biases; the source does, by 0.05")));
  const std::vector<ckpt::OptimizerGroup> groups = {
      group(0.05, {"decoder.layers.0.mlp.linear_fc1.weight"}),
      group(0.0, {"decoder.final_layernorm.weight", "embedding.word_embeddings.weight",
                  "decoder.layers.0.self_attention.q_layernorm.weight"})};
  const MegatronGroups made = megatron_groups(groups, specs());
  EXPECT_THAT(made.dropped, ElementsAre(HasSubstr("embedding.word_embeddings.weight has lr 0.0003, weight_decay 0")));
}

}  // namespace
}  // namespace ms::convert
