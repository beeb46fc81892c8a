#include "convert/megatron/args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "convert/torch/pickle_writer.h"
#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using test::thrown_by;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Pair = std::pair<int, int>;
using Member = std::variant<std::nullptr_t, bool, int, double, const char*, Pair>;
using Members = std::map<std::string, Member>;

// A handmade pickle of a dictionary.
std::string pickled(const Members& members) {
  const auto text = [](std::string_view value) {
    return std::string("X") + static_cast<char>(value.size()) + std::string(3, '\0') + std::string(value);
  };
  std::string bytes("\x80\x02}(", 4);
  for (const auto& [name, member] : members) {
    bytes += text(name);
    if (std::holds_alternative<std::nullptr_t>(member)) bytes += 'N';
    if (const bool* flag = std::get_if<bool>(&member)) bytes += *flag ? '\x88' : '\x89';
    const auto integer = [&](int number) {
      bytes += 'J';
      for (int byte = 0; byte < 4; ++byte) bytes += static_cast<char>(static_cast<uint32_t>(number) >> (8 * byte));
    };
    if (const int* number = std::get_if<int>(&member)) integer(*number);
    if (const Pair* numbers = std::get_if<Pair>(&member)) {
      integer(numbers->first);
      integer(numbers->second);
      bytes += '\x86';
    }
    if (const double* real = std::get_if<double>(&member)) {
      bytes += 'G';
      uint64_t bits = 0;
      std::memcpy(&bits, real, sizeof bits);
      for (int byte = 7; byte >= 0; --byte) bytes += static_cast<char>(bits >> (8 * byte));
    }
    if (const auto* value = std::get_if<const char*>(&member)) bytes += text(*value);
  }
  return bytes + "u.";
}

struct Args {
  explicit Args(const Members& members) : pickle(pickled(members), "a.pt"), args(pickle.root(), "a.pt") {}
  Pickle pickle;
  MegatronArgs args;
};

const Members kLlama = {{"num_layers", 2},
                        {"hidden_size", 16},
                        {"num_attention_heads", 4},
                        {"group_query_attention", true},
                        {"num_query_groups", 2},
                        {"kv_channels", nullptr},
                        {"ffn_hidden_size", 24},
                        {"max_position_embeddings", 32},
                        {"seq_length", 64},
                        {"normalization", "RMSNorm"},
                        {"add_bias_linear", false},
                        {"swiglu", true},
                        {"use_rotary_position_embeddings", true},
                        {"rotary_base", 500000},
                        {"rope_scaling_factor", 8.0},
                        {"untie_embeddings_and_output_weights", true}};

Members with(Members members, const Members& others) {
  for (const auto& [name, member] : others) members[name] = member;
  return members;
}

TEST(MegatronArgsTest, MembersAreReadByKind) {
  const Args given(
      {{"none", nullptr}, {"yes", true}, {"no", false}, {"seven", 7}, {"half", 0.5}, {"text", "x"}, {"", ""}});
  const MegatronArgs& args = given.args;
  EXPECT_EQ(args.integer("none"), std::nullopt);
  EXPECT_EQ(args.integer("absent"), std::nullopt);
  EXPECT_EQ(args.integer("seven"), 7);
  EXPECT_EQ(args.real("seven"), 7.0);
  EXPECT_EQ(args.real("half"), 0.5);
  EXPECT_EQ(args.text("text"), "x");
  EXPECT_TRUE(args.flag("yes"));
  EXPECT_FALSE(args.flag("no"));
  EXPECT_FALSE(args.flag("none"));
  EXPECT_TRUE(args.is_set("half"));
  EXPECT_FALSE(args.is_set(""));
  EXPECT_EQ(args.size("absent"), 1);
  EXPECT_EQ(args.size("seven"), 7);
  for (const auto& [name, read] : std::map<std::string, std::function<void()>>{{"text", [&] { args.integer("text"); }},
                                                                               {"half", [&] { args.integer("half"); }},
                                                                               {"yes", [&] { args.real("yes"); }},
                                                                               {"seven", [&] { args.text("seven"); }},
                                                                               {"no", [&] { args.size("no"); }}}) {
    const auto thrown = thrown_by(read);
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
    EXPECT_THAT(thrown.text, HasSubstr("a.pt: args." + name + " is not"));
  }
  const Pickle list(std::string("\x80\x02].", 4), "b.pt");
  EXPECT_THAT(thrown_by([&] { MegatronArgs(list.root(), "b.pt"); }).text, HasSubstr("not a Namespace"));
}

