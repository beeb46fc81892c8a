// Writes complete sums to C, applying gemm.h's GemmEpilogue, one row or part of a row at a time.

#include "kernels/impl/activation_functions.inl"

struct NoActivation {
  template <class>
  static MS_INLINE Vec value(Vec x) {
    return x;
  }
};

// Finishes n sums, fp32 or already rounded; bias and residual may be null.
template <class Act, class S, class T>
void finish_elements(const S* sums, const T* bias, const T* residual, int64_t n, T* target) {
  for (int64_t j = 0; j < n; j += kLanes) {
    const int64_t left = n - j;
    const bool whole = left >= kLanes;
    Vec x = whole ? load(sums + j) : load_partial(sums + j, left);
    if (bias != nullptr) x = x + (whole ? load(bias + j) : load_partial(bias + j, left));
    x = Act::template value<float>(x);
    if (residual != nullptr) x = x + (whole ? load(residual + j) : load_partial(residual + j, left));
    if (whole) {
      store(target + j, x);
    } else {
      store_partial(target + j, x, left);
    }
  }
}

template <class S, class T>
void finish_typed(const GemmProblem& problem, int64_t row, int64_t column, const S* sums, int64_t n) {
  const GemmEpilogue& epilogue = problem.epilogue;
  const T* const bias = epilogue.bias == nullptr ? nullptr : static_cast<const T*>(epilogue.bias) + column;
  const T* const residual = epilogue.residual == nullptr
                                ? nullptr
                                : static_cast<const T*>(epilogue.residual) + row * epilogue.ld_residual + column;
  T* const target = static_cast<T*>(problem.c) + row * problem.ldc + column;
  if (!epilogue.activation) return finish_elements<NoActivation>(sums, bias, residual, n, target);
  switch (*epilogue.activation) {
    case Activation::kSilu:
      return finish_elements<Silu>(sums, bias, residual, n, target);
    case Activation::kGelu:
      return finish_elements<Gelu>(sums, bias, residual, n, target);
    case Activation::kGeluTanh:
      return finish_elements<GeluTanh>(sums, bias, residual, n, target);
    case Activation::kFastGelu:
      return finish_elements<FastGelu>(sums, bias, residual, n, target);
    case Activation::kRelu:
      return finish_elements<Relu>(sums, bias, residual, n, target);
    case Activation::kSquaredRelu:
      return finish_elements<SquaredRelu>(sums, bias, residual, n, target);
  }
}

// Finishes n complete sums of C's row `row`, from `column` on; sums may be C itself.
inline void finish_row(const GemmProblem& problem, int64_t row, int64_t column, const float* sums, int64_t n) {
  switch (problem.c_type) {
    case GemmType::kFp32:
      return finish_typed<float, float>(problem, row, column, sums, n);
    case GemmType::kBf16:
      return finish_typed<float, bf16>(problem, row, column, sums, n);
    case GemmType::kFp16:
      return finish_typed<float, fp16>(problem, row, column, sums, n);
  }
}
