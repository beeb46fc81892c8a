// The file driver under our HDF5 files: HDF5's own POSIX driver, with two differences.
//
//   A chunk may be given a place without being written: HDF5 keeps its books, and the data goes there past the page
//   cache, from other threads (bulk_writer.h). Through H5Dwrite_chunk it takes four times as long.
//   A file that is closed after writing ends where HDF5's last byte does, however much was preallocated.
#pragma once

#include <hdf5.h>

namespace ms::core::detail {

// To be set in a list of file access properties. -1 if HDF5 does not take the driver.
hid_t placing_driver();

// While it lives, what HDF5 writes from `data` in this thread is not written.
class Placing {
 public:
  explicit Placing(const void* data);
  ~Placing();
  Placing(const Placing&) = delete;
  Placing& operator=(const Placing&) = delete;
};

}  // namespace ms::core::detail
