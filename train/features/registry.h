// The list of features, in the order of --help and of the manual.
#pragma once

#include <vector>

#include "train/features/feature.h"

namespace ms::train {

const std::vector<Feature>& features();

}  // namespace ms::train
