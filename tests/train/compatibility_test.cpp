#include "train/compatibility.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "tests/support/thrown.h"
#include "train/config.h"

namespace ms::train {
namespace {

struct Read {
  TrainerConfig config;
  std::vector<std::string> notices;
};

Read read(const std::vector<std::string>& args) {
  Read out;
  core::ConfigFields fields = out.config.fields();
  EXPECT_TRUE(fields.parse_flags(args).empty());
  out.notices = fields.notices();
  return out;
}

TEST(Compatibility, DeprecatedSpellingsEqualCurrentOnes) {
  const auto same = [](const std::vector<std::string>& old, const std::vector<std::string>& modern) {
    Read a = read(old), b = read(modern);
    EXPECT_EQ(a.config.fields().hash(), b.config.fields().hash()) << old[0];
  };
  same({"--model-parallel-size", "2"}, {"--tensor-model-parallel-size", "2"});
  same({"--rotary-emb-base", "50000"}, {"--rotary-base", "50000"});
  same({"--layernorm-epsilon", "1e-6"}, {"--norm-epsilon", "1e-6"});
  same({"--add-rmsnorm-offset"}, {"--apply-layernorm-1p"});
  same({"--use-rotary-position-embeddings"}, {"--position-embedding-type", "rope"});
  same({"--recompute-activations"}, {"--recompute-granularity", "selective"});
  same({"--checkpoint-activations"},
       {"--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"});
  same({"--checkpoint-activations", "--recompute-num-layers", "2"},
       {"--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "2"});
}

TEST(Compatibility, FlagsWithoutEffectGiveOneNoticeEach) {
  const Read none = read({});
  EXPECT_TRUE(none.notices.empty());
  Read some = read({"--use-flash-attn", "--use-flash-attn", "--distributed-backend", "nccl", "--spec", "a", "b",
                    "--overlap-grad-reduce", "--context-parallel-size", "1", "--num-layers", "3"});
  EXPECT_EQ(some.notices.size(), 5U);
  EXPECT_EQ(some.config.model.num_layers, 3) << "a flag behind one with values is still read";
  for (const char* flag :
       {"--use-flash-attn", "--distributed-backend", "--spec", "--overlap-grad-reduce", "--context-parallel-size"}) {
    EXPECT_EQ(std::count_if(some.notices.begin(), some.notices.end(),
                            [&](const std::string& text) { return text.find(flag) != std::string::npos; }),
              1)
        << flag;
  }
}

TEST(Compatibility, UnimplementedFlagsAreRefusedByName) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"--rampup-batch-size", "4", "4", "100"},
           {"--moe-grouped-gemm"},
           {"--fp8-format", "hybrid"},
           {"--swap-attention"},
           {"--context-parallel-size", "2"},
           {"--optimizer", "sgd"},
           {"--data-impl", "lazy"},
           {"--reset-attention-mask"},
       }) {
    const test::Thrown thrown = test::thrown_by([&] { read(args); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported) << args[0];
    EXPECT_NE(thrown.text.find(args[0]), std::string::npos) << thrown.text;
  }
  EXPECT_EQ(test::code_of([] { read({"--use-flash-attentoin"}); }), core::ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ms::train
