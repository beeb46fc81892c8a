#include "train/ops/fusion_attention.h"

#include "core/error.h"
#include "kernels/attention.h"
#include "tests/reference/attention.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::Array;
using reference::kFp32;
using reference::roundoff;

constexpr AttentionLayout kLayouts[] = {AttentionLayout::kBsh, AttentionLayout::kSbh, AttentionLayout::kBsnd,
                                        AttentionLayout::kBnsd, AttentionLayout::kTnd};
constexpr double kScale = 0.35;

// A test case, and the index of an element in each layout.
struct Call {
  AttentionLayout layout = AttentionLayout::kBsnd;
  int64_t heads = 4, groups = 2, d = 6;
  std::vector<int64_t> queries = {13, 13}, keys = {13, 13};  // of each sequence; equal except in TND
  SparseMode mode = SparseMode::kDefaultMask;
  int64_t pre = 2147483647, next = 2147483647;
  std::vector<int64_t> prefix;

  bool packed() const { return layout == AttentionLayout::kTnd; }
  static int64_t total(const std::vector<int64_t>& lengths) {
    int64_t sum = 0;
    for (const int64_t length : lengths) sum += length;
    return sum;
  }
  core::Dims shape(int64_t n, const std::vector<int64_t>& lengths) const {
    const auto b = static_cast<int64_t>(lengths.size()), s = lengths[0];
    switch (layout) {
      case AttentionLayout::kBsh:
        return {b, s, n * d};
      case AttentionLayout::kSbh:
        return {s, b, n * d};
      case AttentionLayout::kBsnd:
        return {b, s, n, d};
      case AttentionLayout::kBnsd:
        return {b, n, s, d};
      case AttentionLayout::kTnd:
        break;
    }
    return {total(lengths), n, d};
  }
  size_t at(int64_t n, const std::vector<int64_t>& lengths, size_t sequence, int64_t head, int64_t i, int64_t e) const {
    const auto b = static_cast<int64_t>(lengths.size()), batch = static_cast<int64_t>(sequence);
    int64_t first = 0;
    for (size_t before = 0; before < sequence; ++before) first += lengths[before];
    int64_t row = (first + i) * n + head;  // BSND, TND
    if (layout == AttentionLayout::kSbh) row = (i * b + batch) * n + head;
    if (layout == AttentionLayout::kBnsd) row = (batch * n + head) * lengths[0] + i;
    return static_cast<size_t>(row * d + e);
  }
  // [rows, d] of a head.
  Array head_of(const Array& x, int64_t n, const std::vector<int64_t>& lengths, size_t sequence, int64_t head) const {
    Array result;
    for (int64_t i = 0; i < lengths[sequence]; ++i) {
      for (int64_t e = 0; e < d; ++e) result.push_back(x[at(n, lengths, sequence, head, i, e)]);
    }
    return result;
  }
  double statistic(const core::TensorView& x, size_t sequence, int64_t head, int64_t i) const {
    int64_t first = 0;
    for (size_t before = 0; before < sequence; ++before) first += queries[before];
    const int64_t row =
        packed() ? (first + i) * heads + head : (static_cast<int64_t>(sequence) * heads + head) * queries[0] + i;
    return x.data<float>()[row];
  }
  static std::vector<int64_t> ends(const std::vector<int64_t>& lengths) {
    std::vector<int64_t> result;
    int64_t end = 0;
    for (const int64_t length : lengths) result.push_back(end += length);
    return result;
  }
};

// Which keys a query sees, written from torch_npu's documentation of its sparse modes.
bool sees(const Call& c, size_t sequence, size_t query, size_t key) {
  const auto i = static_cast<int64_t>(query), j = static_cast<int64_t>(key);
  const int64_t moved = i + c.keys[sequence] - c.queries[sequence];
  const auto band = [&](int64_t from) { return j >= from - c.pre && j <= from + c.next; };
  size_t first = 0, last = c.queries.size() - 1;
  while (first < last && c.queries[first] == 0) ++first;
  while (last > 0 && c.queries[last] == 0) --last;
  switch (c.mode) {
    case SparseMode::kDefaultMask:
      return band(i);
    case SparseMode::kAllMask:
      return true;
    case SparseMode::kLeftUpCausal:
      return j <= i;
    case SparseMode::kRightDownCausal:
      return j <= moved;
    case SparseMode::kBand:
      return band(moved);
    case SparseMode::kPrefix:
    case SparseMode::kPrefixCompressed:
      return j <= moved || j < c.prefix[sequence];
    case SparseMode::kRightDownCausalBand:
      return sequence == last ? band(moved) : j <= moved;
    case SparseMode::kBandLeftUpCausal:
      return sequence == first ? band(moved) : j <= i;
  }
  return false;
}

