// The file driver of our HDF5 files: HDF5's own POSIX driver, with two differences.
//
//   A chunk can be allocated without being written: HDF5 updates its metadata, and other threads write the data past
//   the page cache (bulk_writer.h). Writing through H5Dwrite_chunk takes four times as long. Closing a written file
//   truncates it after HDF5's last byte, however much was preallocated.
#pragma once

#include <hdf5.h>

namespace ms::core::detail {

// The driver's id, for a file access property list. -1 if HDF5 rejects the driver.
hid_t placing_driver();

// While this object exists, HDF5's writes of `data` in this thread are skipped.
class Placing {
 public:
  explicit Placing(const void* data);
  ~Placing();
  Placing(const Placing&) = delete;
  Placing& operator=(const Placing&) = delete;
};

}  // namespace ms::core::detail