TEST(MegatronArgsTest, LlamaArgsGiveTheModel) {
  const core::TransformerConfig model = megatron_model(Args(kLlama).args);
  EXPECT_EQ(model.kv_channels, 4);
  EXPECT_EQ(model.query_groups(), 2);
  EXPECT_EQ(model.position_embedding_type, "rope");
  EXPECT_EQ(model.rotary_base, 500000);
  EXPECT_EQ(model.rope_scaling_type, "none");  // the factor is Megatron's default and has no effect
  EXPECT_EQ(model.rope_scaling_factor, 1);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_TRUE(model.swiglu && model.untie_embeddings_and_output_weights && !model.add_bias_linear);
}

TEST(MegatronArgsTest, OtherSpellingsAreTranslated) {
  const auto model = [](const Members& others) { return megatron_model(Args(with(kLlama, others)).args); };
  EXPECT_EQ(model({{"layernorm_epsilon", 1e-6}}).norm_epsilon, 1e-6);
  const core::TransformerConfig llama3 = model({{"use_rope_scaling", true}});
  EXPECT_EQ(llama3.rope_scaling_type, "llama3");
  EXPECT_EQ(llama3.rope_scaling_factor, 8);
  EXPECT_EQ(llama3.rope_scaling_original_max_position_embeddings, 8192);
  const core::TransformerConfig linear = model({{"rotary_seq_len_interpolation_factor", 4}});
  EXPECT_EQ(linear.rope_scaling_type, "linear");
  EXPECT_EQ(linear.rope_scaling_factor, 4);
  const core::TransformerConfig yarn = model({{"rope_scaling_type", "yarn"},
                                              {"rope_scaling_factor", 40},
                                              {"rope_scaling_original_max_position_embeddings", 4096},
                                              {"beta_fast", 16},
                                              {"rope_scaling_mscale", 1.0}});
  EXPECT_EQ(yarn.rope_scaling_beta_fast, 16);
  EXPECT_EQ(yarn.rope_scaling_mscale, 1);
  EXPECT_EQ(yarn.rope_scaling_original_max_position_embeddings, 4096);
  const Members longrope = {{"rope_scaling_type", "longrope"},
                            {"rope_scaling_original_max_position_embeddings", 8},
                            {"short_factor", "1,1.5"},
                            {"long_factor", "2,3"}};
  EXPECT_EQ(model(longrope).rope_factors(true), (std::vector<double>{2, 3}));
  EXPECT_EQ(model(longrope).rope_scaling_factor, 8) << "rope_scaling_factor";
  EXPECT_EQ(thrown_by([&] { model(with(longrope, {{"long_mscale", 1.2}})); }).code, ErrorCode::kUnsupported);
  EXPECT_EQ(
      model({{"use_rotary_position_embeddings", false}, {"add_position_embedding", false}}).position_embedding_type,
      "none");
  EXPECT_EQ(model({{"group_query_attention", false}}).query_groups(), 4);
}

TEST(MegatronArgsTest, LatentAttentionScalesByDefault) {
  const Members latent = {{"multi_latent_attention", true}, {"kv_lora_rank", 8},         {"qk_head_dim", 4},
                          {"qk_pos_emb_head_dim", 2},       {"v_head_dim", 4},           {"q_lora_rank", nullptr},
                          {"group_query_attention", false}, {"rope_scaling_factor", 8.0}};
  const auto model = [&](const Members& more) { return megatron_model(Args(with(with(kLlama, latent), more)).args); };
  const core::TransformerConfig silent = model({});  // as MLATransformerConfig
  EXPECT_EQ(silent.rope_scaling_type, "yarn");
  EXPECT_EQ(silent.rope_scaling_factor, 40);
  EXPECT_EQ(silent.rope_scaling_original_max_position_embeddings, 4096);
  EXPECT_EQ(model({{"rope_type", nullptr}, {"rotary_scaling_factor", 4.0}}).rope_scaling_factor, 4);
  EXPECT_EQ(model({{"rope_type", nullptr}, {"rotary_scaling_factor", 1.0}}).rope_scaling_type, "none");
  EXPECT_EQ(model({{"rope_type", "rope"}}).rope_scaling_type, "none");
  EXPECT_EQ(model({{"rope_scaling_type", nullptr}}).rope_scaling_type, "none") << "MindSpeed-LLM's";
}