using Bias = std::function<double(size_t sequence, int64_t head, size_t query, size_t key)>;
using Hidden = std::function<bool(size_t sequence, int64_t head, size_t query, size_t key)>;

template <class T>
void expect_attention(const Call& c, FusionAttentionParams params, const Bias& bias = nullptr,
                      const Hidden& hidden = nullptr) {
  Ops ops(2);
  const auto q_ends = Call::ends(c.queries), kv_ends = Call::ends(c.keys);
  params.head_num = c.heads, params.layout = c.layout, params.scale = kScale, params.sparse_mode = c.mode;
  params.pre_tokens = c.pre, params.next_tokens = c.next, params.prefix = c.prefix;
  if (c.packed()) params.actual_seq_qlen = q_ends, params.actual_seq_kvlen = kv_ends;
  const auto q = ops.random<T>(c.shape(c.heads, c.queries), 1, 1.5F), dout = ops.random<T>(q.shape(), 2);
  const auto k = ops.random<T>(c.shape(c.groups, c.keys), 3, 1.5F), v = ops.random<T>(k.shape(), 4);
  const auto forward = fusion_attention(ops.context, q, k, v, params);
  const auto gradients = fusion_attention_backward(ops.context, dout, q, k, v, forward, params);
  ASSERT_EQ(forward.out.shape(), q.shape());
  ASSERT_EQ(gradients.dk.shape(), k.shape());

  const std::string what = core::cat("layout ", static_cast<int>(c.layout), " mode ", static_cast<int>(c.mode));
  // Bounds as in tests/kernels/attention_test.cpp: the rounding of the stored out enters dS.
  const double bound = 5e-5, of_gradient = 2e-4 + 3 * static_cast<double>(c.d) * roundoff<T>();
  const auto compare = [&](const core::TensorView& seen, int64_t n, const std::vector<int64_t>& lengths,
                           size_t sequence, int64_t head, const Array& want, double absolute, const char* of) {
    const Array got = c.head_of(array(seen), n, lengths, sequence, head);
    ASSERT_EQ(got.size(), want.size()) << of << " of " << what;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], absolute + roundoff<T>() * std::abs(want[i])) << of << " of " << what << " at " << i;
    }
  };
  int64_t pairs = 0;
  for (size_t sequence = 0; sequence < c.queries.size(); ++sequence) {
    for (size_t i = 0; i < static_cast<size_t>(c.queries[sequence]); ++i) {
      for (size_t j = 0; j < static_cast<size_t>(c.keys[sequence]); ++j) pairs += sees(c, sequence, i, j);
    }
    for (int64_t group = 0; group < c.groups; ++group) {
      const Array keys = c.head_of(array(k), c.groups, c.keys, sequence, group);
      const Array values = c.head_of(array(v), c.groups, c.keys, sequence, group);
      Array dk(keys.size()), dv(keys.size());
      const int64_t per_group = c.heads / c.groups;
      for (int64_t head = group * per_group; head < (group + 1) * per_group; ++head) {
        reference::AttentionParams want_params{kScale};
        want_params.sees = [&](size_t i, size_t j) {
          return sees(c, sequence, i, j) && !(hidden && hidden(sequence, head, i, j));
        };
        if (bias) want_params.bias = [&](size_t i, size_t j) { return bias(sequence, head, i, j); };
        if (params.dropout.probability > 0) {
          want_params.dropout = [&](size_t i, size_t j) {
            kernels::Dropout of_head = params.dropout;
            of_head.key += kernels::kHeadDropoutKeyStep * static_cast<uint64_t>(head);
            float factors[4];
            kernels::dropout_factors(of_head, static_cast<int64_t>(sequence), static_cast<int64_t>(i),
                                     static_cast<int64_t>(j / 4 * 4), 4, factors);
            return static_cast<double>(factors[j % 4]);
          };
        }
        const Array queries = c.head_of(array(q), c.heads, c.queries, sequence, head);
        const auto want = reference::attention(queries, keys, values, c.d, want_params);
        compare(forward.out, c.heads, c.queries, sequence, head, want.out, bound, "out");
        for (int64_t i = 0; i < c.queries[sequence]; ++i) {
          const double max = c.statistic(forward.softmax_max, sequence, head, i);
          const double sum = c.statistic(forward.softmax_sum, sequence, head, i);
          const double lse = want.lse[static_cast<size_t>(i)];
          if (lse == -INFINITY) {
            ASSERT_TRUE(max == -INFINITY && sum == 0) << what;
          } else {
            ASSERT_NEAR(max + std::log(sum), lse, bound) << what;
          }
        }
        const auto gradient = reference::attention_backward(c.head_of(array(dout), c.heads, c.queries, sequence, head),
                                                            queries, keys, values, c.d, want_params);
        compare(gradients.dq, c.heads, c.queries, sequence, head, gradient.dq, of_gradient, "dq");
        for (size_t i = 0; i < dk.size(); ++i) dk[i] += gradient.dk[i], dv[i] += gradient.dv[i];
      }
      compare(gradients.dk, c.groups, c.keys, sequence, group, dk, 8 * of_gradient, "dk");
      compare(gradients.dv, c.groups, c.keys, sequence, group, dv, 8 * of_gradient, "dv");
    }
  }
  EXPECT_EQ(ops.context.flops, 6 * 2 * pairs * c.d * c.heads) << what;
}

