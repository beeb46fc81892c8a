// What users' own scripts say that has no field here: flags of Megatron-LM (core 0.6 to 0.8 and older), MindSpeed and
// MindSpeed-LLM, and MindSpore's parallel mode.
//
// A flag is taken with one notice where leaving it out changes neither the numbers nor the memory of the run: what it
// chooses is always so here, or has meaning on an accelerator only. A deprecated spelling is read as the modern one. A
// flag that would change numbers or memory and is not built is refused by name: a run that silently did something else
// would be worse than none.
#pragma once

#include "core/config.h"

namespace ms::train {

void add_compatible_flags(core::ConfigFields& fields);

}  // namespace ms::train
