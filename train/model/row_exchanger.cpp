#include "train/model/row_exchanger.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "train/ops/grouped_matmul.h"

namespace ms::train {
namespace {

using core::Tensor;
using core::TensorView;

int64_t sum_of_rows(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

std::vector<int64_t> elements_of(const std::vector<int64_t>& rows, const TensorView& x) {
  const int64_t width = x.shape().size() == 1 ? 1 : x.dim(1);
  std::vector<int64_t> elements = rows;
  for (int64_t& count : elements) count *= width;
  return elements;
}

void RowExchanger::plan(std::vector<int64_t> counts, MoeActivations& saved) {
  const int num_ep = ranks_.num_ep(), num_etp = ranks_.num_etp();
  const int64_t experts_each = ranks_.experts_each, first = ranks_.first_expert + ranks_.at_ep * experts_each;
  const size_t experts = counts.size();
  std::vector<int64_t> all(static_cast<size_t>(num_ep * num_etp) * experts);  // [rank, expert]
  const auto view = [](std::vector<int64_t>& of) {
    return TensorView(of.data(), core::DType::kInt64, {static_cast<int64_t>(of.size())});
  };
  ranks_.all.allgather(view(counts), view(all));
  const auto rows_of = [&](int ep, int etp, int64_t expert) {  // etp is the fastest axis of the group
    return all[static_cast<size_t>(ep * num_etp + etp) * experts + static_cast<size_t>(expert)];
  };
  const auto rows_to = [&](int ep, int etp, int64_t first_expert) {
    int64_t rows = 0;
    for (int64_t expert = first_expert; expert < first_expert + experts_each; ++expert)
      rows += rows_of(ep, etp, expert);
    return rows;
  };
  std::vector<int64_t> totals(experts);
  for (size_t i = 0; i < all.size(); ++i) totals[i % experts] += all[i];
  saved.busiest = *std::ranges::max_element(totals);
  saved.all_rows = sum_of_rows(totals);
  RowExchange& exchange = saved.exchange = {};
  for (int ep = 0; ep < num_ep; ++ep) {
    exchange.sent.push_back(rows_to(ranks_.at_ep, ranks_.at_etp, ranks_.first_expert + ep * experts_each));
    exchange.received.push_back(rows_to(ep, ranks_.at_etp, first));
  }
  std::vector<int64_t> sizes(static_cast<size_t>(experts_each));  // rows of each expert here
  for (int etp = 0; etp < num_etp; ++etp) {
    int64_t shared = 0;
    for (int ep = 0; ep < num_ep; ++ep) {
      for (int64_t e = 0; e < experts_each; ++e) {
        const int64_t rows = rows_of(ep, etp, first + e);
        shared += rows;
        sizes[static_cast<size_t>(e)] += rows;
      }
    }
    exchange.shared.push_back(shared);
  }
  saved.ends = ops::group_ends(sizes);
  std::vector<int64_t> next(sizes.size());  // free place of each expert
  for (size_t e = 1; e < next.size(); ++e) next[e] = saved.ends[e - 1];
  int64_t from = 0;
  for (int etp = 0; etp < num_etp; ++etp) {  // the order in which rows arrive
    for (int ep = 0; ep < num_ep; ++ep) {
      for (int64_t e = 0; e < experts_each; ++e) {
        const int64_t rows = rows_of(ep, etp, first + e);
        exchange.blocks.push_back({from, next[static_cast<size_t>(e)], rows});
        from += rows;
        next[static_cast<size_t>(e)] += rows;
      }
    }
  }
}

Tensor RowExchanger::rows_like(const TensorView& x, int64_t rows) {
  core::Dims shape = x.shape();
  shape[0] = rows;
  return Tensor(ops_.arena, x.dtype(), shape, core::MemoryTag::kAct);
}

core::Work RowExchanger::post_alltoall(const TensorView& x, const std::vector<int64_t>& from, const TensorView& y,
                                       const std::vector<int64_t>& to) {
  return ranks_.ep->ialltoallv(x, elements_of(from, x), y, elements_of(to, x));
}

void RowExchanger::share(TensorUnderWay& way, Tensor x, const RowExchange& exchange) {
  Tensor shared = rows_like(x, sum_of_rows(exchange.shared));
  core::Work work = ranks_.etp->iallgatherv(x, elements_of(exchange.shared, x), shared);
  way.post(std::move(x), std::move(shared), std::move(work));
}

void RowExchanger::send_back(TensorUnderWay& way, Tensor x, const RowExchange& exchange) {
  Tensor sent = rows_like(x, sum_of_rows(exchange.sent));
  core::Work work = post_alltoall(x, exchange.received, sent, exchange.sent);
  way.post(std::move(x), std::move(sent), std::move(work));
}

void RowExchanger::post_to_experts(TensorUnderWay& way, Tensor x, const RowExchange& exchange) {
  if (ranks_.num_ep() == 1) return share(way, std::move(x), exchange);
  Tensor received = rows_like(x, sum_of_rows(exchange.received));
  core::Work work = post_alltoall(x, exchange.sent, received, exchange.received);
  way.post(std::move(x), std::move(received), std::move(work));
}

Tensor RowExchanger::take_at_experts(TensorUnderWay& way, const RowExchange& exchange) {
  Tensor x = way.take();
  if (ranks_.num_ep() > 1 && ranks_.num_etp() > 1) {
    share(way, std::move(x), exchange);
    x = way.take();
  }
  return ops::move_row_blocks(ops_, std::move(x), exchange.blocks);
}

void RowExchanger::post_from_experts(TensorUnderWay& way, Tensor x, const RowExchange& exchange) {
  x = ops::move_row_blocks(ops_, std::move(x), exchange.blocks, /*back=*/true);
  if (ranks_.num_etp() == 1) return send_back(way, std::move(x), exchange);
  Tensor own = rows_like(x, exchange.shared[static_cast<size_t>(ranks_.at_etp)]);
  core::Work work = ranks_.etp->ireduce_scatterv(x, elements_of(exchange.shared, x), own);
  way.post(std::move(x), std::move(own), std::move(work));
}

Tensor RowExchanger::take_from_experts(TensorUnderWay& way, const RowExchange& exchange) {
  Tensor x = way.take();
  if (ranks_.num_ep() == 1 || ranks_.num_etp() == 1) return x;
  send_back(way, std::move(x), exchange);
  return way.take();
}

}  // namespace ms::train
