// The HDF5 plugin: with HDF5_PLUGIN_PATH=<prefix>/lib/msuite/hdf5, h5dump, h5py and any HDF5 program read compressed
// checkpoints. It does not link HDF5, so one file serves the serial and the MPI build.
#include <H5PLextern.h>

#include "core/io/detail/zstd_filter.h"

H5PL_type_t H5PLget_plugin_type(void) { return H5PL_TYPE_FILTER; }
const void* H5PLget_plugin_info(void) { return &ms::core::detail::kZstdFilterClass; }
