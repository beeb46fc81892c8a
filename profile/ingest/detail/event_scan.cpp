#include "profile/ingest/detail/event_scan.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/isa.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MS_SCAN_INLINE inline __attribute__((always_inline))

namespace ms::profile::detail {

// Segments name the value that follows by its place in ScannedEvent.
static_assert(sizeof(ScannedEvent) < Segment::kId2 && std::is_standard_layout_v<ScannedEvent>);

#define MS_SCAN_AVX2 0
namespace portable {
#include "profile/ingest/detail/event_scan.inl"
}  // namespace portable
#undef MS_SCAN_AVX2

#if defined(__x86_64__)
#define MS_SCAN_AVX2 1
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,popcnt,pclmul"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,popcnt,pclmul")
#endif
namespace avx2 {
#include "profile/ingest/detail/event_scan.inl"
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef MS_SCAN_AVX2

namespace {

bool use_avx2() {
  static const bool avx2 = kernels::active_isa() != kernels::Isa::kScalar;
  return avx2;
}
}  // namespace

Scan EventScanner::scan(const char* begin, const char* end, ScannedEvent& event, ArgumentFilter* filter) {
  return use_avx2() ? avx2::scan_event(begin, end, event, filter, segments_)
                    : portable::scan_event(begin, end, event, filter, segments_);
}
Scan skip_value(const char* begin, const char* end, const char*& next, Value* value) {
  return use_avx2() ? avx2::skip_value(begin, end, next, value) : portable::skip_value(begin, end, next, value);
}
const char* skip_space(const char* begin, const char* end) {
  return use_avx2() ? avx2::skip_space(begin, end) : portable::skip_space(begin, end);
}
#else
Scan EventScanner::scan(const char* begin, const char* end, ScannedEvent& event, ArgumentFilter* filter) {
  return portable::scan_event(begin, end, event, filter, segments_);
}
Scan skip_value(const char* begin, const char* end, const char*& next, Value* value) {
  return portable::skip_value(begin, end, next, value);
}
const char* skip_space(const char* begin, const char* end) { return portable::skip_space(begin, end); }
#endif

}  // namespace ms::profile::detail
