// Memory of this process and of its host, as counted by the kernel. Nothing here allocates.
#pragma once

#include <cstdint>

namespace ms::core {

// Peak resident memory in bytes, except a few pages per core that the kernel has not counted yet. 0 if /proc does not
// report it.
int64_t peak_resident_bytes();

// Bytes that programs of this host can still get without swapping: the kernel's estimate (MemAvailable), or less where
// a control group (version 2) limits them. 0 if /proc does not report it.
int64_t available_memory_bytes();

// The same number on every process of one host; others differ.
int64_t host_id();

}  // namespace ms::core
