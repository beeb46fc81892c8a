// Ends the target region that target_push.h began.
#if defined(__clang__)
#if defined(MS_TARGET)
#pragma clang attribute pop
#endif
#else
#pragma GCC diagnostic pop
#pragma GCC pop_options
#endif
#undef MS_TARGET
