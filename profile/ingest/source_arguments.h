// The arguments of slices as their file has them: Chrome JSON is read once more when it is converted, since the store
// holds only those that analyses need.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "profile/store.h"

namespace ms::profile {

// slice: its place among the slices of the file. arguments: the text of the object, with its braces; empty if there is
// none. It is good during the call, and only as valid JSON as the file is.
using ArgumentVisitor = std::function<void(uint32_t slice, std::string_view arguments)>;

struct SourceFacts {
  uint32_t slices = 0;
  std::string device_properties;  // Kineto's array, JSON text; empty: the file has none
};

// Calls visit for each slice of a file that was loaded, in its order (Events::file_order). Takes the time and memory of
// reading it in one thread. Throws kIo; kCorruptData if the file holds another number of events than when it was
// loaded, perhaps after some calls.
SourceFacts read_arguments(const FileInfo& source, const ArgumentVisitor& visit);

}  // namespace ms::profile
