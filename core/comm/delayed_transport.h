// Adds latency and limits bandwidth of any transport, to test the effect of a slow link on a schedule on one machine.
//
// A message is sent latency_s + size / bytes_per_s after it was posted; messages to the same peer are sent one after
// another. Like any transport without a progress thread, it advances only while somebody tests.
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
