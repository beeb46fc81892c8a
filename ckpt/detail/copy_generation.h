// Copies a generation to another rank's folder: its files as one stream, in slices (slices.h) that both ends derive
// from the sizes, read from one disk and written to the other. It appears there as any generation does: fsynced,
// checked against all its hashes, renamed.
//
//   sender -> receiver   its name, iteration, save and files (JSON), or an error: there is nothing to copy
//   receiver -> sender   "1", or "0": not needed, the receiver has it already
//   sender -> receiver   slices
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "ckpt/detail/local_choice.h"
#include "ckpt/detail/mailbox.h"
#include "core/arena.h"

namespace ms::ckpt {

struct CopyOptions {
  int64_t slice_bytes = 0;       // of a message; a rank holds one outgoing and one incoming slice
  double timeout_s = 600;        // limit for a silent peer
  core::Arena* arena = nullptr;  // not owned; slices are counted here, tag ckpt
};

// A copy to another rank, and one from another rank.
struct OutgoingCopy {
  int peer = 0;
  std::optional<LocalPart> part;  // nullopt: tells the peer that there is nothing
};
struct IncomingCopy {
  int peer = 0;
  std::filesystem::path root;  // the root to store the generation in
};

struct CopyResult {
  std::optional<LocalPart> received;  // what is in the root now; nullopt: the peer had nothing
  int64_t sent_bytes = 0, received_bytes = 0;
};

// Sends and receives at the same time, so that ranks can copy in a ring; the peers must make the matching calls. Throws
// kPeerFailed, kIo, and kCorruptData if the received data does not match its manifest; it is removed then.
CopyResult copy_generations(Mailbox& mailbox, const CopyOptions& options, const std::optional<OutgoingCopy>& outgoing,
                            const std::optional<IncomingCopy>& incoming);

}  // namespace ms::ckpt
