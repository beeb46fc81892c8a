// Flags of users' own scripts that have no field in the configuration: flags of Megatron-LM (core 0.6 to 0.8 and
// older), MindSpeed and MindSpeed-LLM, and MindSpore's parallel mode.
//
// A flag is accepted with one notice if leaving it out changes neither the numbers nor the memory of the run: because
// what it selects is always so here, or because it matters on an accelerator only. A deprecated spelling is read as the
// current one. A flag that would change numbers or memory and is not implemented is refused by name: a run that
// silently does something else is worse than none.
#pragma once

#include "core/config.h"

namespace ms::train {

void add_compatible_flags(core::ConfigFields& fields);

}  // namespace ms::train
