#include "kernels/reduce.h"

#include "core/comm/detail/operation.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "kernels/bf16.h"
#include "kernels/elementwise.h"
#include "kernels/fp16.h"

namespace ms::core::detail {
namespace {

// Elements from which the threads of a pool are worth waking.
constexpr int64_t kParallelElems = int64_t{1} << 16;
constexpr int64_t kGrain = 1024;

kernels::Reduction reduction_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return kernels::Reduction::kSum;
    case ReduceOp::kMean:
      return kernels::Reduction::kMean;
    case ReduceOp::kMax:
      return kernels::Reduction::kMax;
    case ReduceOp::kMin:
      return kernels::Reduction::kMin;
  }
  return kernels::Reduction::kSum;
}

// part(begin, end) for ranges that together are [0, count).
template <class Part>
void in_parallel(int64_t count, ThreadPool* pool, const Part& part) {
  if (pool != nullptr && count >= kParallelElems) {
    pool->parallel_for(count, kGrain, part);
  } else if (count > 0) {
    part(0, count);
  }
}

template <class T>
void reduce_typed(const std::vector<const std::byte*>& inputs, std::byte* output, int64_t count, ReduceOp op,
                  ThreadPool* pool) {
  in_parallel(count, pool, [&](int64_t begin, int64_t end) {
    std::vector<const T*> typed;
    for (const std::byte* input : inputs) typed.push_back(reinterpret_cast<const T*>(input) + begin);
    kernels::reduce(reduction_of(op), typed.data(), static_cast<int>(typed.size()), end - begin,
                    reinterpret_cast<T*>(output) + begin);
  });
}

template <class T>
void add_typed(std::byte* sum, const std::byte* addend, int64_t count, ThreadPool* pool) {
  in_parallel(count, pool, [&](int64_t begin, int64_t end) {
    T* const to = reinterpret_cast<T*>(sum) + begin;
    kernels::add(to, reinterpret_cast<const T*>(addend) + begin, end - begin, to);
  });
}

}  // namespace

void reduce(DType dtype, const std::vector<const std::byte*>& inputs, std::byte* output, int64_t count, ReduceOp op,
            ThreadPool* pool) {
  switch (dtype) {
    case DType::kFp32:
      return reduce_typed<float>(inputs, output, count, op, pool);
    case DType::kFp64:
      return reduce_typed<double>(inputs, output, count, op, pool);
    case DType::kBf16:
      return reduce_typed<kernels::bf16>(inputs, output, count, op, pool);
    case DType::kFp16:
      return reduce_typed<kernels::fp16>(inputs, output, count, op, pool);
    case DType::kInt32:
      return reduce_typed<int32_t>(inputs, output, count, op, pool);
    case DType::kInt64:
      return reduce_typed<int64_t>(inputs, output, count, op, pool);
    default:
      MS_CHECK(false, "no reduction for ", dtype_name(dtype));
  }
}

void add(DType dtype, std::byte* sum, const std::byte* addend, int64_t count, ThreadPool* pool) {
  switch (dtype) {
    case DType::kFp32:
      return add_typed<float>(sum, addend, count, pool);
    case DType::kBf16:
      return add_typed<kernels::bf16>(sum, addend, count, pool);
    case DType::kFp16:
      return add_typed<kernels::fp16>(sum, addend, count, pool);
    default:
      MS_CHECK(false, "no addition for ", dtype_name(dtype));
  }
}

}  // namespace ms::core::detail
