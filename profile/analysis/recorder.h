// Which program recorded the traces of a job: what it can do about a finding has other names in each.
#pragma once

namespace ms::profile {

struct TraceRecorder {
  bool is_mstrain = false;  // of all ranks
  bool is_ascend = false;   // torch_npu, of any rank
};

}  // namespace ms::profile
