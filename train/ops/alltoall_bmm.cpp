#include "train/ops/alltoall_bmm.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/ops/activation.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/parts_under_way.h"
#include "train/ops/detail/typed.h"
#include "train/ops/elementwise.h"
#include "train/ops/linear.h"
#include "train/ops/matmul.h"
#include "train/ops/progress_in_kernels.h"

namespace ms::ops {
namespace {

using core::Communicator;
using core::Tensor;
using core::TensorView;
using detail::refuse_argument;

std::optional<Activation> activation_of(std::string_view act_type, std::string_view name) {
  std::string lower(act_type);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "none") return {};
  if (lower == "gelu") return Activation::kGelu;
  if (lower == "silu") return Activation::kSilu;
  if (lower == "relu") return Activation::kRelu;
  if (lower == "fastgelu") return Activation::kFastGelu;
  refuse_argument(name, ": act_type ", act_type, "; it may be None, gelu, silu, relu or fastgelu");
}

// The sizes of an exchange. Of an expert, tokens are [ep, rows, columns] on a tp rank, and [ep, C, H] all together.
struct ExpertSizes {
  int64_t experts;  // here
  int64_t ep, tp;
  int64_t rows, columns;  // that a tp rank has of the tokens of an ep rank: C and H / tp, or C / tp and H
  bool by_columns;        // shard_type 0

  int64_t all_rows() const { return by_columns ? rows : rows * tp; }           // C
  int64_t all_columns() const { return by_columns ? columns * tp : columns; }  // H
  core::Dims own_shape() const { return {experts * ep, rows, columns}; }
  core::Dims message_shape() const { return {experts, ep * rows, columns}; }
  // Whether own_shape() and message_shape() have the elements in one order.
  bool has_one_order() const { return experts == 1 || ep == 1; }
};

struct BmmArguments {
  std::string_view name;
  const TensorView& x;
  const TensorView& weight;
  int shard_type;
};

void check_operands(const BmmArguments& of) {
  if (of.x.shape().size() != 3 || of.weight.shape().size() != 3) {
    refuse_argument(of.name, ": x is ", of.x.shape(), ", weight ", of.weight.shape(), ", expected three axes each");
  }
  if (of.shard_type != 0 && of.shard_type != 1) {
    refuse_argument(of.name, ": shard_type ", of.shard_type, "; it may be 0 or 1");
  }
  detail::require_summable(of.x, std::string(of.name) + ": x");
  if (of.weight.dtype() != of.x.dtype()) {
    refuse_argument(of.name, ": x is ", core::dtype_name(of.x.dtype()), ", weight ",
                    core::dtype_name(of.weight.dtype()));
  }
}

[[noreturn]] void refuse_shapes(const BmmArguments& of, const Communicator& group_ep, const Communicator& group_tp) {
  refuse_argument(of.name, ": x is ", of.x.shape(), ", weight ", of.weight.shape(), " with ", group_ep.size(),
                  " ep and ", group_tp.size(), " tp ranks and shard_type ", of.shard_type);
}

// The bias as [experts, width] in x's dtype; `holder` owns a copy if there has to be one.
TensorView bias_of(Context& context, const BmmArguments& of, const TensorView* bias, int64_t width, Tensor& holder) {
  if (bias == nullptr) return {};
  const int64_t experts = of.weight.dim(0);
  const bool fits = bias->shape() == core::Dims{experts, width} || bias->shape() == core::Dims{experts, 1, width};
  if (!fits || (bias->dtype() != of.x.dtype() && bias->dtype() != core::DType::kFp32)) {
    refuse_argument(of.name, ": bias is ", core::dtype_name(bias->dtype()), " ", bias->shape(), ", expected [", experts,
                    ", ", width, "] in x's dtype or fp32");
  }
  if (bias->dtype() == of.x.dtype()) return bias->reshaped({experts, width});
  holder = cast(context, *bias, of.x.dtype());
  return holder.view().reshaped({experts, width});
}

// A matrix of a stack.
TensorView matrix_of(const TensorView& stack, int64_t index) {
  return stack.rows(index, index + 1).reshaped({stack.dim(1), stack.dim(2)});
}

// The tokens of one expert as the tp ranks have them, [tp, ep, rows, columns], and as the expert reads them,
// [ep, C, H]: copied from one to the other.
void move_tokens(Context& context, const ExpertSizes& sizes, const TensorView& from_ranks, const TensorView& to_expert,
                 bool back) {
  const detail::OpScope scope(context, "ms::move_tokens", from_ranks);
  const auto kernel = scope.kernel(-1, 2 * from_ranks.size_bytes());
  const int64_t bytes = sizes.columns * core::size_of(from_ranks.dtype()), rows = sizes.ep * sizes.rows;
  context.pool.parallel_for(sizes.tp * rows, detail::row_grain(sizes.columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t rank = i / rows, of_ep = i % rows / sizes.rows, row = i % sizes.rows;
      // In units of `columns`: a row of the expert's has tp of them, or one.
      const int64_t place = sizes.by_columns ? (of_ep * sizes.rows + row) * sizes.tp + rank
                                             : (of_ep * sizes.tp + rank) * sizes.rows + row;
      std::byte *there = from_ranks.bytes() + i * bytes, *here = to_expert.bytes() + place * bytes;
      std::memcpy(back ? there : here, back ? here : there, static_cast<size_t>(bytes));
    }
  });
}

