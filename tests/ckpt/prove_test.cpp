// Proofs of checkpoints in memory: every kind of fault is found and named, and nothing else is reported.
#include "ckpt/prove.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/layout/model_layout.h"
#include "tests/ckpt/state.h"
#include "tests/ckpt/whole_source.h"

namespace ms::ckpt {

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault_text(fault); }

namespace {

using core::TensorRole;
using test::WholeTensor, test::WholeTensors, test::WholeSource;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr layout::ModelLayout kOne{}, kTwo{2, 2, 1};

class Prove : public ::testing::Test {
 protected:
  explicit Prove(bool bf16 = false) : config_(model()), state_(test::trained_state(config_, bf16, true)) {}

  static core::TransformerConfig model() {
    core::TransformerConfig config = test::small_model(31);
    config.num_layers = 4;
    config.num_query_groups = 4;  // q and k have the same size
    return config;
  }
  static std::string key(int64_t layer, const std::string& name) {
    return core::cat("decoder.layers.", layer, ".", name);
  }
  WholeTensor& tensor(const std::string& name, TensorRole role = TensorRole::kParam) {
    return tampered_.at({name, role});
  }

  ProofReport proof(const layout::ModelLayout& layout = kTwo) {
    WholeSource source = test::cut(state_, config_, kOne, {}), target = test::cut(tampered_, config_, layout, {});
    return prove(source, target);
  }
  // The only fault of the proof.
  Fault fault() {
    const ProofReport report = proof();
    EXPECT_THAT(report.faults, SizeIs(1));
    for (const Fault& one : report.faults) EXPECT_THAT(one.place, HasSubstr("memory:")) << fault_text(one);
    return report.faults.empty() ? Fault() : report.faults.front();
  }

  core::TransformerConfig config_;
  WholeTensors state_, tampered_ = state_;
};

const std::string kProj = "self_attention.linear_proj.weight", kQkv = "self_attention.linear_qkv.weight",
                  kFc1 = "mlp.linear_fc1.weight", kFc2 = "mlp.linear_fc2.weight";

TEST_F(Prove, EqualStateInAnotherLayoutIsProvedWithStatistics) {
  const ProofReport report = proof();
  EXPECT_THAT(report.faults, IsEmpty());
  EXPECT_THAT(report.dropped, IsEmpty());
  EXPECT_THAT(report.notes, IsEmpty());
  EXPECT_EQ(report.tensors.size(), state_.size());
  const auto proj = std::find_if(report.tensors.begin(), report.tensors.end(), [](const ProvedTensor& t) {
    return t.key == key(1, kProj) && t.role == TensorRole::kParam;
  });
  ASSERT_NE(proj, report.tensors.end());
  EXPECT_NEAR(proj->rms, 0.02, 0.004);
  EXPECT_NEAR(proj->mean, 0, 0.004);
  EXPECT_LT(proj->min, 0);
  EXPECT_TRUE(proj->equal);
}

TEST_F(Prove, MissingTensorIsNamed) {
  tampered_.erase({key(2, kFc2), TensorRole::kParam});
  const ProofReport report = proof();
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_EQ(report.faults[0].kind, FaultKind::kMissing);
  EXPECT_EQ(report.faults[0].tensor, key(2, kFc2));
}

TEST_F(Prove, OneMissingMomentIsAFault) {
  tampered_.erase({key(2, kFc2), TensorRole::kExpAvg});
  const ProofReport report = proof();
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_EQ(report.faults[0].kind, FaultKind::kMissing);
  EXPECT_EQ(report.faults[0].role, TensorRole::kExpAvg);
}

TEST_F(Prove, MissingOptimizerStateIsListedAsDropped) {
  std::erase_if(tampered_, [](const auto& item) { return item.first.second != TensorRole::kParam; });
  const ProofReport report = proof();
  EXPECT_THAT(report.faults, IsEmpty());
  EXPECT_THAT(report.dropped, testing::Contains(HasSubstr("all of exp_avg_sq")));
}

TEST_F(Prove, TensorWithoutSourceIsExtra) {
  state_.erase({key(0, kFc2), TensorRole::kParam});
  EXPECT_EQ(fault().kind, FaultKind::kExtra);
}

TEST_F(Prove, UnwrittenShardOfZerosIsUninitialised) {
  WholeTensor& fc2 = tensor(key(1, kFc2));
  for (int64_t row = 0; row < fc2.shape[0]; ++row)
    std::memset(fc2.row(row), 0, static_cast<size_t>(fc2.row_bytes() / 2));
  const Fault found = fault();
  EXPECT_EQ(found.kind, FaultKind::kUninitialised);
  EXPECT_EQ(found.tensor, key(1, kFc2));
  EXPECT_THAT(found.text, HasSubstr("all zero"));
}

TEST_F(Prove, ConstantAndNotFiniteAreUninitialised) {
  WholeTensor& proj = tensor(key(1, kProj));
  proj.bytes = test::as_bytes(std::vector<float>(proj.bytes.size() / 4, 0.5f));
  EXPECT_THAT(fault().text, HasSubstr("constant"));
  std::vector<float> values(proj.bytes.size() / 4, 0.5f);
  values[3] = NAN;
  proj.bytes = test::as_bytes(values);
  const Fault found = fault();
  EXPECT_EQ(found.kind, FaultKind::kUninitialised);
  EXPECT_THAT(found.text, HasSubstr("1 NaN"));
}

TEST_F(Prove, RandomValuesAreUninitialisedByScaleOrCorrelation) {
  WholeTensor& proj = tensor(key(1, kProj));
  std::mt19937 random(3);
  for (const float scale : {0.02f, 3.0f}) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(proj.bytes.size() / 4);
    for (float& x : values) x = normal(random);
    proj.bytes = test::as_bytes(values);
    const Fault found = fault();
    EXPECT_EQ(found.kind, FaultKind::kUninitialised);
    EXPECT_THAT(found.text, HasSubstr(scale > 1 ? "scale" : "uncorrelated"));
  }
}

