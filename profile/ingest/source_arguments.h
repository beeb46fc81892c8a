// Reads the arguments of slices from their source file: conversion reads Chrome JSON a second time, because the store
// holds only the arguments that analyses need.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "profile/store.h"

namespace ms::profile {

// slice: index among the slices of the file. arguments: the text of the object, with its braces; empty if there is
// none. It is valid during the call only, and may be malformed JSON if the file is.
using ArgumentVisitor = std::function<void(uint32_t slice, std::string_view arguments)>;

struct SourceFacts {
  uint32_t slices = 0;
  std::string device_properties;  // Kineto's deviceProperties array as JSON text; empty: the file has none
};

// Calls visit for each slice of a loaded file, in file order (Events::file_order). Costs the time and memory of reading
// the file in one thread. Throws kIo; kCorruptData if the number of events has changed since it was loaded, possibly
// after some calls.
SourceFacts read_arguments(const FileInfo& source, const ArgumentVisitor& visit);

}  // namespace ms::profile