// Between x [E, rows, columns], in which the experts of an ep rank follow one another, and `messages` [experts,
// ep rows, columns], in which what all ep ranks have of an expert does.
void move_experts(const ExpertSizes& sizes, const TensorView& x, const TensorView& messages, bool back) {
  const auto bytes = static_cast<size_t>(sizes.rows * sizes.columns * core::size_of(x.dtype()));
  for (int64_t expert = 0; expert < sizes.experts; ++expert) {
    for (int64_t rank = 0; rank < sizes.ep; ++rank) {
      std::byte* const outer = x.bytes() + static_cast<size_t>(rank * sizes.experts + expert) * bytes;
      std::byte* const inner = messages.bytes() + static_cast<size_t>(expert * sizes.ep + rank) * bytes;
      std::memcpy(back ? outer : inner, back ? inner : outer, bytes);
    }
  }
}

// The exchange of x, expert by expert: what each of this rank's experts reads, [ep C, H].
class TokenExchange {
 public:
  TokenExchange(Context& context, const TensorView& x, const ExpertSizes& sizes, Communicator& group_ep,
                Communicator& group_tp)
      : context_(context), sizes_(sizes), exchanges_([this, &group_tp](int64_t expert) {
          gathers_.push_back(group_tp.iallgather(matrix_of(received_, expert), matrix_of(gathered_, expert)));
        }) {
    const auto make = [&](core::Dims shape) {
      return Tensor(context.arena, x.dtype(), std::move(shape), core::MemoryTag::kAct);
    };
    const core::Dims shape = sizes.message_shape();
    TensorView messages = x.reshaped(shape);
    if (!sizes.has_one_order()) {
      sent_ = make(shape);
      messages = sent_;
      move_experts(sizes, x, messages, false);
    }
    received_ = make(shape), gathered_ = make({sizes.experts, sizes.tp * shape[1], shape[2]});
    for (int64_t expert = 0; expert < sizes.experts; ++expert) {
      exchanges_.add(group_ep.ialltoall(matrix_of(messages, expert), matrix_of(received_, expert)));
    }
  }
  TokenExchange(const TokenExchange&) = delete;
  TokenExchange& operator=(const TokenExchange&) = delete;

  // Has the tokens of the experts up to this one gathered, and of others whose tokens are on this rank.
  void start_gather(int64_t expert) {
    exchanges_.finish_through(expert);
    exchanges_.poll();
  }
  void finish_gather(int64_t expert, const TensorView& tokens) {
    gathers_[static_cast<size_t>(expert)].wait();
    move_tokens(context_, sizes_, matrix_of(gathered_, expert), tokens, false);
  }

 private:
  Context& context_;
  ExpertSizes sizes_;
  Tensor sent_, received_, gathered_;
  detail::PartsUnderWay exchanges_;  // these two behind the tensors: destroyed before them
  std::vector<core::Work> gathers_;
};

}  // namespace

