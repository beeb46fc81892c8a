// Any transport behind an injected latency and bandwidth: what a slow link does to a schedule, on a laptop.
//
// A message leaves latency_s + size / bytes_per_s after it was posted, messages to one peer one after the other. Like
// any transport without a progress thread, it moves only while somebody tests.
#pragma once

#include <memory>

#include "core/comm/transport.h"

namespace ms::core {

struct LinkDelay {
  double latency_s = 0;
  double bytes_per_s = 0;  // 0: unlimited
};

std::unique_ptr<Transport> make_delayed_transport(std::unique_ptr<Transport> inner, LinkDelay delay);

}  // namespace ms::core
