// Begins a target region: functions from here to target_pop.h are compiled for the instructions MS_TARGET, a string
// literal ("avx2,fma", or MS_TARGET_AVX2 of region.h); without it, for those of the file. The one place that says so in
// GCC's and in Clang's words.
//
// No include may come between the two but of files that include nothing themselves: inline code of a library would be
// compiled for these instructions, and the linker may choose it for code that runs on older CPUs.
#ifndef MS_TEXT
#define MS_TEXT_OF(...) #__VA_ARGS__
#define MS_TEXT(...) MS_TEXT_OF(__VA_ARGS__)  // of what the arguments expand to
#endif

#if defined(__clang__)
#if defined(MS_TARGET)
_Pragma(MS_TEXT(clang attribute push(__attribute__((target(MS_TARGET))), apply_to = function)))
#endif
#else
#pragma GCC push_options
#if defined(MS_TARGET)
_Pragma(MS_TEXT(GCC target(MS_TARGET)))
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12's avx512fintrin.h (PR 105593), and what it inlines
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
