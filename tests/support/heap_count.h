// Counts what a test takes from the heap. heap_count.cpp is a SOURCE of the tests that use it, because it replaces
// malloc and related functions in their program (in a library it would do so in every test). With a sanitizer, whose
// malloc must stay, only operator new is counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ms::test {

struct HeapCount {
  int64_t our_blocks = 0;     // allocated, including those that were freed
  size_t our_largest = 0;     // bytes
  int64_t onednn_blocks = 0;  // allocated by code in oneDNN's library
};

// Counts of all threads since the previous call.
HeapCount take_heap_count();

}  // namespace ms::test
