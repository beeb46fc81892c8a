// The order in which a layer with experts posts exchanges and computes: what the overlap flags move beside an exchange.
// That they change no bit: expert_bits_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "tests/support/random_values.h"
#include "tests/train/model/rank.h"
#include "train/model/moe_layer.h"

namespace ms::train {
namespace {

// Names of operators and of posted collectives, in their order.
class Steps : public ops::OperatorObserver {
 public:
  void on_operator(std::string_view name, const std::vector<core::Dims>& inputs, int64_t, int64_t, int64_t) override {
    const auto add = [&](const char* what, const core::Dims& shape) {
      steps.push_back(core::cat(what, shape.back() == kFfn ? "(fc2)" : "(fc1)"));
    };
    if (name == "grouped_matmul_dgrad") add("dX", inputs[1]);     // dy, weights
    if (name == "grouped_matmul_add_fp32") add("dW", inputs[0]);  // x, dy
    if (name == "swiglu_backward" || name == "linear" || name == "linear_wgrad") steps.emplace_back(name);
  }
  static constexpr int64_t kHidden = 16, kFfn = 12;
  std::vector<std::string> steps;
};

struct Case {
  const char* dispatcher;
  void (*set)(ModelParallelConfig&);
};

// Steps of rank 0 in the forward, and in the backward.
std::pair<std::vector<std::string>, std::vector<std::string>> steps_of(const Case& one) {
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2});
  config.model.hidden_size = Steps::kHidden;
  config.model.num_attention_heads = config.model.num_query_groups = 4;
  config.model.num_experts = 4;
  config.model.moe_ffn_hidden_size = Steps::kFfn;
  config.model.moe_shared_expert_intermediate_size = 20;
  config.parallel.expert_model_parallel_size = 2;
  config.parallel.moe_token_dispatcher_type = one.dispatcher;
  config.parallel.shared_memory = false;
  one.set(config.parallel);
  Steps steps;
  std::vector<std::string> forward;
  test::run_thread_ranks(
      2,
      [&](core::Endpoint& endpoint) {
        Rank rank(endpoint, config);
        rank.parameters->initialize(5, [](const Parameter&, const core::TensorView&) {});
        MoeLayer layer(*rank.state, *rank.parameters, 1);
        if (endpoint.rank() == 0) rank.ops.observer = &steps;
        core::Tensor x(rank.arena, core::DType::kFp32, {8, 1, Steps::kHidden}, core::MemoryTag::kTmp);
        std::ranges::copy(test::RandomValues(3).make<float>(x.size(), 1), x.data<float>());
        core::Tensor dy(rank.arena, core::DType::kFp32, x.shape(), core::MemoryTag::kTmp);
        std::ranges::copy(test::RandomValues(4).make<float>(x.size(), 1), dy.data<float>());
        const std::vector<int64_t> samples = {0};
        const SequenceContext sequence{.samples = samples};
        FeedForwardActivations saved;
        WeightGradients weights;
        if (endpoint.rank() == 0) steps.steps.clear();
        layer.forward(x, saved, {}, &x.view(), sequence);
        if (endpoint.rank() == 0) forward = std::exchange(steps.steps, {});
        layer.backward(dy, x, saved, dy, sequence, weights);
      },
      60, {}, {}, {},
      [&](int rank, core::Endpoint::Options& options) {
        if (rank != 0) return;
        options.at_operation = [&](core::Communicator&, const core::OperationCall& call) {
          if (call.elements > 16) steps.steps.push_back(core::cat("post ", core::comm_op_name(call.op)));
        };
      });
  return {forward, steps.steps};
}

size_t place(const std::vector<std::string>& steps, std::string_view name, size_t from = 0) {
  return static_cast<size_t>(std::find(steps.begin() + static_cast<std::ptrdiff_t>(from), steps.end(), name) -
                             steps.begin());
}

void nothing(ModelParallelConfig&) {}
void shared_experts(ModelParallelConfig& config) { config.moe_shared_expert_overlap = true; }
void alltoall(ModelParallelConfig& config) { config.moe_alltoall_overlap_comm = true; }
void allgather(ModelParallelConfig& config) { config.moe_allgather_overlap_comm = true; }

struct Posts {
  const char* out;   // of tokens, or their gradients, to the experts
  const char* back;  // and from them
};
constexpr Posts kAlltoall{"post alltoall", "post alltoall"}, kAllgather{"post allgather", "post reduce_scatter"};

// Backward: dX(fc2), activation, dX(fc1), the exchange, dW(fc2), dW(fc1).
TEST(ExpertOverlap, GradientsOfWeightsFollowThePostOfTheExchange) {
  for (const auto& [one, posts] :
       {std::pair{Case{"alltoall", alltoall}, kAlltoall}, std::pair{Case{"allgather", allgather}, kAllgather}}) {
    SCOPED_TRACE(one.dispatcher);
    const auto steps = steps_of(one).second;
    const std::string seen = testing::PrintToString(steps);
    const size_t dx2 = place(steps, "dX(fc2)"), activation = place(steps, "swiglu_backward", dx2),
                 dx1 = place(steps, "dX(fc1)"), post = place(steps, posts.back, dx1), dw2 = place(steps, "dW(fc2)"),
                 dw1 = place(steps, "dW(fc1)");
    EXPECT_LT(dx2, activation) << seen;
    EXPECT_LT(activation, dx1) << seen;
    EXPECT_LT(dx1, post) << seen;
    EXPECT_LT(post, dw2) << seen;
    EXPECT_LT(dw2, dw1) << seen;
    EXPECT_LT(dw1, steps.size()) << seen;
  }
}

TEST(ExpertOverlap, WithoutItGradientsOfWeightsComeFirst) {
  for (const Case& one : {Case{"alltoall", nothing}, Case{"alltoall", shared_experts}}) {
    const auto steps = steps_of(one).second;
    const size_t dw1 = place(steps, "dW(fc1)");
    EXPECT_LT(dw1, place(steps, "post alltoall", dw1)) << testing::PrintToString(steps);
  }
}

// Shared experts are computed behind the post of the exchange that brings what the others read: their first product
// in the forward, and all of their backward.
TEST(ExpertOverlap, SharedExpertsAreBesideTheExchanges) {
  for (const auto& [one, posts] :
       {std::pair{Case{"alltoall", shared_experts}, kAlltoall}, std::pair{Case{"alltoall", alltoall}, kAlltoall},
        std::pair{Case{"allgather", allgather}, kAllgather}}) {
    SCOPED_TRACE(one.dispatcher);
    const auto [forward, backward] = steps_of(one);
    const std::string seen = testing::PrintToString(forward) + testing::PrintToString(backward);
    const size_t first = place(forward, "linear"), second = place(forward, "linear", first + 1);
    EXPECT_LT(place(forward, posts.out), first) << seen;
    EXPECT_LT(first, place(forward, posts.back, first)) << "before what the experts give is on its way: " << seen;
    EXPECT_LT(place(forward, posts.back, first), second) << "while it is: " << seen;
    EXPECT_LT(place(backward, posts.out), place(backward, "linear_wgrad")) << seen;
    EXPECT_LT(place(backward, "linear_wgrad"), place(backward, "dX(fc2)")) << seen;
  }
  const auto [forward, backward] = steps_of({"alltoall", nothing});
  EXPECT_LT(place(forward, "post alltoall", place(forward, "post alltoall") + 1), place(forward, "linear"));
  EXPECT_LT(place(backward, "dW(fc1)"), place(backward, "linear_wgrad"));
}

}  // namespace
}  // namespace ms::train
