// Each micro-batch is attended by the core attention of its number of ranks, forward, refilled and backward.
#include "train/model/degree_attention.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace ms::train {
namespace {

// Notes its calls.
class Noted : public CoreAttention {
 public:
  Noted(std::vector<std::string>& calls, int degree) : calls_(calls), degree_(degree) {}
  void forward(ops::QkvTensors, CoreAttentionActivations&, const SequenceContext&) override { note("forward"); }
  void refill(ops::QkvTensors, CoreAttentionActivations&, const SequenceContext&) override { note("refill"); }
  ops::QkvGradients backward(core::Tensor, CoreAttentionActivations&, const SequenceContext&) override {
    note("backward");
    return {};
  }

 private:
  void note(const char* what) { calls_.push_back(core::cat(what, " of ", degree_)); }
  std::vector<std::string>& calls_;
  int degree_;
};

TEST(DegreeAttention, IsThatOfTheRanksThatShareTheSequence) {
  std::vector<std::string> calls;
  std::vector<std::unique_ptr<CoreAttention>> of_degree;
  for (const int degree : {1, 2, 4}) of_degree.push_back(std::make_unique<Noted>(calls, degree));
  DegreeAttention attention(std::move(of_degree));
  CoreAttentionActivations saved;
  for (const auto algorithm : {layout::ContextAlgorithm::kRing, layout::ContextAlgorithm::kUlysses}) {
    for (const int degree : {4, 1, 2}) {
      calls.clear();
      SequenceContext sequence;
      if (degree > 1) sequence.share = layout::SequenceShare(algorithm, 32, degree, degree - 1);
      attention.forward({}, saved, sequence);
      attention.refill({}, saved, sequence);
      attention.backward({}, saved, sequence);
      const std::string of = core::cat(" of ", degree);
      EXPECT_EQ(calls, (std::vector<std::string>{"forward" + of, "refill" + of, "backward" + of}));
    }
  }
  SequenceContext eight;
  eight.share = layout::SequenceShare(layout::ContextAlgorithm::kRing, 32, 8, 0);
  EXPECT_THROW(attention.forward({}, saved, eight), core::Error);
}

}  // namespace
}  // namespace ms::train