template <class T>
class FusionAttention : public ::testing::Test {};
TYPED_TEST_SUITE(FusionAttention, StorageTypes);

TYPED_TEST(FusionAttention, AgreesInEveryLayoutAndSparseMode) {
  for (const AttentionLayout layout : kLayouts) {
    for (int mode = 0; mode <= 8; ++mode) {
      Call c{layout};
      c.mode = static_cast<SparseMode>(mode);
      if (mode == 1 || (mode == 5 && c.packed()) || (mode >= 7 && !c.packed())) continue;  // refused, or needs a mask
      if (c.packed()) c.queries = {5, 0, 17, 1, 0}, c.keys = {9, 4, 11, 1, 0};
      if (mode >= 2 && !c.packed()) c.queries = {11, 11}, c.keys = {17, 17};
      if (mode == 4 || mode >= 7) c.pre = 6, c.next = 2;
      if (mode == 5 || mode == 6)
        c.prefix = c.packed() ? std::vector<int64_t>{3, 0, 11, 0, 0} : std::vector<int64_t>{3, 15};
      expect_attention<TypeParam>(c, {});
    }
    Call band{layout};
    band.pre = 4, band.next = 1;
    expect_attention<TypeParam>(band, {});
    Call later{layout};
    later.pre = -2, later.next = 5, later.mode = SparseMode::kBand;  // only keys after the query
    expect_attention<TypeParam>(later, {});
  }
}

TEST(FusionAttentionMask, AgreesInEveryShape) {
  for (const AttentionLayout layout : kLayouts) {
    for (const SparseMode mode : {SparseMode::kDefaultMask, SparseMode::kAllMask}) {
      for (const int64_t masks : {int64_t{0}, int64_t{1}, int64_t{4}}) {  // one for all, one per sequence, one per head
        Call c{layout};
        c.mode = mode, c.queries = {9, 9}, c.keys = {14, 14};
        if (c.packed() && masks != 0) continue;
        if (c.packed()) c.queries = {9, 3}, c.keys = {2, 14};
        if (mode == SparseMode::kDefaultMask) c.next = 3;
        Ops ops;
        const core::Dims shape = masks == 0 ? core::Dims{9, 14} : core::Dims{2, masks, 9, 14};
        std::vector<uint8_t> bits;
        for (const int32_t bit : test::RandomValues(5).integers(core::num_elements(shape), 0, 1)) {
          bits.push_back(static_cast<uint8_t>(bit));
        }
        std::fill_n(bits.begin() + 14, 14, uint8_t{1});  // the second query of the first mask sees nothing
        const auto mask = ops.tensor(bits, shape);
        const core::TensorView view = mask;
        FusionAttentionParams params;
        params.atten_mask = &view;
        expect_attention<float>(c, params, nullptr, [&](size_t sequence, int64_t head, size_t i, size_t j) {
          const size_t of = masks == 0 ? 0 : masks == 1 ? sequence : sequence * 4 + static_cast<size_t>(head);
          return bits[(of * 9 + i) * 14 + j] != 0;
        });
      }
    }
  }
}

