// Flags that are given without a value, such as --context-parallel-algo "$ALGORITHM" of a variable that is not set. Of
// flags only: in a printed configuration an empty value means none.
#pragma once

#include "train/config.h"

namespace ms::train {

// Throws kInvalidArgument if the value of a text is empty. A choice whose default is empty becomes "", in quotes: the
// check of its feature then refuses it with the values that it may have.
void refuse_empty_flags(const core::ConfigFields& fields, TrainerConfig& config);

}  // namespace ms::train
