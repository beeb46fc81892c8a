// HDF5 filter 32015 (zstd): of our own process, and of the plugin that makes h5dump and h5py read compressed
// checkpoints.
#pragma once

#include <hdf5.h>

namespace ms::core::detail {

inline constexpr H5Z_filter_t kZstdFilter = 32015;  // registered with The HDF Group

// For H5Zregister and H5PLget_plugin_info. cd_values[0]: zstd's level when it compresses.
extern const H5Z_class2_t kZstdFilterClass;

}  // namespace ms::core::detail
