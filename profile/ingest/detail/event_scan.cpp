#include "profile/ingest/detail/event_scan.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/isa.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MS_SCAN_INLINE inline __attribute__((always_inline))
#define MS_SCAN_APART __attribute__((noinline))

namespace ms::profile::detail {

// A segment refers to the value after it by its offset in ScannedEvent.
static_assert(sizeof(ScannedEvent) < UINT16_MAX && std::is_standard_layout_v<ScannedEvent>);

#define MS_SCAN_ISA 0
namespace portable {
#include "profile/ingest/detail/event_scan.inl"
}  // namespace portable
#undef MS_SCAN_ISA

#if defined(__x86_64__)
#define MS_SCAN_ISA 1
#define MS_TARGET "avx2,bmi,popcnt,pclmul"
#include "kernels/impl/target_push.h"
namespace avx2 {
#include "profile/ingest/detail/event_scan.inl"
}  // namespace avx2
#include "kernels/impl/target_pop.h"
#undef MS_SCAN_ISA

#define MS_SCAN_ISA 2
#define MS_TARGET "avx2,bmi,popcnt,pclmul,avx512f,avx512bw"
#include "kernels/impl/target_push.h"
namespace avx512 {
#include "profile/ingest/detail/event_scan.inl"
}  // namespace avx512
#include "kernels/impl/target_pop.h"
#undef MS_SCAN_ISA
#endif

namespace {

struct Functions {
  decltype(&portable::scan_event) scan_event = portable::scan_event;
  decltype(&portable::skip_value) skip_value = portable::skip_value;
  decltype(&portable::skip_space) skip_space = portable::skip_space;
};

Functions choose() {
#if defined(__x86_64__)
  switch (kernels::active_isa()) {
    case kernels::Isa::kAmx:
    case kernels::Isa::kAvx512Bf16:
    case kernels::Isa::kAvx512:
      return {avx512::scan_event, avx512::skip_value, avx512::skip_space};
    case kernels::Isa::kAvx2:
      return {avx2::scan_event, avx2::skip_value, avx2::skip_space};
    case kernels::Isa::kScalar:
      break;
  }
#endif
  return {};
}

const Functions& functions() {
  static const Functions chosen = choose();
  return chosen;
}

}  // namespace

EventScanner::EventScanner() : scan_(functions().scan_event) {}
Scan skip_value(const char* begin, const char* end, const char*& next, Value* value) {
  return functions().skip_value(begin, end, next, value);
}
const char* skip_space(const char* begin, const char* end) { return functions().skip_space(begin, end); }

}  // namespace ms::profile::detail