TEST(MegatronArgsTest, WindowsAreThoseOfMegatron) {
  const auto windows = [](const Member& size, const Member& layers) {
    core::TransformerConfig model =
        megatron_model(Args(with(kLlama, {{"window_size", size}, {"window_attn_skip_freq", layers}})).args);
    model.resolve(0);
    return model.windows_of_layers();
  };
  EXPECT_THAT(windows(Pair(4, 0), nullptr), ElementsAre(5, 5));
  EXPECT_THAT(windows(Pair(4, -1), nullptr), ElementsAre(5, 5));
  EXPECT_THAT(windows(Pair(-1, 0), nullptr), ElementsAre(0, 0));
  EXPECT_THAT(windows(Pair(4, 0), 2), ElementsAre(5, 0));
  for (const Member& size : {Member(2), Member(Pair(4, 1)), Member(Pair(-2, 0)), Member("4,0")}) {
    const auto thrown = thrown_by([&] { windows(size, nullptr); });
    EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
    EXPECT_THAT(thrown.text, HasSubstr("a.pt: args.window_size is set"));
  }
}

TEST(MegatronArgsTest, AnOutputGateIsTaken) {
  EXPECT_FALSE(megatron_model(Args(kLlama).args).attention_output_gate);
  EXPECT_TRUE(megatron_model(Args(with(kLlama, {{"attention_output_gate", true}})).args).attention_output_gate);
}

TEST(MegatronArgsTest, UnsupportedMembersAreNamed) {
  for (const char* name : {"quick_geglu", "experimental_attention_variant"}) {
    const auto thrown = thrown_by([&] { megatron_model(Args(with(kLlama, {{name, 2}})).args); });
    EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
    EXPECT_THAT(thrown.text, HasSubstr(core::cat("a.pt: args.", name, " is set")));
  }
  for (const Members& lie : {Members{{"num_layers", 0}}, Members{{"hidden_size", -8}}, Members{{"num_query_groups", 3}},
                             Members{{"normalization", "none"}}, Members{{"swiglu", "yes"}}}) {
    const auto thrown = thrown_by([&] { megatron_model(Args(with(kLlama, lie)).args); });
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
    EXPECT_THAT(thrown.text, HasSubstr("a.pt: args"));
  }
}

TEST(MegatronArgsTest, MindSpeedLlmPipelinesAreParsed) {
  const auto extras = [](const Members& members) { return pipeline_extras(Args(members).args); };
  EXPECT_FALSE(extras({}).any());
  EXPECT_FALSE(extras({{"noop_layers", nullptr}, {"schedules_method", nullptr}}).any());
  const PipelineExtras both = extras({{"noop_layers", "7,2,30"}, {"schedules_method", "dualpipev"}});
  EXPECT_EQ(both.noop_layers, (std::vector<int64_t>{2, 7, 30}));
  EXPECT_TRUE(both.dualpipev);
  // A training run contains a set: as protocol 2 pickles it, and as protocol 4.
  for (const char* set : {"c__builtin__\nset\n](K\x07K\x02"
                          "e\x85R",
                          "\x8f(K\x07K\x02\x90"}) {
    std::string bytes("\x80\x04}X\x0b\0\0\0noop_layers", 19);
    const Pickle pickle(bytes + set + "s.", "a.pt");
    EXPECT_EQ(pipeline_extras(MegatronArgs(pickle.root(), "a.pt")).noop_layers, (std::vector<int64_t>{2, 7}));
  }
  for (const Members& lie :
       {Members{{"noop_layers", "2,2"}}, Members{{"noop_layers", "2,"}}, Members{{"noop_layers", 3}},
        Members{{"noop_layers", "-1"}}, Members{{"noop_layers", "x"}}}) {
    EXPECT_EQ(thrown_by([&] { extras(lie); }).code, ErrorCode::kCorruptData);
  }
  EXPECT_EQ(thrown_by([&] { extras({{"schedules_method", "dualpipe"}}); }).code, ErrorCode::kUnsupported);
}

