// Which lanes of a trace of XLA (JAX, TensorFlow; TPU or GPU) are the device's: its JSON has no categories, only names
// of processes ("/device:TPU:0") and threads ("XLA Ops", "Stream #7(Compute)").
#pragma once

#include "profile/store.h"

namespace ms::profile {

// Makes device work of the operations of such processes: what runs on streams, or, where there are none, the thread
// "XLA Ops" and its asynchronous one. Threads that repeat these by module, scope or source line are no work; the thread
// "Steps" holds annotations. False, and nothing is changed, if there is no such process.
bool assign_xla_lanes(RankTrace& trace);

}  // namespace ms::profile
