#include "kernels/convert.h"

#define MS_KERNEL_BODY "kernels/impl/convert.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

void convert(const float* source, bf16* target, int64_t n, Stores stores) {
  MS_DISPATCH(convert(source, target, n, stores));
}
void convert(const bf16* source, float* target, int64_t n, Stores stores) {
  MS_DISPATCH(convert(source, target, n, stores));
}
void convert(const float* source, fp16* target, int64_t n, Stores stores) {
  MS_DISPATCH(convert(source, target, n, stores));
}
void convert(const fp16* source, float* target, int64_t n, Stores stores) {
  MS_DISPATCH(convert(source, target, n, stores));
}
void convert(const bf16* source, fp16* target, int64_t n, Stores stores) {
  MS_DISPATCH(convert(source, target, n, stores));
}
void convert(const fp16* source, bf16* target, int64_t n, Stores stores) {
  MS_DISPATCH(convert(source, target, n, stores));
}

}  // namespace ms::kernels