TEST_F(Prove, TransposedMatrixIsNamed) {
  for (const std::string& name : {kProj, kFc2}) {  // a square matrix, and one whose transpose has another shape
    tampered_ = state_;
    WholeTensor& matrix = tensor(key(1, name));
    const std::vector<std::byte> before = matrix.bytes;
    const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
    for (int64_t i = 0; i < rows * columns; ++i) {
      std::memcpy(matrix.bytes.data() + 4 * ((i % columns) * rows + i / columns), before.data() + 4 * i, 4);
    }
    const Fault found = fault();
    EXPECT_EQ(found.kind, FaultKind::kTransposed) << fault_text(found);
    EXPECT_EQ(found.tensor, key(1, name));
  }
}

TEST_F(Prove, TransposedQueryRowsOfQkvAreNamed) {
  WholeTensor& qkv = tensor(key(1, kQkv));
  const int64_t head = config_.kv_channels, groups = config_.num_query_groups;
  const WholeTensor before = qkv;
  const auto row_of = [&](int64_t q) { return q / head * 3 * head + q % head; };
  for (int64_t q = 0; q < groups * head; ++q) {
    for (int64_t c = 0; c < qkv.columns(); ++c) {
      std::memcpy(qkv.row(row_of(c)) + 4 * q, before.bytes.data() + row_of(q) * qkv.row_bytes() + 4 * c, 4);
    }
  }
  const Fault found = fault();
  EXPECT_EQ(found.kind, FaultKind::kTransposed);
  EXPECT_THAT(found.text, HasSubstr("q rows"));
}