TEST(FusionAttentionBias, AgreesBeforeAndAfterTheScaleInEveryShape) {
  for (const AttentionLayout layout : {AttentionLayout::kBsh, AttentionLayout::kBnsd}) {
    for (const PositionBias type : {PositionBias::kAfterScale, PositionBias::kBeforeScale}) {
      for (const core::Dims& shape : {core::Dims{2, 4, 13, 13}, core::Dims{1, 4, 13, 13}, core::Dims{2, 4, 1, 13}}) {
        Ops ops;
        const auto pse = ops.random<float>(shape, 6, 2);
        const core::TensorView view = pse;
        FusionAttentionParams params;
        params.pse = &view, params.pse_type = type;
        Call c{layout};
        c.mode = SparseMode::kLeftUpCausal;
        expect_attention<float>(c, params, [&](size_t sequence, int64_t head, size_t i, size_t j) {
          const size_t b = shape[0] == 1 ? 0 : sequence, row = shape[2] == 1 ? 0 : i;
          const double value =
              array(pse)[((b * 4 + static_cast<size_t>(head)) * static_cast<size_t>(shape[2]) + row) * 13 + j];
          return type == PositionBias::kBeforeScale ? kScale * value : value;
        });
      }
    }
  }
}

// The gradient of pse, summed over what shares an element, by the chain rule; dq, dk and dv are unchanged.
template <class T>
void expect_dpse(const Call& c, FusionAttentionParams params, const core::Dims& shape) {
  Ops ops(2);
  params.head_num = c.heads, params.layout = c.layout, params.scale = kScale, params.sparse_mode = c.mode;
  const auto pse = ops.random<float>(shape, 6, 2);
  const core::TensorView view = pse;
  params.pse = &view;
  const auto q = ops.random<T>(c.shape(c.heads, c.queries), 1, 1.5F), dout = ops.random<T>(q.shape(), 2);
  const auto k = ops.random<T>(c.shape(c.groups, c.keys), 3, 1.5F), v = ops.random<T>(k.shape(), 4);
  const auto forward = fusion_attention(ops.context, q, k, v, params);
  core::Tensor dpse;
  const auto gradients = fusion_attention_backward(ops.context, dout, q, k, v, forward, params, &dpse);
  const auto plain = fusion_attention_backward(ops.context, dout, q, k, v, forward, params);
  EXPECT_TRUE(same_bytes(gradients.dq, plain.dq) && same_bytes(gradients.dk, plain.dk) &&
              same_bytes(gradients.dv, plain.dv));
  ASSERT_EQ(dpse.shape(), shape);
  const double factor = params.pse_type == PositionBias::kBeforeScale ? kScale : 1;
  const Array values = array(pse);
  Array want(values.size());
  for (size_t sequence = 0; sequence < c.queries.size(); ++sequence) {
    for (int64_t head = 0; head < c.heads; ++head) {
      const auto at = [&](size_t i, size_t j) {
        const auto b = static_cast<size_t>(shape[0] == 1 ? 0 : sequence);
        return ((b * static_cast<size_t>(c.heads) + static_cast<size_t>(head)) * static_cast<size_t>(shape[2]) +
                (shape[2] == 1 ? 0 : i)) *
                   static_cast<size_t>(shape[3]) +
               j;
      };
      reference::AttentionParams want_params{kScale};
      want_params.sees = [&](size_t i, size_t j) { return sees(c, sequence, i, j); };
      want_params.bias = [&](size_t i, size_t j) { return factor * values[at(i, j)]; };
      if (params.dropout.probability > 0) {
        want_params.dropout = [&](size_t i, size_t j) {
          kernels::Dropout of_head = params.dropout;
          of_head.key += kernels::kHeadDropoutKeyStep * static_cast<uint64_t>(head);
          float factors[4];
          kernels::dropout_factors(of_head, static_cast<int64_t>(sequence), static_cast<int64_t>(i),
                                   static_cast<int64_t>(j / 4 * 4), 4, factors);
          return static_cast<double>(factors[j % 4]);
        };
      }
      const int64_t group = head / (c.heads / c.groups);
      const auto gradient =
          reference::attention_backward(c.head_of(array(dout), c.heads, c.queries, sequence, head),
                                        c.head_of(array(q), c.heads, c.queries, sequence, head),
                                        c.head_of(array(k), c.groups, c.keys, sequence, group),
                                        c.head_of(array(v), c.groups, c.keys, sequence, group), c.d, want_params);
      const auto keys = static_cast<size_t>(c.keys[sequence]);
      for (size_t i = 0; i < static_cast<size_t>(c.queries[sequence]); ++i) {
        for (size_t j = 0; j < keys; ++j) want[at(i, j)] += factor * gradient.dbias[i * keys + j];
      }
    }
  }
  // Error of each row that is summed into an element: of rowsum(dO * O) with the stored out, and of its probability.
  const double rows = (shape[0] == 1 ? 2 : 1) * (shape[2] == 1 ? std::sqrt(static_cast<double>(c.queries[0])) + 1 : 1);
  const double bound = rows * (roundoff<T>() * static_cast<double>(c.d) + 2e-5);
  expect_near(dpse, want, bound, 4 * kFp32, "dpse");
}

