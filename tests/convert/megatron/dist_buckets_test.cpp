// Buckets of genuine checkpoints (tests/data/make_megatron_dist_kinds.py), compared with the function that defines the
// value of each of their elements; the weights use the same function.
#include "convert/megatron/dist_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "convert/torch/torch_file.h"
#include "core/error.h"
#include "core/layout/box.h"
#include "core/layout/parameter_specs.h"
#include "core/layout/tensor_cut.h"
#include "kernels/bf16.h"
#include "tests/convert/megatron/value_pattern.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::ErrorCode;
using core::TensorRole;
using test::thrown_by;
using ::testing::HasSubstr;

// Calls visit(index in the parameter) for the elements of a box, in order.
template <class Visit>
void for_each_element(const core::Dims& shape, const layout::Box& box, const Visit& visit) {
  core::Dims at(shape.size());
  for (int64_t i = 0; i < core::num_elements(box.extent); ++i) {
    int64_t rest = i;
    for (size_t axis = at.size(); axis-- > 0; rest /= box.extent[axis]) {
      at[axis] = box.offset[axis] + rest % box.extent[axis];
    }
    visit(layout::flat_index(shape, at));
  }
}

// An opened checkpoint.
struct Opened {
  explicit Opened(const std::string& folder) : reader(folder), common(folder + "/common.pt") {}

  MegatronArgs args() const { return {*common.root().find("args"), common.where()}; }
  DistBuckets buckets() const {
    core::TransformerConfig config = megatron_model(args());
    config.vocab_size = *args().integer("vocab_size");
    const BucketWeights weights = {
        [](const std::string&) { return core::DType::kBf16; },
        [&](const layout::ParameterSpec& spec, const layout::Box& box, std::byte* out) {
          for_each_element(spec.global_shape, box, [&](int64_t index) {
            const kernels::bf16 value(test::pattern(TensorRole::kParam, spec.key, index) + (spec.key == wrong ? 1 : 0));
            std::memcpy(out, &value, sizeof value);
            out += sizeof value;
          });
        }};
    return read_dist_buckets(reader, args(), config, *args().integer("padded_vocab_size"), weights);
  }

  DcpReader reader;
  TorchFile common;
  std::string wrong;  // a parameter with wrong weights
};

std::string kind_folder(const std::string& name) {
  return core::cat(MS_TEST_DATA, "/megatron_dist_kinds/", name, "/iter_0000007");
}

class DistBucketsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DistBucketsTest, EveryElementOccursOnce) {
  const Opened opened(kind_folder(GetParam()));
  const DistBuckets buckets = opened.buckets();
  std::map<std::pair<TensorRole, std::string>, std::vector<int>> seen;  // how often each element occurred
  int64_t wrong = 0;
  for (const BucketPart& part : buckets.parts) {
    const core::Dims& shape = part.spec.global_shape;
    std::vector<int>& times = seen[{part.role, part.spec.key}];
    times.resize(static_cast<size_t>(core::num_elements(shape)));
    std::vector<float> values(static_cast<size_t>(part.end - part.begin));
    ASSERT_EQ(part.tensor->dtype, SafetensorsDType::kF32);
    opened.reader.read(*part.tensor, *part.chunk, {part.first}, {part.end - part.begin},
                       reinterpret_cast<std::byte*>(values.data()));
    size_t next = 0;
    for (const layout::Box& box :
         layout::boxes_of_local_range(part.spec, buckets.padded, part.cut.size, part.cut.rank, part.begin, part.end)) {
      for_each_element(shape, box, [&](int64_t index) {
        ++times[static_cast<size_t>(index)];
        wrong += values[next++] != test::pattern(part.role, part.spec.key, index);
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  core::TransformerConfig config = megatron_model(opened.args());
  config.vocab_size = *opened.args().integer("vocab_size");
  size_t expected = 0;
  for (const layout::ParameterSpec& spec : layout::parameter_specs(config)) expected += spec.is_buffer ? 0 : 3;
  EXPECT_EQ(seen.size(), expected);
  for (const auto& [tensor, times] : seen) EXPECT_THAT(times, ::testing::Each(1)) << tensor.second;
}

INSTANTIATE_TEST_SUITE_P(Kinds, DistBucketsTest,
                         ::testing::Values("buckets_tied_pp2", "buckets_moe_ep2", "buckets_tp2_pp2"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(DistBucketsWrongTest, StateOfOtherWeightsIsRefused) {
  Opened opened(kind_folder("buckets_tp2_pp2"));
  opened.wrong = "decoder.layers.1.mlp.linear_fc2.weight";  // on the second stage
  const auto thrown = thrown_by([&] { opened.buckets(); });
  EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
  EXPECT_THAT(thrown.text, HasSubstr("does not belong to these weights: dp_group_idx_2.gbuf_idx_0: element"));
  EXPECT_THAT(thrown.text, HasSubstr("should be where decoder.layers.1.mlp.linear_fc2.weight begins"));
}

// Replaces `from` by `to` everywhere in .metadata and returns the error.
test::Thrown thrown_of_changed(const char* kind, std::string_view from, std::string_view to) {
  const test::TemporaryFolder folder;
  fs::copy(kind_folder(kind), folder.path(), fs::copy_options::recursive);
  std::string text = test::read_file(folder / ".metadata");
  EXPECT_EQ(from.size(), to.size());
  EXPECT_NE(text.find(from), std::string::npos) << from;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, to.size(), to);
  }
  test::write_file(folder / ".metadata", text);
  const Opened opened(folder.path().string());
  return thrown_by([&] { opened.buckets(); });
}

TEST(DistBucketsWrongTest, MissingBucketsAreRefused) {
  const struct {
    const char *kind, *from, *to;
    ErrorCode code;
    const char* says;
  } cases[] = {
      {"buckets_tied_pp2", "dp_group_idx_1.gbuf", "dp_group_idx_7.gbuf", ErrorCode::kCorruptData,
       "dp_group_idx_1.gbuf_idx_0 has 0 buckets [], which do not fit its weights"},
      {"buckets_tp2_pp2", "dp_group_idx_3.gbuf_idx_0.dtype_", "dp_group_idx_3.gbuf_idx_0.dtyqe_",
       ErrorCode::kCorruptData, "dp_group_idx_3.gbuf_idx_0 has 0 buckets"},
      {"buckets_moe_ep2", "chained_0.optimizer.distributed.dp_group_idx_0.gbuf_idx_0",
       "chained_0.optimizer.distributed.dp_group_idx_0.gbuf_idx_1", ErrorCode::kCorruptData,
       "dp_group_idx_0.gbuf_idx_0 has 0 buckets"},
      {"buckets_moe_ep2", "chained_1.optimizer.distributed.dp_group_idx_1",
       "chained_1.optimizer.distributed.dp_group_idx_2", ErrorCode::kCorruptData,
       "dp_group_idx_1.gbuf_idx_0 of experts has 0 buckets"},
      {"buckets_tp2_pp2", "dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_1",
       "dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_9", ErrorCode::kCorruptData,
       "dp_group_idx_0.gbuf_idx_0 has 1 buckets"},
      {"buckets_tied_pp2", ".exp_avg_sq", ".momentum_x", ErrorCode::kUnsupported,
       "bucket_idx_0.exp_avg_sq\": only Adam's state is supported; give --drop-optimizer"},
  };
  for (const auto& [kind, from, to, code, says] : cases) {
    const auto thrown = thrown_of_changed(kind, from, to);
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(says));
    EXPECT_EQ(thrown.text.find('\n'), std::string::npos);
  }
}

TEST(DistBucketsKeyTest, MatchesOnlyStateStoredByBucket) {
  for (const char* key : {"optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(a, b).bucket_idx_0.param",
                          "chained_1.optimizer.distributed.dp_group_idx_3.optimizer", "optimizer.distributed.x"}) {
    EXPECT_TRUE(is_bucket_key(key)) << key;
  }
  for (const char* key : {"", "chained_", "chained_0", "chained_0.", "optimizer.state.param.output_layer.weight",
                          "chained_0.optimizer.state.exp_avg.x", "decoder.optimizer.distributed.x"}) {
    EXPECT_FALSE(is_bucket_key(key)) << key;
  }
}

}  // namespace
}  // namespace ms::convert