TEST_F(Prove, SwappedPartsAreNamed) {
  WholeTensor& fc1 = tensor(key(3, kFc1));
  const auto half = static_cast<std::ptrdiff_t>(fc1.bytes.size() / 2);
  std::rotate(fc1.bytes.begin(), fc1.bytes.begin() + half, fc1.bytes.end());
  Fault found = fault();
  EXPECT_EQ(found.kind, FaultKind::kSwapped);
  EXPECT_THAT(found.text, HasSubstr("gate and up"));
  tampered_ = state_;
  WholeTensor& qkv = tensor(key(0, kQkv));
  const int64_t head = config_.kv_channels;
  for (int64_t group = 0; group < config_.num_query_groups; ++group) {
    std::swap_ranges(qkv.row(group * 3 * head), qkv.row(group * 3 * head + head), qkv.row(group * 3 * head + head));
  }
  found = fault();
  EXPECT_EQ(found.kind, FaultKind::kSwapped);
  EXPECT_THAT(found.text, HasSubstr("q and k"));
}

TEST_F(Prove, ShardShiftedByARowIsNamedWithItsRows) {
  WholeTensor& embedding = tensor("embedding.word_embeddings.weight");
  std::memmove(embedding.row(16), embedding.row(17), static_cast<size_t>(14 * embedding.row_bytes()));
  const Fault found = fault();
  EXPECT_EQ(found.kind, FaultKind::kShifted);
  EXPECT_THAT(found.text, HasSubstr("rows 16 to 29"));
  EXPECT_THAT(found.text, HasSubstr("1 row further down"));
}

TEST_F(Prove, RowsInAnotherOrderArePermuted) {
  WholeTensor& proj = tensor(key(1, kProj));
  for (int64_t row = 0; row < 12; ++row)
    std::swap_ranges(proj.row(row), proj.row(row) + proj.row_bytes(), proj.row(23 - row));
  EXPECT_EQ(fault().kind, FaultKind::kPermuted);
}

TEST_F(Prove, SwappedAndDuplicatedTensorsAreNamed) {
  std::swap(tensor(key(1, kProj)), tensor(key(3, kProj)));
  ProofReport report = proof();
  ASSERT_THAT(report.faults, SizeIs(2));
  for (const Fault& one : report.faults) EXPECT_EQ(one.kind, FaultKind::kSwapped);
  EXPECT_THAT(report.faults[0].text, HasSubstr(key(3, kProj)));
  tampered_ = state_;
  int64_t of_layer = 0;
  for (auto& [name, value] : tampered_) {
    if (name.first.rfind(key(2, ""), 0) != 0) continue;
    value = state_.at({key(1, name.first.substr(key(2, "").size())), name.second});
    ++of_layer;
  }
  report = proof();
  EXPECT_EQ(static_cast<int64_t>(report.faults.size()), of_layer);
  for (const Fault& one : report.faults) EXPECT_EQ(one.kind, FaultKind::kDuplicated) << fault_text(one);
  ASSERT_THAT(report.summary, SizeIs(1));
  EXPECT_EQ(report.summary[0], core::cat("layer 2 holds the values of layer 1: ", of_layer, " tensors"));
}

TEST_F(Prove, PartOfAnotherLayerIsNamed) {
  WholeTensor& fc1 = tensor(key(3, kFc1));
  const WholeTensor other = state_.at({key(1, kFc1), TensorRole::kParam});
  std::copy(other.bytes.begin() + static_cast<std::ptrdiff_t>(other.bytes.size() / 2), other.bytes.end(),
            fc1.bytes.begin() + static_cast<std::ptrdiff_t>(fc1.bytes.size() / 2));
  const Fault found = fault();
  EXPECT_EQ(found.kind, FaultKind::kHoldsAnother);
  EXPECT_THAT(found.text, HasSubstr(core::cat("its up rows hold those of ", key(1, kFc1))));
}