TYPED_TEST(FusionAttention, GradientOfPseAgreesInEveryShape) {
  for (const PositionBias type : {PositionBias::kAfterScale, PositionBias::kBeforeScale}) {
    for (const core::Dims& shape :
         {core::Dims{2, 4, 13, 17}, core::Dims{1, 4, 13, 17}, core::Dims{2, 4, 1, 17}, core::Dims{1, 4, 1, 17}}) {
      for (const AttentionLayout layout : {AttentionLayout::kSbh, AttentionLayout::kBnsd}) {
        for (const SparseMode mode : {SparseMode::kDefaultMask, SparseMode::kRightDownCausal}) {
          FusionAttentionParams params;
          params.pse_type = type;
          if (mode == SparseMode::kDefaultMask) params.dropout = {0.3F, 99};
          Call c{layout};
          c.mode = mode, c.keys = {17, 17};
          expect_dpse<TypeParam>(c, params, shape);
        }
      }
    }
  }
}

// Compared with central differences in double, over everything that shares an element; larger than a block of the
// kernel.
TEST(FusionAttentionBias, GradientAgreesWithCentralDifferences) {
  for (const PositionBias type : {PositionBias::kAfterScale, PositionBias::kBeforeScale}) {
    Ops ops(2);
    Call c;
    c.heads = 2, c.groups = 1, c.d = 3, c.queries = {210, 210}, c.keys = {5, 5};
    FusionAttentionParams params;
    params.head_num = 2, params.layout = c.layout, params.scale = kScale, params.pse_type = type;
    const auto pse = ops.random<float>({1, 2, 1, 5}, 6, 2);
    const core::TensorView view = pse;
    params.pse = &view;
    const auto q = ops.random<float>(c.shape(2, c.queries), 1), dout = ops.random<float>(q.shape(), 2);
    const auto k = ops.random<float>(c.shape(1, c.keys), 3), v = ops.random<float>(k.shape(), 4);
    core::Tensor dpse;
    fusion_attention_backward(ops.context, dout, q, k, v, fusion_attention(ops.context, q, k, v, params), params,
                              &dpse);
    const auto loss = [&](const Array& values) {
      double sum = 0;
      for (size_t sequence = 0; sequence < 2; ++sequence) {
        for (int64_t head = 0; head < 2; ++head) {
          reference::AttentionParams want{kScale};
          want.sees = [](size_t, size_t) { return true; };
          want.bias = [&](size_t, size_t j) {
            return (type == PositionBias::kBeforeScale ? kScale : 1) * values[static_cast<size_t>(head) * 5 + j];
          };
          const auto out = reference::attention(c.head_of(array(q), 2, c.queries, sequence, head),
                                                c.head_of(array(k), 1, c.keys, sequence, 0),
                                                c.head_of(array(v), 1, c.keys, sequence, 0), c.d, want);
          sum += reference::dot(out.out, c.head_of(array(dout), 2, c.queries, sequence, head));
        }
      }
      return sum;
    };
    expect_near(dpse, reference::numeric_gradient(loss, array(pse)), 420 * 420 * kFp32, 0, "dpse");
  }
}

