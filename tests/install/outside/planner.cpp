// Plans the move of a matrix that two ranks hold by rows to two ranks that hold it by columns: four quarters.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "ckpt/plan.h"

int main() {
  using ms::core::ShardedTensor;
  const auto shard = [](ms::core::Dims offset, ms::core::Dims shape) {
    ShardedTensor tensor;
    tensor.key = "matrix";
    tensor.global_shape = {4, 6};
    tensor.global_offset = std::move(offset);
    tensor.local_shape = std::move(shape);
    return tensor;
  };
  const std::vector<ShardedTensor> by_rows = {shard({0, 0}, {2, 6}), shard({2, 0}, {2, 6})};
  const std::vector<ShardedTensor> by_columns = {shard({0, 0}, {4, 3}), shard({0, 3}, {4, 3})};

  int copies = 0;
  int64_t elements = 0;
  ms::ckpt::plan_copies(by_rows, by_columns, [&](const ms::ckpt::CopyRegion& region) {
    ++copies;
    elements += ms::core::num_elements(region.extent);
  });
  std::printf("planner: %d copies of %lld elements\n", copies, static_cast<long long>(elements));
  return copies == 4 && elements == 24 ? 0 : 1;
}
