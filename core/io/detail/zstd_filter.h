// HDF5 filter 32015 (zstd), used by our own process and by the plugin with which h5dump and h5py read compressed
// checkpoints.
#pragma once

#include <hdf5.h>

namespace ms::core::detail {

inline constexpr H5Z_filter_t kZstdFilter = 32015;  // registered with The HDF Group

// For H5Zregister and H5PLget_plugin_info. cd_values[0]: zstd level for compression.
extern const H5Z_class2_t kZstdFilterClass;

}  // namespace ms::core::detail
