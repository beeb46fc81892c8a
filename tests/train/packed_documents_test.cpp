// Documents that share a sample: as if each were alone, in the loss, the gradients, and the work that is counted.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/support/random_values.h"
#include "tests/support/thread_comm.h"
#include "tests/train/model/rank.h"
#include "train/data/indexed_dataset.h"
#include "train/loop/step.h"

namespace ms::train {
namespace {

constexpr int32_t kEod = 256;

// Samples [seq + 1] that lie one behind the other in `tokens`, of documents of these lengths.
class Text : public SampleSource {
 public:
  Text(std::vector<int32_t> tokens, int64_t seq, std::vector<int64_t> lengths = {})
      : tokens_(std::move(tokens)), seq_(seq), lengths_(std::move(lengths)) {}
  int64_t size() const override { return static_cast<int64_t>(tokens_.size()) / seq_; }
  int64_t seq_length() const override { return seq_; }
  void sample(int64_t index, std::span<int32_t> out) const override {
    std::copy_n(tokens_.begin() + index * seq_, out.size(), out.begin());
  }

  void document_ends(int64_t index, std::vector<int64_t>& ends) const override {
    ends.clear();
    int64_t end = -index * seq_;
    for (const int64_t length : lengths_) {
      end += length;
      if (end > 0 && end <= seq_) ends.push_back(end);
    }
  }

 private:
  std::vector<int32_t> tokens_;
  int64_t seq_;
  std::vector<int64_t> lengths_;
};

enum class Ends : uint8_t { kByToken, kOfData };

// Documents of these lengths and one token more, the last label. kByToken: each ends with kEod; kOfData: tokens do not
// say where, and one within the first looks as if it ended.
std::vector<int32_t> text(const std::vector<int64_t>& lengths, Ends kind) {
  std::vector<int32_t> tokens;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>(tokens.size() * 37 % 256));
    if (kind == Ends::kByToken) tokens.back() = kEod;
  }
  if (kind == Ends::kOfData) tokens[2] = kEod;
  tokens.push_back(11);
  return tokens;
}

struct Gradients {
  double loss = 0;
  std::map<std::string, std::vector<float>> of;  // parameter -> gradient of the sum of the losses
};

Gradients gradients_of(const TrainerConfig& config, const std::vector<Microbatch>& batch) {
  Gradients result;
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    GptStage stage(*rank.state, *rank.parameters);
    StepRunner runner(*rank.state, stage);
    rank.parameters->initialize(5, [](const Parameter&, const core::TensorView&) {});
    rank.parameters->zero_grads();
    result.loss = runner.train(batch, 1).loss;
    for (Parameter& parameter : rank.parameters->all()) {
      const auto values = parameter.main_grad.elements<float>();
      result.of[parameter.spec.key].assign(values.begin(), values.end());
    }
  });
  return result;
}

using OneByOne = testing::TestWithParam<Ends>;