TEST(MegatronArgsTest, NoOpLayersAreNotInTheModel) {
  const auto model = [](const Members& members, const std::vector<int64_t>& noops) {
    return megatron_model(Args(with(kLlama, members)).args, noops);
  };
  EXPECT_EQ(model({{"num_layers", 8}}, {2, 7}).num_layers, 6);
  const Members experts = {{"num_layers", 8}, {"num_experts", 4}, {"moe_layer_freq", "[0,0,1,1,1,1,1,0]"}};
  EXPECT_EQ(model(experts, {0, 7}).moe_layer_freq, "([0]*1+[1]*5)");
  EXPECT_EQ(model({{"num_layers", 4}, {"num_experts", 4}}, {3}).moe_layer_freq, "1");
  EXPECT_EQ(thrown_by([&] { model({{"num_layers", 2}}, {2}); }).code, ErrorCode::kCorruptData);
  EXPECT_EQ(thrown_by([&] { model({{"num_layers", 2}}, {0, 1}); }).code, ErrorCode::kCorruptData);
}

TEST(MegatronArgsTest, SharedExpertSizeIsTheTotal) {
  const Members experts = with(kLlama, {{"num_experts", 4}, {"moe_ffn_hidden_size", INT32_MAX}});
  EXPECT_EQ(megatron_model(
                Args(with(kLlama, {{"num_experts", 4}, {"moe_ffn_hidden_size", 12}, {"n_shared_experts", 2}})).args)
                .moe_shared_expert_intermediate_size,
            24);
  EXPECT_EQ(thrown_by([&] {
              megatron_model(Args(with(experts, {{"n_shared_experts", INT32_MAX}})).args);
            }).code,
            ErrorCode::kCorruptData);
}

TEST(MegatronArgsTest, TrueVocabularyExcludesPadding) {
  // "": no decisions.
  using Matcher = ::testing::Matcher<std::vector<std::string>>;
  const auto expect = [](const Members& members, int64_t asked, int64_t rows, int tp, int64_t wanted,
                         const char* says) {
    std::vector<std::string> decisions;
    const Args args(members);
    EXPECT_EQ(true_vocab_size(args.args, asked, rows, tp, decisions), wanted);
    EXPECT_THAT(decisions, *says == '\0' ? Matcher(IsEmpty()) : Matcher(ElementsAre(HasSubstr(says))));
  };
  const Members members = {{"vocab_size", 21}, {"make_vocab_size_divisible_by", 8}};
  expect(members, 0, 32, 2, 21, "11 of 32 vocabulary rows are padding");
  expect(members, 0, 24, 1, 21, "3 of 24 vocabulary rows are padding");
  expect(members, 0, 21, 1, 21, "");
  expect(members, 0, 16, 2, 16, "args.vocab_size 21 does not fit 16 rows");  // args of another tree
  expect(members, 0, 48, 2, 48, "args.vocab_size 21 does not fit 48 rows");  // more padding than possible
  expect(members, 30, 48, 2, 30, "18 of 48 vocabulary rows are padding");
  expect(members, 48, 48, 2, 48, "");
  expect({}, 0, 48, 2, 48, "args lack the true vocabulary size: the vocabulary has 48 rows");
  expect(with(members, {{"tokenizer_type", "NullTokenizer"}}), 0, 24, 1, 22, "2 of 24 vocabulary rows are padding");
  expect(with(members, {{"make_vocab_size_divisible_by", INT32_MAX}}), 0, 3000, 1 << 20, 21,
         "2979 of 3000 vocabulary rows are padding");
  std::vector<std::string> decisions;
  const Args args(members);
  EXPECT_EQ(thrown_by([&] { true_vocab_size(args.args, 49, 48, 2, decisions); }).code, ErrorCode::kInvalidArgument);
}

