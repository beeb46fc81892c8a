// Memory of a rank in a training step, by tag (core/arena.h). What lasts from step to step is exact: weights,
// gradients, master weights and moments, 16 or 18 bytes a parameter, on D ranks with ZeRO-1 8 + 8 / D or 6 + 12 / D,
// with ZeRO-2 4 + 12 / D or 2 + 16 / D and two units of unreduced gradients, with ZeRO-3 16 / D or 18 / D and two units
// of gathered weights as well (Rajbhandari et al. 2020, section 3), plus the padding of the buffers (buffer_cut.h).
// Activations are the peak of a replay: the tensors that forward and backward allocate and free, in the order of the
// stage's schedule. Communication is the largest receive buffer of a reduction. What a swap moves is counted in blocks
// of the tier's file; of an optimizer's state that is swapped, the chunks that an update has in memory are counted.
// Beside them are rotary tables and what attention packs its operands in (workspaces.h). Not included: messages that
// are slow to leave, dropout masks, and workspaces of other operations, which are smaller. Where samples have as many
// ranks as their length needs, what a rank has at a time (act, comm, tier, tmp) is that of the longest (rounds.h).
#pragma once

#include <cstdint>

#include "core/layout/training_step.h"

namespace ms::layout {

struct StepMemory {
  int64_t param = 0, grad = 0, master = 0, optim = 0;  // bytes, exact
  int64_t act = 0, comm = 0;                           // bytes, peaks, within a tenth
  int64_t tmp = 0;                                     // tables, and the workspaces of attention; within a tenth
  int64_t tier = 0;                                    // peak of what a swap has on its tier, exact
  int64_t swapped = 0;                                 // written there in a step, and read again, exact
  int64_t swapped_tensors = 0;                         // in how many tensors

  int64_t in_memory() const { return param + grad + master + optim + act + comm + tmp; }
};
StepMemory step_memory(const TrainingStep& step, int rank);
// The same without what is replayed: act, tier, swapped and swapped_tensors are 0.
StepMemory lasting_memory(const TrainingStep& step, int rank);
// Of one micro-batch, what leaves memory for the tier behind a layer's forward.
SwappedBytes swapped_bytes_of_layer(const TrainingStep& step, const LayerSlots& slots);
// Of the optimizer's state, which lies on the tier between updates, and is read and written by each.
SwappedBytes swapped_state(const TrainingStep& step, int rank);
// Its act alone, of the ranks of a stage: the only part that recomputation changes.
int64_t activation_bytes(const TrainingStep& step, int stage);

}  // namespace ms::layout