AlltoallAllgatherBmmResult npu_alltoall_allgather_bmm(Context& context, const TensorView& x, const TensorView& weight,
                                                      Communicator& group_ep, Communicator& group_tp,
                                                      const AlltoallAllgatherBmmOptions& options) {
  const detail::OpScope scope(context, "ms::npu_alltoall_allgather_bmm", x, weight);
  const BmmArguments of{"npu_alltoall_allgather_bmm", x, weight, options.shard_type};
  check_operands(of);
  const std::optional<Activation> act = activation_of(options.act_type, of.name);
  const int64_t m = weight.dim(2);
  const ExpertSizes sizes{weight.dim(0), group_ep.size(), group_tp.size(), x.dim(1), x.dim(2), options.shard_type == 0};
  if (x.shape() != sizes.own_shape() || weight.dim(1) != sizes.all_columns()) refuse_shapes(of, group_ep, group_tp);
  Tensor bias_holder;
  const TensorView bias = bias_of(context, of, options.bias, m, bias_holder);
  const int64_t rows = sizes.ep * sizes.all_rows();
  const bool keeps_y3 = act && options.need_activation_feature;
  const auto make = [&](int64_t experts, int64_t columns) {
    return Tensor(context.arena, x.dtype(), {experts, rows, columns}, core::MemoryTag::kAct);
  };
  AlltoallAllgatherBmmResult result{make(sizes.experts, m), {}, {}};
  Tensor tokens = make(options.need_allgather_out ? sizes.experts : 1, sizes.all_columns());
  if (keeps_y3) result.y3 = make(sizes.experts, m);
  const ProgressInKernels progress(group_ep.endpoint());
  TokenExchange exchange(context, x, sizes, group_ep, group_tp);
  const auto multiply = [&](int64_t expert) {
    const TensorView own = matrix_of(tokens, options.need_allgather_out ? expert : 0);
    exchange.finish_gather(expert, own);
    TensorView own_bias;
    if (bias.defined()) own_bias = bias.rows(expert, expert + 1);
    const TensorView y1 = matrix_of(result.y1, expert);
    const TensorView target = keeps_y3 ? matrix_of(result.y3, expert) : y1;
    matmul_into(context, own, matrix_of(weight, expert), target,
                {.bias = bias.defined() ? &own_bias : nullptr, .activation = keeps_y3 ? std::nullopt : act});
    if (!keeps_y3) return;
    detail::with_type(y1.dtype(), [&]<class T>() {
      context.pool.parallel_for(y1.size(), detail::kGrainElements, [&](int64_t begin, int64_t end) {
        kernels::activation(*act, target.data<T>() + begin, end - begin, y1.data<T>() + begin);
      });
    });
  };
  const int64_t ahead = sizes.tp > 1 ? 1 : 0;  // the gather of the next expert is beside the product of this one
  for (int64_t expert = 0; expert < sizes.experts; ++expert) {
    exchange.start_gather(std::min(expert + ahead, sizes.experts - 1));
    multiply(expert);
  }
  if (options.need_allgather_out) result.y2 = std::move(tokens);
  return result;
}

Tensor npu_bmm_reducescatter_alltoall(Context& context, const TensorView& x, const TensorView& weight,
                                      Communicator& group_ep, Communicator& group_tp,
                                      const BmmReducescatterAlltoallOptions& options) {
  const detail::OpScope scope(context, "ms::npu_bmm_reducescatter_alltoall", x, weight);
  const BmmArguments of{"npu_bmm_reducescatter_alltoall", x, weight, options.shard_type};
  check_operands(of);
  const bool by_columns = options.shard_type == 0;
  const int64_t experts = weight.dim(0), h = weight.dim(2), ep = group_ep.size(), tp = group_tp.size();
  const bool divides = x.dim(1) % (by_columns ? ep : ep * tp) == 0 && (!by_columns || h % tp == 0);
  if (!divides || x.dim(0) != experts || x.dim(2) != weight.dim(1)) refuse_shapes(of, group_ep, group_tp);
  const ExpertSizes sizes{experts,   ep, tp, by_columns ? x.dim(1) / ep : x.dim(1) / ep / tp, by_columns ? h / tp : h,
                          by_columns};
  Tensor bias_holder;
  const TensorView bias = bias_of(context, of, options.bias, sizes.columns, bias_holder);
  const auto make = [&](core::Dims shape) {
    return Tensor(context.arena, x.dtype(), std::move(shape), core::MemoryTag::kAct);
  };
  Tensor result = make(sizes.own_shape()), product, received;
  const core::Dims shape = sizes.message_shape();
  const Tensor to_ranks = make({experts, tp * shape[1], shape[2]}), summed = make(shape);
  if (tp > 1) product = make({x.dim(1), h});
  if (!sizes.has_one_order()) received = make(shape);
  const TensorView messages = received.defined() ? received.view() : result.view().reshaped(shape);
  const ProgressInKernels progress(group_ep.endpoint());
  // A sum that has arrived is exchanged at once.
  detail::PartsUnderWay exchanges;
  detail::PartsUnderWay sums([&](int64_t expert) {
    const TensorView own = matrix_of(summed, expert);
    if (bias.defined()) add_bias_inplace(context, own, bias.rows(expert, expert + 1));
    exchanges.add(group_ep.ialltoall(own, matrix_of(messages, expert)));
  });
  for (int64_t expert = 0; expert < experts; ++expert) {
    const TensorView parts = matrix_of(to_ranks, expert);
    matmul_into(context, matrix_of(x, expert), matrix_of(weight, expert), tp > 1 ? product.view() : parts);
    if (tp > 1) move_tokens(context, sizes, parts, product, true);
    sums.add(group_tp.ireduce_scatter(parts, matrix_of(summed, expert)));
    if (expert + 1 < experts) sums.poll();
  }
  sums.finish_all();
  exchanges.finish_all();
  if (received.defined()) move_experts(sizes, result, received, true);
  return result;
}

}  // namespace ms::ops
