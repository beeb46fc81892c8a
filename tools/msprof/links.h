// msprof links: bandwidth of links and collectives.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> links_verb();

}  // namespace ms::tools::msprof