TEST_F(Prove, MomentsOfAnotherStepAreStale) {
  WholeTensor& moment = tensor(key(1, kFc1), TensorRole::kExpAvg);
  std::vector<float> values(moment.bytes.size() / 4);
  std::memcpy(values.data(), moment.bytes.data(), moment.bytes.size());
  for (float& x : values) x = 0.9f * x + 1e-5f;
  moment.bytes = test::as_bytes(values);
  const Fault found = fault();
  EXPECT_EQ(found.kind, FaultKind::kStale);
  EXPECT_EQ(found.role, TensorRole::kExpAvg);
}

TEST_F(Prove, OneChangedElementIsNamedWithItsPlace) {
  WholeTensor& proj = tensor(key(1, kProj));
  proj.row(5)[4 * 7 + 2] ^= std::byte{1};
  const Fault found = fault();
  EXPECT_EQ(found.kind, FaultKind::kChanged);
  EXPECT_THAT(found.text, HasSubstr("1 of 576 elements"));
  EXPECT_THAT(found.place, HasSubstr("first at [5, 7]"));
}

TEST_F(Prove, Bf16MustBeRoundedToNearestEven) {
  const auto narrow = [&](bool truncate) {
    std::erase_if(tampered_, [](const auto& item) { return item.first.second != TensorRole::kParam; });
    for (auto& [name, value] : tampered_) {
      WholeTensor half{core::DType::kBf16, value.shape, std::vector<std::byte>(value.bytes.size() / 2)};
      for (size_t i = 0; i < value.bytes.size() / 4; ++i) {
        float x = 0;
        std::memcpy(&x, value.bytes.data() + 4 * i, 4);
        kernels::bf16 rounded = kernels::bf16(x);
        if (truncate && name.first == key(1, kFc1)) std::memcpy(&rounded, value.bytes.data() + 4 * i + 2, 2);
        std::memcpy(half.bytes.data() + 2 * i, &rounded, 2);
      }
      value = half;
    }
  };
  narrow(false);
  EXPECT_THAT(proof().faults, IsEmpty());
  tampered_ = state_;
  narrow(true);
  const Fault found = fault();
  EXPECT_EQ(found.kind, FaultKind::kTruncated);
  EXPECT_EQ(found.tensor, key(1, kFc1));
}

TEST_F(Prove, OtherShapeIsAFault) {
  WholeTensor& fc1 = tensor(key(1, kFc1));
  fc1.shape = {fc1.shape[0] / 2, fc1.shape[1] * 2};
  WholeSource source = test::cut(state_, config_, kOne, {});
  ShardTable shards;
  for (const auto& [name, value] : tampered_) {
    shards.push_back(
        {name.first, name.second, value.dtype, value.shape, core::Dims(value.shape.size(), 0), value.shape});
  }
  WholeSource target(tampered_, shards, {});
  const ProofReport report = prove(source, target);
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_EQ(report.faults[0].kind, FaultKind::kShape);
}

TEST_F(Prove, HoleAndOverlapOfTheTargetAreNamed) {
  WholeSource source = test::cut(state_, config_, kOne, {});
  for (const bool twice : {true, false}) {
    ShardTable shards;
    for (const auto& [name, value] : state_) {
      core::ShardedTensor shard = {name.first, name.second, value.dtype, value.shape, core::Dims(value.shape.size(), 0),
                                   value.shape};
      const bool wrong = name.first == key(1, kFc2) && name.second == TensorRole::kParam;
      if (wrong && twice) shards.push_back(shard);
      if (wrong && !twice) --shard.local_shape[0];
      shards.push_back(shard);
    }
    WholeSource target(state_, shards, {});
    const ProofReport report = prove(source, target);
    ASSERT_THAT(report.faults, SizeIs(1));
    EXPECT_EQ(report.faults[0].kind, twice ? FaultKind::kTwice : FaultKind::kHole) << fault_text(report.faults[0]);
    EXPECT_EQ(report.faults[0].tensor, key(1, kFc2));
  }
}

