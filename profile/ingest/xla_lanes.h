// Finds the device lanes of an XLA trace (JAX, TensorFlow; TPU or GPU): its JSON has no categories, only names of
// processes ("/device:TPU:0") and threads ("XLA Ops", "Stream #7(Compute)").
#pragma once

#include "profile/store.h"

namespace ms::profile {

// Marks the operations of such processes as device work: those on streams, or, without streams, those of the threads
// "XLA Ops" and "Async XLA Ops". Threads that repeat these by module, scope or source line are not device work; the
// thread "Steps" holds annotations. Returns false, with nothing changed, if there is no such process.
bool assign_xla_lanes(RankTrace& trace);

}  // namespace ms::profile
