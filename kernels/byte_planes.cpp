#include "kernels/byte_planes.h"

#define MS_KERNEL_BODY "kernels/impl/byte_planes.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

void split_planes(const std::byte* in, int64_t n, int item, std::byte* const* planes) {
  MS_DISPATCH(split_planes(in, n, item, planes));
}

void join_planes(const std::byte* const* planes, int64_t n, int item, std::byte* out) {
  MS_DISPATCH(join_planes(planes, n, item, out));
}

}  // namespace ms::kernels