TEST(FusionAttentionBias, AlibiAgreesInEveryLayout) {
  for (const AttentionLayout layout : kLayouts) {
    for (const PositionBias type : {PositionBias::kAlibi, PositionBias::kAlibiRoot}) {
      for (const bool of_sequences : {false, true}) {
        Ops ops;
        std::vector<float> slopes;
        for (int i = 0; i < (of_sequences ? 8 : 4); ++i) slopes.push_back(std::exp2(-static_cast<float>(i + 1)));
        const auto pse = ops.tensor(slopes, of_sequences ? core::Dims{2, 4} : core::Dims{4});
        const core::TensorView view = pse;
        FusionAttentionParams params;
        params.pse = &view, params.pse_type = type, params.q_start_idx = 20, params.kv_start_idx = 3;
        Call c{layout};
        if (c.packed()) c.queries = {4, 9}, c.keys = {13, 2};
        expect_attention<float>(c, params, [&](size_t sequence, int64_t head, size_t i, size_t j) {
          const double apart = std::abs(static_cast<double>(i) + 20 - static_cast<double>(j) - 3);
          const double slope = slopes[(of_sequences ? sequence * 4 : 0) + static_cast<size_t>(head)];
          return -slope * (type == PositionBias::kAlibiRoot ? std::sqrt(apart) : apart);
        });
      }
    }
  }
}

TYPED_TEST(FusionAttention, ForwardAndBackwardUseTheSameMask) {
  for (const AttentionLayout layout : kLayouts) {
    Call c{layout};
    c.mode = SparseMode::kLeftUpCausal;
    FusionAttentionParams params;
    params.dropout = {0.3F, 99};
    expect_attention<TypeParam>(c, params);
  }
}

TYPED_TEST(FusionAttention, AgreesForOtherHeadSizes) {
  for (const int64_t d : {1, 64, 80, 128, 192, 512}) {
    Call c;
    c.d = d, c.heads = 2, c.groups = 1, c.queries = {7}, c.keys = {7};
    c.mode = SparseMode::kLeftUpCausal;
    expect_attention<TypeParam>(c, {});
  }
}

// Documents packed one after the other are attended separately, bit for bit, and causal attention equals the model's
// operator.
TEST(FusionAttentionPacked, DocumentsAreAttendedSeparately) {
  Ops ops(2);
  const std::vector<int64_t> ends = {200, 200, 337};
  const auto q = ops.random<float>({337, 2, 16}, 1), k = ops.random<float>({337, 1, 16}, 2);
  FusionAttentionParams params;
  params.head_num = 2, params.layout = AttentionLayout::kTnd, params.sparse_mode = SparseMode::kLeftUpCausal;
  params.actual_seq_qlen = params.actual_seq_kvlen = ends;
  const auto packed = fusion_attention(ops.context, q, k, k, params);
  const auto document = [&](const core::TensorView& x) { return x.rows(200, 337).reshaped({137, 1, x.dim(1), 16}); };
  const auto alone = causal_attention(ops.context, document(q), document(k), document(k), {1.0});
  EXPECT_TRUE(same_bytes(packed.out.view().rows(200, 337), alone.out.view().reshaped({137, 2, 16})));
}

