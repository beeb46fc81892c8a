// A generation travels to another rank's folder: its files as one stream, in slices (slices.h) that both ends agree on,
// read from one disk and written to the other. It appears there as any generation does: fsynced, checked against all of
// its hashes, renamed.
//
//   sender -> receiver   its name, iteration, save and files (JSON), or an error_text: there is nothing
//   receiver -> sender   "1", or "0": nothing is wanted, it lies here already
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
  int64_t slice_bytes = 0;       // of a message; a rank holds one that goes and one that comes
  double timeout_s = 600;        // for a peer's silence
  core::Arena* arena = nullptr;  // not owned; slices are counted here, tag ckpt
};

// What goes to another rank, and what comes from one.
struct OutgoingCopy {
  int peer = 0;
  std::optional<LocalPart> part;  // nothing: the peer is told so
};
struct IncomingCopy {
  int peer = 0;
  std::filesystem::path root;  // where the generation is to lie
};

struct CopyResult {
  std::optional<LocalPart> received;  // what lies in the root now; nothing: the peer had none
  int64_t sent_bytes = 0, received_bytes = 0;
};

// Both at once, so that ranks may copy in a ring; the peers make the calls that match. Throws kPeerFailed, kIo, and
// kCorruptData if what came is not what its manifest says; then nothing is left of it.
CopyResult copy_generations(Mailbox& mailbox, const CopyOptions& options, const std::optional<OutgoingCopy>& outgoing,
                            const std::optional<IncomingCopy>& incoming);

}  // namespace ms::ckpt
