#include "profile/ingest/detail/event_parts.h"

#include <new>

#include "core/error.h"
#include "profile/ingest/detail/event_array.h"

namespace ms::profile::detail {

std::unique_ptr<ArrayPart> read_part(ByteStream& stream, const std::string& path, int64_t begin, int64_t size, bool own,
                                     const std::atomic<bool>& stop) {
  try {
    auto part = std::make_unique<ArrayPart>(path, own);
    JsonWindow window(stream, begin);
    EventArray array(window, part->columns, part->issues);
    if (array.read_part(begin + size, stop, part->begin, part->end)) return part;
  } catch (const core::Error&) {
  } catch (const std::bad_alloc&) {
  }
  return nullptr;
}

}  // namespace ms::profile::detail
