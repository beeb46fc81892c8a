// What a test takes from the heap. heap_count.cpp is a SOURCE of the tests that ask: it replaces malloc and its kin in
// their program (in a library it would do so in every test). With a sanitizer, whose malloc must stay, only new counts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ms::test {

struct HeapCount {
  int64_t our_blocks = 0;     // taken, also where they were given back
  size_t our_largest = 0;     // bytes
  int64_t onednn_blocks = 0;  // taken by code that lies in oneDNN's library
};

// Of all threads, since the last call of this.
HeapCount take_heap_count();

}  // namespace ms::test