TEST_F(Prove, TensorsWithoutModelAreComparedByName) {
  std::swap(tensor(key(1, kProj)), tensor(key(2, kProj)));
  config_ = model();
  WholeSource named_source(state_, test::cut(state_, config_, kOne, {}).shards(), {});
  WholeSource named_target(tampered_, test::cut(state_, config_, kTwo, {}).shards(), {});
  EXPECT_THAT(prove(named_source, named_target).faults, SizeIs(2));
}

class ProveBf16 : public Prove {
 protected:
  ProveBf16() : Prove(true) {}
};

TEST_F(ProveBf16, Fp32WeightsWithoutMastersMatchSourceMasters) {
  for (auto item = tampered_.begin(); item != tampered_.end();) {
    const auto& [name, role] = item->first;
    if (role == TensorRole::kMaster) {
      tampered_[{name, TensorRole::kParam}] = item->second;
      item = tampered_.erase(item);
    } else {
      ++item;
    }
  }
  EXPECT_THAT(proof().faults, IsEmpty());
  std::swap(tensor(key(1, kProj)), tensor(key(3, kProj)));
  EXPECT_THAT(proof().faults, SizeIs(2));
}

TEST_F(ProveBf16, Fp32WeightsWithoutMastersMayMatchSourceWeights) {
  WholeTensors widened;
  for (const auto& [name, value] : state_) {
    if (name.second != TensorRole::kParam) continue;
    WholeTensor& wide = widened[name];
    wide = {core::DType::kFp32, value.shape, std::vector<std::byte>(2 * value.bytes.size())};
    for (size_t i = 0; i < value.bytes.size(); i += 2)
      std::copy_n(value.bytes.begin() + static_cast<std::ptrdiff_t>(i), 2,
                  wide.bytes.begin() + static_cast<std::ptrdiff_t>(2 * i + 2));
  }
  tampered_ = widened;
  EXPECT_THAT(proof().faults, IsEmpty());
}

TEST_F(Prove, WeightsOnlyIgnoresOptimizerState) {
  std::swap(tensor(key(1, kProj), TensorRole::kExpAvg), tensor(key(3, kProj), TensorRole::kExpAvg));
  WholeSource source = test::cut(state_, config_, kOne, {}), target = test::cut(tampered_, config_, kTwo, {});
  ProveOptions options;
  options.weights_only = true;
  EXPECT_THAT(prove(source, target, options).faults, IsEmpty());
  EXPECT_THAT(prove(source, target).faults, SizeIs(2));
  tampered_.erase({key(1, kProj), TensorRole::kParam});
  options.left_out = {key(1, kProj)};
  WholeSource fewer = test::cut(tampered_, config_, kTwo, {});
  const ProofReport report = prove(source, fewer, options);
  EXPECT_THAT(report.faults, IsEmpty());
  EXPECT_THAT(report.dropped, testing::Contains(HasSubstr(key(1, kProj))));
}

TEST_F(ProveBf16, ThreadsDoNotChangeTheReport) {
  std::swap(tensor(key(1, kProj)), tensor(key(3, kProj)));
  WholeSource source = test::cut(state_, config_, kOne, {}), target = test::cut(tampered_, config_, kTwo, {});
  const ProofReport one = prove(source, target);
  ProveOptions options;
  options.threads = 4;
  const ProofReport four = prove(source, target, options);
  ASSERT_EQ(one.tensors.size(), four.tensors.size());
  for (size_t i = 0; i < one.tensors.size(); ++i) {
    EXPECT_EQ(one.tensors[i].logical_xxh3, four.tensors[i].logical_xxh3);
    EXPECT_EQ(one.tensors[i].rms, four.tensors[i].rms);
  }
  ASSERT_EQ(one.faults.size(), four.faults.size());
  for (size_t i = 0; i < one.faults.size(); ++i) EXPECT_EQ(fault_text(one.faults[i]), fault_text(four.faults[i]));
}

}  // namespace
}  // namespace ms::ckpt
