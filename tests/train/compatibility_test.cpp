#include "train/compatibility.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

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
  same({"--use-custom-fsdp"}, {"--use-megatron-fsdp"});
  same({"--layernorm-epsilon", "1e-6"}, {"--norm-epsilon", "1e-6"});
  same({"--add-rmsnorm-offset"}, {"--apply-layernorm-1p"});
  same({"--use-rotary-position-embeddings"}, {"--position-embedding-type", "rope"});
  same({"--recompute-activations"}, {"--recompute-granularity", "selective"});
  same({"--checkpoint-activations"},
       {"--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"});
  same({"--use-glm-rope"}, {"--rotary-interleaved"});
  same({"--original-max-position-embeddings", "512"}, {"--rope-scaling-original-max-position-embeddings", "512"});
  same({"--rotary-seq-len-interpolation-factor", "4"}, {"--rope-scaling-type", "linear", "--rope-scaling-factor", "4"});
  same({"--rotary-seq-len-interpolation-factor=4"}, {"--rope-scaling-type", "linear", "--rope-scaling-factor", "4"});
  same({"--checkpoint-activations", "--recompute-num-layers", "2"},
       {"--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "2"});
}

// Megatron's --use-rope-scaling is Llama 3's scaling, whose factor is a flag of its own.
TEST(Compatibility, DefaultsOfAFlagGiveWayToTheUsersFlagsOnEitherSide) {
  const std::vector<std::string> context = {"--rope-scaling-original-max-position-embeddings", "8192"};
  const auto hash = [&](std::vector<std::string> args, bool with_context) {
    if (with_context) args.insert(args.end(), context.begin(), context.end());
    return read(args).config.fields().hash();
  };
  EXPECT_EQ(hash({"--use-rope-scaling"}, false),
            hash({"--rope-scaling-type", "llama3", "--rope-scaling-factor", "8"}, true));
  const std::string by_32 = hash({"--rope-scaling-type", "llama3", "--rope-scaling-factor", "32"}, true);
  EXPECT_EQ(hash({"--use-rope-scaling", "--rope-scaling-factor", "32"}, false), by_32);
  EXPECT_EQ(hash({"--rope-scaling-factor", "32", "--use-rope-scaling"}, false), by_32);
}

TEST(Compatibility, TheTableOfFlagsNamesEveryKind) {
  TrainerConfig config;
  const nlohmann::json flags = config.fields().flags();
  const auto entry = [&](const std::string& flag) {
    for (const auto& one : flags) {
      if (one["flag"] == flag) return one;
    }
    ADD_FAILURE() << flag;
    return nlohmann::json();
  };
  EXPECT_EQ(entry("--lr")["kind"], "field");
  EXPECT_EQ(entry("--lr")["type"], "number");
  EXPECT_EQ(entry("--no-bf16")["type"], "switch");
  EXPECT_TRUE(entry("--data-path")["max_values"].is_null());
  EXPECT_EQ(entry("--rotary-emb-base")["field"], "rotary_base");
  EXPECT_EQ(entry("--rotary-seq-len-interpolation-factor")["max_values"], 1);
  EXPECT_EQ(entry("--use-persistent-ckpt-worker")["kind"], "notice");
  EXPECT_EQ(entry("--data-impl")["only"], nlohmann::json::array({"mmap", "infer"}));
  EXPECT_EQ(entry("--fp8-format")["kind"], "refused");
  EXPECT_EQ(entry("--smart-swap")["kind"], "refused");
  EXPECT_NE(entry("--fsdp2-config-path")["reason"].get<std::string>().find("--use-torch-fsdp2"), std::string::npos);
  EXPECT_EQ(entry("--use-torch-fsdp2")["kind"], "field");
  std::set<std::string> names;
  for (const auto& one : flags) EXPECT_TRUE(names.insert(one["flag"]).second) << one["flag"] << " twice";
}

TEST(Compatibility, FlagsWithoutEffectGiveOneNoticeEach) {
  const Read none = read({});
  EXPECT_TRUE(none.notices.empty());
  Read some = read({"--use-fusion-attn-v2", "--use-fusion-attn-v2", "--distributed-backend", "nccl", "--spec", "a", "b",
                    "--delay-grad-reduce", "--shape-order", "SBH", "--num-layers", "3"});
  EXPECT_EQ(some.notices.size(), 5U);
  EXPECT_EQ(some.config.model.num_layers, 3) << "a flag behind one with values is still read";
  for (const char* flag :
       {"--use-fusion-attn-v2", "--distributed-backend", "--spec", "--delay-grad-reduce", "--shape-order"}) {
    EXPECT_EQ(std::count_if(some.notices.begin(), some.notices.end(),
                            [&](const std::string& text) { return text.find(flag) != std::string::npos; }),
              1)
        << flag;
  }
}

TEST(Compatibility, UnimplementedFlagsAreRefusedByName) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"--enable-dsa-indexer"},
           {"--moe-per-layer-logging"},
           {"--moe-extended-tp"},
           {"--moe-router-padding-for-fp8"},
           {"--fp8-format", "hybrid"},
           {"--rerun-mode", "report_stats"},
           {"--smart-swap"},
           {"--data-impl", "lazy"},
       }) {
    const test::Thrown thrown = test::thrown_by([&] { read(args); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported) << args[0];
    EXPECT_NE(thrown.text.find(args[0]), std::string::npos) << thrown.text;
  }
  EXPECT_EQ(test::code_of([] { read({"--use-flash-attentoin"}); }), core::ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ms::train
