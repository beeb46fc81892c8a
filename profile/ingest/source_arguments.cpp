#include "profile/ingest/source_arguments.h"

#include "core/error.h"
#include "profile/ingest/byte_stream.h"
#include "profile/ingest/chrome_json.h"

namespace ms::profile {

SourceFacts read_arguments(const FileInfo& source, const ArgumentVisitor& visit) {
  SourceFacts facts;
  ImportStats stats;  // issues were reported when the file was loaded
  FileInfo file;
  RankTrace again;
  {
    const auto stream = open_bytes(source.path, stats, /*threads=*/2);
    ChromeJsonOptions options;
    options.arguments = &visit;
    options.device_properties = &facts.device_properties;
    read_chrome_json(*stream, source.path, again, file, stats, options);
  }
  if (file.events != source.events) {
    throw core::Error(core::ErrorCode::kCorruptData,
                      core::cat(source.path, ": had ", source.events, " events when it was loaded, now ", file.events,
                                ": was it changed meanwhile?"));
  }
  facts.slices = static_cast<uint32_t>(again.events.size());
  return facts;
}

}  // namespace ms::profile