TEST(MegatronArgsTest, WrittenArgsGiveTheSameModel) {
  core::TransformerConfig gpt;
  gpt.num_layers = 2;
  gpt.hidden_size = 16;
  gpt.ffn_hidden_size = 64;  // Megatron derives 0 for so small a SwiGLU
  gpt.num_attention_heads = 4;
  gpt.max_position_embeddings = 32;
  gpt.vocab_size = 1;
  core::TransformerConfig llama = gpt;
  llama.group_query_attention = llama.swiglu = llama.untie_embeddings_and_output_weights = true;
  llama.num_query_groups = 2;
  llama.normalization = "RMSNorm";
  llama.add_bias_linear = false;
  llama.position_embedding_type = "rope";
  llama.rotary_base = 500000;
  core::TransformerConfig scaled = llama;
  scaled.rope_scaling_type = "llama3";
  scaled.rope_scaling_factor = 32;
  scaled.rope_scaling_original_max_position_embeddings = 8192;
  core::TransformerConfig yarn = scaled;
  yarn.rope_scaling_type = "yarn";
  core::TransformerConfig longrope = scaled;
  longrope.rope_scaling_type = "longrope";
  longrope.rope_scaling_short_factor = "1,1.5";
  longrope.rope_scaling_long_factor = "2,3.25";
  core::TransformerConfig linear = llama;
  linear.rope_scaling_type = "linear";
  linear.rope_scaling_factor = 4;
  core::TransformerConfig without = gpt;
  without.position_embedding_type = "none";
  without.bias_gelu_fusion = false;
  core::TransformerConfig nemotron = gpt;
  nemotron.squared_relu = nemotron.apply_layernorm_1p = true;
  core::TransformerConfig smollm = llama;
  smollm.no_rope_freq = "2";
  smollm.softmax_scale = 0.25;
  core::TransformerConfig custom = llama;
  custom.residual_multiplier = 0.22;
  custom.pre_norm = false;
  custom.post_norm = true;
  custom.sliding_window = 3;
  custom.window_attn_skip_freq = "[1,0]";
  EXPECT_EQ(megatron_cannot_express(smollm), "");
  EXPECT_EQ(megatron_cannot_express(custom), "pre_norm off, residual_multiplier 0.22");
  // For Megatron 0 would be a scale, and None means no list of layers.
  for (const auto& [name, value] : megatron_args(gpt)) {
    const bool none = name == "softmax_scale" || name == "no_rope_freq" || name == "window_attn_skip_freq";
    EXPECT_EQ(std::holds_alternative<std::monostate>(value) && none, none) << name;
    EXPECT_NE(name, "residual_multiplier");
  }
  for (core::TransformerConfig* model :
       {&gpt, &llama, &scaled, &yarn, &longrope, &linear, &without, &nemotron, &smollm, &custom}) {
    model->resolve(0);
    const MegatronArgList written = megatron_args(*model);
    const std::pair<std::string, MegatronArg> fused("bias_gelu_fusion", true);
    EXPECT_EQ(std::count(written.begin(), written.end(), fused), model != &without && model != &nemotron ? 1 : 0);
    const Pickle pickle(make_pickle([&](PickleWriter& p) {
                          p.dict([&] {
                            for (const auto& [name, value] : written) {
                              p.text(name);
                              if (const auto* flag = std::get_if<bool>(&value)) p.boolean(*flag);
                              if (const auto* number = std::get_if<int64_t>(&value)) p.integer(*number);
                              if (const auto* real = std::get_if<double>(&value)) p.real(*real);
                              if (const auto* text = std::get_if<std::string>(&value)) p.text(*text);
                              if (std::holds_alternative<std::monostate>(value)) p.none();
                              if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) p.integers(*list);
                            }
                          });
                        }),
                        "args");
    EXPECT_EQ(megatron_model(MegatronArgs(pickle.root(), "args")), *model);
    EXPECT_EQ(megatron_supports_rope_scaling(*model), model != &yarn && model != &longrope);
  }
}

}  // namespace
}  // namespace ms::convert