TEST_P(OneByOne, DocumentsGiveThatLossAndGradients) {
  const std::vector<int64_t> lengths = {5, 1, 18, 40, 7, 57};  // of two samples of 64
  const std::vector<int32_t> tokens = text(lengths, GetParam());
  const DocumentRules by_eod{.eod = kEod, .reset_attention_mask = true, .reset_position_ids = true};
  const DocumentRules rules =
      GetParam() == Ends::kByToken ? by_eod : DocumentRules{.eod = kEod, .inter_document_masking = true};
  const std::vector<std::function<void(TrainerConfig&)>> models = {
      [](TrainerConfig&) {},
      [](TrainerConfig& config) { config.model.sliding_window = 9; },
      [](TrainerConfig& config) {
        config.model.position_embedding_type = "learned_absolute";
        config.model.max_position_embeddings = 64;
        config.model.normalization = "LayerNorm";
      },
      [](TrainerConfig& config) { config.training.optimization_level = 0; },
      [](TrainerConfig& config) {
        config.training.recompute_granularity = "full";
        config.training.recompute_method = "uniform";
        config.training.recompute_num_layers = 2;
      },
      [](TrainerConfig& config) {
        config.model.num_experts = 4;
        config.model.moe_router_topk = 2;
      }};
  for (size_t i = 0; i < models.size(); ++i) {
    SCOPED_TRACE(i);
    const test::TemporaryFolder folder;
    TrainerConfig config = test::tiny_config(folder.path());
    config.training.seq_length = 64;
    config.training.global_batch_size = 2;
    config.training.calculate_per_token_loss = true;
    models[i](config);
    std::vector<Microbatch> packed(1), alone(lengths.size());
    packed[0].samples = {0, 1};
    const Text source(tokens, 64, lengths);
    read_microbatch(source, rules, 257, packed[0]);
    int64_t begin = 0;
    for (size_t document = 0; document < lengths.size(); ++document) {
      const std::vector<int32_t> part(tokens.begin() + begin, tokens.begin() + begin + lengths[document] + 1);
      alone[document].samples = {0};
      read_microbatch(Text(part, lengths[document]), {}, 257, alone[document]);
      begin += lengths[document];
    }
    const Gradients together = gradients_of(config, packed), apart = gradients_of(config, alone);
    EXPECT_NEAR(together.loss, apart.loss, 1e-6 * apart.loss);
    ASSERT_EQ(together.of.size(), apart.of.size());
    EXPECT_LT(test::largest_distance(together.of, apart.of), 1e-6);
    // The test can fail: documents that see each other give something else.
    const DocumentRules others[] = {{}, by_eod};
    for (const DocumentRules& other : std::span(others, GetParam() == Ends::kByToken ? 1 : 2)) {
      read_microbatch(source, other, 257, packed[0]);
      EXPECT_GT(test::largest_distance(gradients_of(config, packed).of, apart.of), 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PackedDocuments, OneByOne, testing::Values(Ends::kByToken, Ends::kOfData),
                         [](const auto& of) { return of.param == Ends::kByToken ? "EndWithEod" : "AreOfTheDataSet"; });

class PackedRuns : public testing::Test {
 protected:
  static RunSummary run(const std::filesystem::path& folder, const test::TinyLayout& layout, bool resets,
                        const std::function<void(TrainerConfig&)>& change = {}) {
    TrainerConfig config = test::tiny_config(folder, layout);
    config.training.seq_length = 64;  // of documents of 61 tokens
    config.training.train_iters = 20;
    config.training.reset_attention_mask = config.training.reset_position_ids = resets;
    if (change) change(config);
    return test::run_on_threads(config, layout.ranks());
  }

  // --dataloader-inter-document-masking instead of the end-of-document tokens.
  static void mask_documents_of_data(TrainerConfig& config) {
    config.training.reset_attention_mask = config.training.reset_position_ids = false;
    config.training.dataloader_inter_document_masking = true;
  }

  // Documents without a token that ends them, of which a sample has several.
  static void read_bare_documents(TrainerConfig& config, const std::filesystem::path& folder) {
    const std::string prefix = (folder / "bare").string();
    if (!std::filesystem::exists(idx_path(prefix))) {
      IndexedDatasetBuilder builder(prefix, token_type_for_vocab(257));
      for (int64_t d = 0; d < 200; ++d) {
        std::vector<int32_t> tokens;
        for (int64_t i = 0; i < 1 + d * 7 % 43; ++i) tokens.push_back(static_cast<int32_t>((d * 31 + i * i * 5) % 256));
        builder.add_document(tokens);
      }
      builder.finalize();
    }
    config.data.data_path = {prefix};
    config.data.data_cache_path = (folder / "bare_cache").string();
  }
};

TEST_F(PackedRuns, AgreeWithOneRankInEveryLayout) {
  test::TemporaryFolder folder;
  const RunSummary one = run(folder.path(), {}, true), crossing = run(folder.path(), {}, false);
  EXPECT_NE(one.steps.back().loss, crossing.steps.back().loss);
  const std::vector<test::TinyLayout> layouts = {{1, 2, 1, false, false, 2}, {1, 2, 1, false, false, 1, "zb-v"},
                                                 {2, 1, 1, false, true},     {2, 2, 1, false, true},
                                                 {1, 1, 2, true, false},     {2, 2, 2, true, true}};
  for (const test::TinyLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    const RunSummary seen = run(folder.path(), layout, true);
    ASSERT_EQ(seen.steps.size(), one.steps.size());
    const bool same_bits = layout.tp == 1 && layout.dp == 1;
    for (size_t i = 0; i < one.steps.size(); ++i) {
      const double tolerance = same_bits ? 0 : 1e-5 * one.steps[i].loss;
      EXPECT_NEAR(seen.steps[i].loss, one.steps[i].loss, tolerance) << "step " << i + 1;
    }
  }
}

// Where each document ends with the token, both ways of telling are one, bit for bit.
TEST_F(PackedRuns, OfTheDataSetAreThoseOfItsEodTokens) {
  test::TemporaryFolder folder;
  for (const test::TinyLayout& layout :
       {test::TinyLayout{}, test::TinyLayout{1, 2, 1, false, false, 2}, test::TinyLayout{2, 1, 2, true, true}}) {
    SCOPED_TRACE(layout.name());
    const RunSummary by_eod = run(folder.path(), layout, true);
    const RunSummary of_data = run(folder.path(), layout, true, mask_documents_of_data);
    // Flags that it replaces change nothing.
    const RunSummary both = run(folder.path(), layout, true, [](TrainerConfig& config) {
      config.training.dataloader_inter_document_masking = true;
    });
    for (size_t i = 0; i < by_eod.steps.size(); ++i) {
      EXPECT_EQ(of_data.steps[i].loss, by_eod.steps[i].loss) << "step " << i + 1;
      EXPECT_EQ(of_data.steps[i].grad_norm, by_eod.steps[i].grad_norm) << "step " << i + 1;
      EXPECT_EQ(both.steps[i].loss, by_eod.steps[i].loss) << "step " << i + 1;
      EXPECT_EQ(of_data.steps[i].executed_flops, by_eod.steps[i].executed_flops);
    }
  }
}

TEST_F(PackedRuns, WithoutEodTokensAgreeWithOneRankInEveryLayout) {
  test::TemporaryFolder folder;
  const auto of_data = [&](const test::TinyLayout& layout, bool masks,
                           const std::function<void(TrainerConfig&)>& change = {}) {
    return run(folder.path(), layout, false, [&](TrainerConfig& config) {
      read_bare_documents(config, folder.path());
      config.training.train_iters = 6;
      config.training.micro_batch_size = 2;
      config.training.dataloader_inter_document_masking = masks;
      if (change) change(config);
    });
  };
  const RunSummary one = of_data({}, true), crossing = of_data({}, false);
  EXPECT_GT(std::abs(one.steps.back().loss / crossing.steps.back().loss - 1), 1e-4);
  const std::vector<test::TinyLayout> layouts = {{1, 2, 1, false, false, 2},
                                                 {1, 2, 1, false, false, 1, "zb-v"},
                                                 {2, 2, 1, false, true},
                                                 {1, 1, 2, 3},
                                                 {.cp = 2, .context = "a2a"},
                                                 {.cp = 2, .context = "all_gather"},
                                                 {.cp = 4, .context = "p2p"},
                                                 {.cp = 4, .context = "p2p w2"},
                                                 {.cp = 4, .context = "a2a+p2p"},
                                                 {.cp = 4, .context = "adaptive"},
                                                 {.cp = 4, .context = "hybrid_adaptive"},
                                                 {.tp = 2, .pp = 2, .sp = true, .cp = 2, .context = "p2p"}};
  for (const test::TinyLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    const RunSummary seen = of_data(layout, true);
    ASSERT_EQ(seen.steps.size(), one.steps.size());
    for (size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_NEAR(seen.steps[i].loss, one.steps[i].loss, 1e-5 * one.steps[i].loss) << "step " << i + 1;
      EXPECT_NEAR(seen.steps[i].grad_norm, one.steps[i].grad_norm, 1e-4 * one.steps[i].grad_norm) << "step " << i + 1;
    }
  }
  // Dealt by what their documents cost.
  const auto deals = [](TrainerConfig& config) {
    config.training.calculate_per_token_loss = true;
    config.parallel.hybrid_context_parallel = true;
    config.parallel.max_seqlen_per_dp_cp_rank = 64;
  };
  const RunSummary dealt = of_data({1, 1, 2}, true, deals);
  for (size_t i = 0; i < one.steps.size(); ++i) {
    ASSERT_TRUE(dealt.steps[i].dealt);
    EXPECT_LE(dealt.steps[i].dealt->slowest, dealt.steps[i].dealt->slowest_in_order);
    EXPECT_NEAR(dealt.steps[i].loss, one.steps[i].loss, 1e-5 * one.steps[i].loss) << "step " << i + 1;
  }
}

TEST_F(PackedRuns, OfMockDataAndInValidationAreMasked) {
  test::TemporaryFolder folder;
  const auto evaluated = [&](const test::TinyLayout& layout, bool masks, bool is_mock) {
    return run(folder.path(), layout, false,
               [&](TrainerConfig& config) {
                 read_bare_documents(config, folder.path());
                 if (is_mock) config.data.mock_data = true, config.data.data_path.clear();
                 config.data.split = "60,40,0";
                 config.training.train_iters = 1;
                 config.training.eval_iters = config.training.eval_interval = 1;
                 config.training.seq_length = is_mock ? 1024 : 64;
                 config.model.num_layers = 2;
                 config.training.global_batch_size = 4;
                 config.training.dataloader_inter_document_masking = masks;
               })
        .validation_loss;
  };
  for (const bool is_mock : {false, true}) {
    SCOPED_TRACE(is_mock ? "mock data" : "validation");
    const double masked = evaluated({}, true, is_mock);
    EXPECT_NE(masked, evaluated({}, false, is_mock));
    EXPECT_NEAR(evaluated({1, 1, 2}, true, is_mock), masked, 1e-5 * masked);
  }
}

TEST_F(PackedRuns, OfOneDocumentASampleAreAsWithoutTheFlag) {
  test::TemporaryFolder folder;
  const auto with = [&](bool masks) {
    return run(folder.path(), {}, false, [&](TrainerConfig& config) {
      config.training.train_iters = 3;
      config.parallel.variable_seq_lengths = true;
      config.training.dataloader_inter_document_masking = masks;
    });
  };
  const RunSummary masked = with(true), plain = with(false);
  for (size_t i = 0; i < plain.steps.size(); ++i) EXPECT_EQ(masked.steps[i].loss, plain.steps[i].loss);
}

// What the model needs is what is executed, where nothing is recomputed.
TEST_F(PackedRuns, CountTheFlopsOfVisibleScores) {
  test::TemporaryFolder folder;
  for (const test::TinyLayout& layout : {test::TinyLayout{}, test::TinyLayout{2, 2, 2, true, true}}) {
    const StepMetrics apart = run(folder.path(), layout, true).steps.back();
    const StepMetrics crossing = run(folder.path(), layout, false).steps.back();
    EXPECT_NEAR(apart.tflops_per_rank, apart.hardware_tflops_per_rank, 1e-9 * apart.tflops_per_rank) << layout.name();
    EXPECT_LT(apart.executed_flops, crossing.executed_flops);
    const StepMetrics of_data = run(folder.path(), layout, true, mask_documents_of_data).steps.back();
    EXPECT_NEAR(of_data.tflops_per_rank, of_data.hardware_tflops_per_rank, 1e-9 * of_data.tflops_per_rank);
    EXPECT_NEAR(crossing.tflops_per_rank, crossing.hardware_tflops_per_rank, 1e-9 * crossing.tflops_per_rank);
  }
}

}  // namespace
}  // namespace ms::train