TEST(FusionAttentionThreads, CountChangesNoBit) {
  std::vector<Array> results;
  for (const int threads : {1, 2, 3}) {
    Ops ops(threads);
    const std::vector<int64_t> ends = {100, 250, 251, 300};
    const auto q = ops.random<float>({300, 4, 16}, 1), k = ops.random<float>({300, 2, 16}, 2);
    FusionAttentionParams params;
    params.head_num = 4, params.layout = AttentionLayout::kTnd, params.sparse_mode = SparseMode::kRightDownCausal;
    params.actual_seq_qlen = params.actual_seq_kvlen = ends;
    const auto out = fusion_attention(ops.context, q, k, k, params);
    const auto gradients = fusion_attention_backward(ops.context, q, q, k, k, out, params);
    Array all = array(out.out);
    for (const Array& part : {array(gradients.dq), array(gradients.dk)})
      all.insert(all.end(), part.begin(), part.end());
    results.push_back(all);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(FusionAttentionThreads, CountChangesNoBitOfThePseGradient) {
  for (const core::Dims& shape : {core::Dims{3, 4, 50, 50}, core::Dims{1, 4, 50, 50}, core::Dims{1, 4, 1, 50}}) {
    std::vector<Array> results;
    for (const int threads : {1, 2, 3}) {
      Ops ops(threads);
      const auto q = ops.random<float>({3, 50, 4, 16}, 1), k = ops.random<float>({3, 50, 2, 16}, 2);
      const auto pse = ops.random<float>(shape, 3);
      const core::TensorView view = pse;
      FusionAttentionParams params;
      params.head_num = 4, params.layout = AttentionLayout::kBsnd, params.pse = &view;
      core::Tensor dpse;
      fusion_attention_backward(ops.context, q, q, k, k, fusion_attention(ops.context, q, k, k, params), params, &dpse);
      results.push_back(array(dpse));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(FusionAttentionMemory, SecondCallAllocatesNothingFromTheSystem) {
  for (int attempt = 0; attempt < 20;
       ++attempt) {  // if threads allocated their own workspaces, they would overlap in some attempts
    Ops ops(3);
    const auto q = ops.random<float>({90, 2, 6, 16}, 1);
    FusionAttentionParams params;
    params.head_num = 6, params.layout = AttentionLayout::kBsnd;
    const auto both = [&] {
      const auto out = fusion_attention(ops.context, q, q, q, params);
      fusion_attention_backward(ops.context, q, q, q, q, out, params);
    };
    both();
    const int64_t blocks = ops.arena.system_allocations();
    both();
    EXPECT_EQ(ops.arena.system_allocations(), blocks);
  }
}

TEST(FusionAttentionContract, RefusesContradictoryOptions) {
  Ops ops;
  const auto q = ops.random<float>({2, 3, 8}, 1), mask = ops.tensor<uint8_t>(std::vector<uint8_t>(9), {3, 3});
  const auto slopes = ops.random<float>({2}, 1);
  const core::TensorView mask_view = mask, slopes_view = slopes;
  const auto refused = [&](const std::function<void(FusionAttentionParams&)>& change) {
    FusionAttentionParams params;
    params.head_num = 2;
    change(params);
    try {
      fusion_attention(ops.context, q, q, q, params);
    } catch (const core::Error& e) {
      return e.code() == core::ErrorCode::kInvalidArgument;
    }
    return false;
  };
  const std::vector<int64_t> one = {1}, ends = {2, 3};
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& params) { params.head_num = 3; }));
  EXPECT_TRUE(refused([](auto& params) { params.sparse_mode = SparseMode::kAllMask; }));
  EXPECT_TRUE(refused([](auto& params) { params.sparse_mode = SparseMode::kRightDownCausalBand; }));
  EXPECT_TRUE(refused([](auto& params) { params.sparse_mode = SparseMode::kPrefix; }));
  EXPECT_TRUE(refused([&](auto& params) { params.prefix = one; }));
  EXPECT_TRUE(refused([&](auto& params) { params.actual_seq_qlen = params.actual_seq_kvlen = ends; }));
  EXPECT_TRUE(refused([](auto& params) { params.layout = AttentionLayout::kTnd; }));
  EXPECT_TRUE(refused([](auto& params) { params.layout = AttentionLayout::kBsnd; }));
  EXPECT_TRUE(
      refused([&](auto& params) { params.atten_mask = &mask_view, params.sparse_mode = SparseMode::kLeftUpCausal; }));
  EXPECT_TRUE(refused([&](auto& params) { params.atten_mask = &slopes_view; }));
  EXPECT_TRUE(refused([&](auto& params) { params.pse = &slopes_view; }));
  EXPECT_TRUE(refused([](auto& params) { params.pse_type = PositionBias::kAlibi; }));
  FusionAttentionParams alibi;
  alibi.head_num = 2;
  const auto asks_for_dpse = [&] {
    core::Tensor dpse;
    fusion_attention_backward(ops.context, q, q, q, q, fusion_attention(ops.context, q, q, q, alibi), alibi, &dpse);
  };
  EXPECT_THROW(asks_for_dpse(), core::Error) << "of no pse";
  alibi.pse = &slopes_view, alibi.pse_type = PositionBias::kAlibi;
  EXPECT_THROW(asks_for_dpse(), core::Error) << "of slopes";
}

}  // namespace
}  // namespace ms::ops
