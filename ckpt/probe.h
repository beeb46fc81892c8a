// How fast a checkpoint will be read and written, found out by a little of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "ckpt/source.h"
#include "core/io/bulk_writer.h"

namespace ms::ckpt {

inline constexpr int64_t kProbeBytes = int64_t{64} << 20;

struct ProbeOptions {
  int threads = 1;
  bool compress = false;                      // what is read is compressed, as it will be to be written
  std::optional<core::WritePath> write_path;  // nothing: the fastest that works there
};

struct ProbeReport {
  int64_t bytes_read = 0;        // of tensors, about kProbeBytes where there are as many
  double read_bytes_per_s = 0;   // checked, and compressed if that is asked for
  double write_bytes_per_s = 0;  // 0: not asked
  // To read and write `bytes`: at the same time, so the slower of the two counts.
  double seconds_for(int64_t bytes) const;
};

// Reads kProbeBytes from all over the source, and writes as many to a file in `folder` or the nearest above that
// exists, which is removed again; empty: writes nothing. Throws as Source::read, and kIo.
ProbeReport probe(Source& source, const std::filesystem::path& folder, const ProbeOptions& options);

}  // namespace ms::ckpt
