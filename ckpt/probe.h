// Estimates how fast a checkpoint will be read and written, by reading and writing a small part of it.
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
  bool compress = false;                      // compress what is read, as the real run will
  std::optional<core::WritePath> write_path;  // nullopt: the fastest that works there
};

struct ProbeReport {
  int64_t bytes_read = 0;        // tensor data: about kProbeBytes, less if the source is smaller
  double read_bytes_per_s = 0;   // with checksums, and compression if requested
  double write_bytes_per_s = 0;  // 0: not measured
  // Time to read and write `bytes`: both run at the same time, so the slower one counts.
  double seconds_for(int64_t bytes) const;
};

// Reads kProbeBytes spread over the source, and writes as many to a temporary file in `folder` or its nearest existing
// parent; an empty `folder`: writes nothing. Throws as Source::read, and kIo.
ProbeReport probe(Source& source, const std::filesystem::path& folder, const ProbeOptions& options);

}  // namespace ms::ckpt
