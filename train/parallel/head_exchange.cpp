#include "train/parallel/head_exchange.h"

#include <utility>

#include "train/ops/head_parts.h"
#include "train/parallel/sequence_order.h"

namespace ms::train {

using core::BlockOrder;
using core::Tensor;

void HeadExchange::Exchange::finish() {
  work_.wait();
  sent_.reset();
}

HeadExchange::Exchange HeadExchange::post(Tensor x, BlockOrder order, BlockOrder received_order) {
  Exchange exchange;
  exchange.sent_ = std::move(x);
  exchange.received_ = Tensor(ops_.arena, exchange.sent_.dtype(), exchange.sent_.shape(), core::MemoryTag::kAct);
  exchange.work_ = ranks_.ialltoall(exchange.sent_, exchange.received_, order, received_order);
  return exchange;
}

HeadExchange::Exchange HeadExchange::to_heads(Tensor x, int64_t copies) {
  Tensor parts = ops::split_heads(ops_, x, ranks_.size(), copies);
  x.reset();
  return post(std::move(parts), BlockOrder::kByRank, order_);
}

HeadExchange::Exchange HeadExchange::gather(Tensor x) {
  Exchange exchange;
  core::Dims shape = x.shape();
  shape.front() *= ranks_.size();
  exchange.sent_ = std::move(x);
  exchange.received_ = Tensor(ops_.arena, exchange.sent_.dtype(), shape, core::MemoryTag::kAct);
  exchange.work_ = ranks_.iallgather(exchange.sent_, exchange.received_);
  return exchange;
}

Tensor HeadExchange::take_gathered(Exchange& exchange) {
  if (order_ == BlockOrder::kByRank) return exchange.take();
  return rows_by_position(ops_, exchange.take(), ranks_.size());
}

HeadExchange::Exchange HeadExchange::scatter(Tensor x) {
  if (order_ == BlockOrder::kFrontBack) x = rows_by_rank(ops_, std::move(x), ranks_.size());
  Exchange exchange;
  core::Dims shape = x.shape();
  shape.front() /= ranks_.size();
  exchange.sent_ = std::move(x);
  exchange.received_ = Tensor(ops_.arena, exchange.sent_.dtype(), shape, core::MemoryTag::kAct);
  exchange.work_ = ranks_.ireduce_scatter(exchange.sent_, exchange.received_);
  return exchange;
}

HeadExchange::Exchange HeadExchange::to_rows(Tensor x) { return post(std::move(x), order_, BlockOrder::kByRank); }

Tensor HeadExchange::take_rows(Exchange& exchange, int64_t copies) {
  const Tensor parts = exchange.take();
  return ops::join_heads(ops_, parts, ranks_.size(), copies);
}

}  // namespace ms::train
