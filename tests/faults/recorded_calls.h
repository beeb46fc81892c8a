// The log format of record_calls.cpp, which crash_states.h reads: calls by which a program changed something under one
// folder.
//
// The log is a sequence of records: RecordHead, then path, other and data, without gaps.
#pragma once

#include <cstdint>

namespace ms::test {

enum class CallKind : uint32_t {
  kCreate,        // a new empty file
  kMakeFolder,    //
  kWrite,         // data at offset
  kResize,        // to `size` bytes
  kExtend,        // to at least `size` bytes
  kSyncFile,      //
  kSyncFolder,    //
  kRename,        // path to other
  kLink,          // other becomes another name of path
  kRemoveFile,    //
  kRemoveFolder,  //
  kSaid,          // data: bytes written to stdout or stderr
};

struct RecordHead {
  CallKind kind = CallKind::kSaid;
  uint32_t path_bytes = 0, other_bytes = 0, data_bytes = 0;
  int64_t offset = 0, size = 0;
};

}  // namespace ms::test
